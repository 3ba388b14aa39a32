/* suggest.c - a job that does not fit: what is short, and which changes of
 * the job file would make it fit. */
#include "base/text_buffer.h"
#include "train/plan/fit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void human(char *out, size_t out_bytes, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, out_bytes, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

static int by_bytes(const void *a, const void *b)
{
    const struct arena_span *x = *(const struct arena_span *const *)a;
    const struct arena_span *y = *(const struct arena_span *const *)b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* The memory that a plan has too little of. */
enum shortage { SHORT_DEVICE, SHORT_HOST, SHORT_TOTAL };

static enum shortage shortage_of(
        const struct job_plan *plan, const struct plan_limits *limits)
{
    if (plan_device_bytes(plan) > limits->device)
        return SHORT_DEVICE;
    return plan_host_bytes(plan) > limits->host ? SHORT_HOST : SHORT_TOTAL;
}

static bool is_of(const struct arena_span *span, enum shortage shortage)
{
    if (span->memory == ARENA_DISK)
        return false;
    if (shortage == SHORT_TOTAL)
        return true;
    return (span->memory == ARENA_DEVICE) == (shortage == SHORT_DEVICE);
}

/* The three largest spans of the memory that is short. */
static void largest_spans(
        const struct arena_plan *arena, enum shortage shortage,
        struct text_buffer *text)
{
    const struct arena_span **order =
            calloc((size_t)arena->span_count, sizeof *order);
    int count = 0;
    if (!order)
        return;
    for (int i = 0; i < arena->span_count; i++)
        if (is_of(&arena->spans[i], shortage))
            order[count++] = &arena->spans[i];
    qsort(order, (size_t)count, sizeof *order, by_bytes);
    text_buffer_add(text, "the largest spans:");
    for (int i = 0; i < count && i < 3; i++) {
        char size[32];
        human(size, sizeof size, order[i]->bytes);
        text_buffer_add(text, "%s %s %s", i ? "," : "", order[i]->name, size);
    }
    free(order);
}

/* What might be changed in the job to make it fit, cheapest first. */
enum {
    CHANGE_FULL = 1,       /* recompute every layer */
    CHANGE_BATCH = 2,      /* smaller micro-batches, as many more of them */
    CHANGE_STAGE = 4,      /* shard everything */
    CHANGE_8BIT = 8,       /* states in 8 bits */
    CHANGE_PAGED = 16,     /* states on the host as far as they must be */
    CHANGE_OPTIMIZER = 32, /* masters and states on the host */
    CHANGE_PARAMS = 64,    /* parameters too */
    CHANGE_DISK = 128,     /* masters and states on NVMe */
    CHANGE_DISK_PARAMS = 256,
    CHANGES = 512
};

/* Masters and states leave the device. */
enum { CHANGES_OFFLOAD = CHANGE_OPTIMIZER | CHANGE_DISK };

static int useless_changes(
        const struct train_job *job, const struct job_plan *plan,
        const struct job_choice *now)
{
    const struct offload_options *offload = &job->offload;
    bool is_offloaded = offload->optimizer != OFFLOAD_NONE;
    bool has_8bit = job->optim.state_type == OPTIM_STATE_8BIT ||
                    job->optim.name == OPTIM_SGD;
    int useless = 0;
    if (now->checkpointing.mode == CHECKPOINTING_FULL)
        useless |= CHANGE_FULL;
    if (now->B == 1)
        useless |= CHANGE_BATCH;
    if (job->zero.stage == 3 || plan->world == 1)
        useless |= CHANGE_STAGE;
    if (has_8bit)
        useless |= CHANGE_8BIT;
    bool can_be_paged =
            job->optim.name == OPTIM_ADAMW || job->optim.name == OPTIM_LION;
    if (is_offloaded)
        useless |= CHANGE_OPTIMIZER;
    if (is_offloaded || job->optim.paged || !can_be_paged)
        useless |= CHANGE_PAGED;
    if (offload->params != OFFLOAD_NONE)
        useless |= CHANGE_PARAMS;
    if (offload->optimizer == OFFLOAD_NVME)
        useless |= CHANGE_DISK;
    if (offload->params == OFFLOAD_NVME)
        useless |= CHANGE_DISK_PARAMS;
    return useless;
}

/* Whether changes can be made together. */
static bool is_sound(
        const struct train_job *job, const struct job_plan *plan, int change)
{
    bool sharded =
            plan->world == 1 || job->zero.stage == 3 || (change & CHANGE_STAGE);
    bool offloads = job->offload.optimizer != OFFLOAD_NONE ||
                    (change & CHANGES_OFFLOAD);
    bool on_disk =
            job->offload.optimizer == OFFLOAD_NVME || (change & CHANGE_DISK);
    if ((change & CHANGE_OPTIMIZER) && (change & CHANGE_DISK))
        return false;
    if ((change & CHANGE_PAGED) && (change & CHANGES_OFFLOAD))
        return false;
    if ((change & CHANGE_PAGED) && !(change & CHANGE_8BIT) &&
        job->optim.state_type == OPTIM_STATE_BF16)
        return false; /* there is no such optimizer */
    if ((change & CHANGE_PARAMS) && (change & CHANGE_DISK_PARAMS))
        return false;
    if ((change & CHANGE_PARAMS) && !(offloads && sharded))
        return false;
    return !(change & CHANGE_DISK_PARAMS) || (on_disk && sharded);
}

static struct train_job changed_job(const struct train_job *job, int change)
{
    struct train_job changed = *job;
    if (change & CHANGE_STAGE)
        changed.zero.stage = 3;
    if (change & CHANGE_8BIT)
        changed.optim.state_type = OPTIM_STATE_8BIT;
    if (change & CHANGE_PAGED)
        changed.optim.paged = true;
    if (change & CHANGE_OPTIMIZER)
        changed.offload.optimizer = OFFLOAD_CPU;
    if (change & CHANGE_PARAMS)
        changed.offload.params = OFFLOAD_CPU;
    if (change & CHANGE_DISK)
        changed.offload.optimizer = OFFLOAD_NVME;
    if (change & CHANGE_DISK_PARAMS)
        changed.offload.params = OFFLOAD_NVME;
    if (!changed.offload.nvme_path)
        changed.offload.nvme_path = "";
    return changed;
}

static bool names_folder(const struct train_job *job)
{
    return job->offload.nvme_path && *job->offload.nvme_path;
}

struct fitting {
    struct job_choice choice; /* trying overwrites the plan's */
    uint64_t device, host, disk;
};

/* Micro-batches of a step that are worth a suggestion: nobody waits for more,
 * and at stage 3 each is planned move by move. */
enum { ACCUMULATION_MAX = 4096 };

/* With CHANGE_BATCH, the largest micro-batch that fits. */
static bool change_fits(
        const struct train_job *job, struct job_plan *plan, int change,
        const struct plan_limits *limits, struct fitting *fitting)
{
    struct job_choice *choice = &fitting->choice;
    int samples = choice->B * choice->A, last = choice->B;
    struct train_job changed = changed_job(job, change);
    if (change & CHANGE_FULL)
        choice->checkpointing =
                (struct checkpointing){.mode = CHECKPOINTING_FULL};
    for (int B = change & CHANGE_BATCH ? last - 1 : last; B > 0; B--) {
        if (last % B != 0)
            continue;
        bool is_fit = false;
        choice->B = B;
        choice->A = samples / B;
        if (choice->A > ACCUMULATION_MAX)
            return false;
        if (plan_try_choice(&changed, choice, limits, plan, &is_fit) != ZD_OK) {
            zd_error_clear();
        } else if (is_fit) {
            fitting->device = plan_device_bytes(plan);
            fitting->host = plan_host_bytes(plan);
            fitting->disk = plan->arena.bytes[ARENA_DISK];
            return true;
        }
        if (!(change & CHANGE_BATCH))
            return false;
    }
    return false;
}

/* " --set" and what it sets. No value needs quotes, in a shell or behind --set.
 */
static void add_settings(
        struct text_buffer *text, const struct train_job *job, int change,
        const struct job_choice *choice)
{
    const struct train_job changed = changed_job(job, change);
    char name[PLAN_NAME_MAX];
    plan_optimizer_name(&changed.optim, name);
#define PART(bits, ...)                                                        \
    if (change & (bits))                                                       \
        text_buffer_add(text, " --set " __VA_ARGS__);
    PART(CHANGE_STAGE, "zero.stage=3")
    PART(CHANGE_FULL, "train.gradient_checkpointing=full")
    PART(CHANGE_BATCH,
         "train.per_device_train_batch_size=%d "
         "--set train.gradient_accumulation_steps=%d",
         choice->B, choice->A)
    PART(CHANGE_8BIT | CHANGE_PAGED, "optim.name=%s", name)
    if (job->names_states)
        PART(CHANGE_8BIT, "optim.state_dtype=8bit")
    PART(CHANGE_OPTIMIZER, "offload.optimizer=cpu")
    PART(CHANGE_DISK, "offload.optimizer=nvme")
    if (!names_folder(job))
        PART(CHANGE_DISK, "offload.nvme_path=FOLDER")
    PART(CHANGE_PARAMS, "offload.params=cpu")
    PART(CHANGE_DISK_PARAMS, "offload.params=nvme")
#undef PART
}

/* One line, to be put behind a command that takes the job. False when there is
 * no room left for it. */
static bool add_change(
        struct text_buffer *text, const struct train_job *job, int change,
        const struct fitting *fitting)
{
    char device[32], host[32], disk[32], settings[400];
    struct text_buffer line = {.out = settings, .bytes = sizeof settings};
    human(device, sizeof device, fitting->device);
    human(host, sizeof host, fitting->host);
    human(disk, sizeof disk, fitting->disk);
    add_settings(&line, job, change, &fitting->choice);
    text_buffer_add(&line, "   (device %s, host %s", device, host);
    if (fitting->disk)
        text_buffer_add(
                &line, ", %s free in %.60s", disk,
                names_folder(job) ? job->offload.nvme_path : "FOLDER");
    if (text->used + line.used + 3 > text->bytes)
        return false;
    text_buffer_add(text, "\n%s)", settings + 1);
    return true;
}

/* What a user gives up, roughly: a change each, two where a disk comes in. */
static int cost_of(int change)
{
    const int one_name = CHANGE_8BIT | CHANGE_PAGED;
    return __builtin_popcount((unsigned)change) -
           ((change & one_name) == one_name) +
           __builtin_popcount(
                   (unsigned)change & (CHANGE_DISK | CHANGE_DISK_PARAMS));
}

/* The changes that fit, cheapest first; none that holds another. */
static void suggest(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_limits *limits, struct text_buffer *text)
{
    enum { LINES = 4, COST_MAX = 5 };
    const struct job_choice now = {
            .checkpointing = plan->shape.checkpointing,
            .B = plan->per_device,
            .A = plan->accumulation};
    int useless = useless_changes(job, plan, &now);
    int found[LINES], count = 0;
    for (int cost = 1; cost <= COST_MAX; cost++)
        for (int change = 1; change < CHANGES && count < LINES; change++) {
            struct fitting fitting = {.choice = now};
            bool skip = cost_of(change) != cost || (change & useless) ||
                        !is_sound(job, plan, change);
            for (int k = 0; k < count; k++)
                skip = skip || (change & found[k]) == found[k];
            if (skip || !change_fits(job, plan, change, limits, &fitting))
                continue;
            if (!count)
                text_buffer_add(
                        text, "\nany one of these, on the command line or in "
                              "the file:");
            found[count++] = change;
            if (!add_change(text, job, change, &fitting))
                return;
        }
    if (!count)
        text_buffer_add(
                text, "\nno such change fits: more ranks, a shorter "
                      "data.cutoff_len or a smaller model are left");
}

enum zd_status plan_refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_limits *limits)
{
    static const char *const names[] = {
            "device memory", "host memory", "memory"};
    char need[32], limit[32], source[PLAN_NAME_MAX], help[1000] = "";
    struct text_buffer text = {.out = help, .bytes = sizeof help};
    enum shortage shortage = shortage_of(plan, limits);
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    uint64_t needs[] = {device, host, device + host};
    uint64_t bounds[] = {limits->device, limits->host, limits->total};
    static const enum arena_memory memories[] = {
            ARENA_DEVICE, ARENA_HOST, ARENA_MEMORIES};

    human(need, sizeof need, needs[shortage]);
    human(limit, sizeof limit, bounds[shortage]);
    plan_limit_name(limits, memories[shortage], source);
    largest_spans(&plan->arena, shortage, &text);
    suggest(job, plan, limits, &text);
    ZD_FAIL(ZD_ERR_UNFIT, "E0601",
            "does not fit: each rank needs %s of %s (%" PRIu64
            " bytes), the limit is %s (%" PRIu64 " bytes) of %s",
            need, names[shortage], needs[shortage], limit, bounds[shortage],
            source);
    zd_fail_help("%s", help);
    return ZD_ERR_UNFIT;
}
