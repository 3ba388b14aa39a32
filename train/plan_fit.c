#include "train/plan_fit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct limits {
    uint64_t device, host; /* bytes a rank may take */
    bool shared;           /* the CPU device: both lie in the same memory */
};

static uint64_t limit_of(uint64_t bytes, double fraction, uint64_t share)
{
    if (fraction > 0)
        return (uint64_t)(fraction * (double)share);
    return bytes ? bytes : share;
}

static struct limits limits_of(const struct train_job *job, int local_size)
{
    const struct device_options *device = &job->device;
    uint64_t reserve = (uint64_t)1 << 30; /* for everything else */
    uint64_t memory = device_system_memory();
    uint64_t share = (memory > 2 * reserve ? memory - reserve : memory / 2) /
                     (uint64_t)(local_size > 0 ? local_size : 1);
    return (struct limits){
            .device = limit_of(
                    device->memory_limit, device->memory_limit_fraction, share),
            .host = limit_of(
                    device->host_memory_limit,
                    device->host_memory_limit_fraction, share),
            .shared = !device->memory_limit && !device->host_memory_limit &&
                      !(device->memory_limit_fraction > 0) &&
                      !(device->host_memory_limit_fraction > 0),
    };
}

static bool fits(const struct job_plan *plan, const struct limits *limits)
{
    uint64_t device = plan->arena.bytes[ARENA_DEVICE];
    uint64_t host =
            plan->arena.bytes[ARENA_HOST] + plan->arena.bytes[ARENA_PINNED];
    if (limits->shared)
        return device + host <= limits->device;
    return device <= limits->device && host <= limits->host;
}

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

/* Append the three largest spans of the memory that is short. */
static void largest_spans(
        const struct arena_plan *arena, const struct limits *limits,
        bool is_device, char *out, size_t out_bytes)
{
    const struct arena_span **order =
            calloc((size_t)arena->span_count, sizeof *order);
    int count = 0;
    size_t used = 0;
    if (!order)
        return;
    for (int i = 0; i < arena->span_count; i++) {
        const struct arena_span *span = &arena->spans[i];
        if (limits->shared || (span->memory == ARENA_DEVICE) == is_device)
            order[count++] = span;
    }
    qsort(order, (size_t)count, sizeof *order, by_bytes);
    used += (size_t)snprintf(out, out_bytes, "the largest spans:");
    for (int i = 0; i < count && i < 3; i++) {
        char size[32];
        human(size, sizeof size, order[i]->bytes);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s %s %s", i ? "," : "",
                order[i]->name, size);
    }
    free(order);
}

/* Where gradients of several micro-batches are added up: offload.accumulate, or
 * with "auto" on the device if that fits, else on the host. */
static enum zd_status try_accumulations(
        const struct train_job *job, struct job_choice *choice,
        const struct limits *limits, struct job_plan *plan, bool *fits_out)
{
    enum offload_accumulate asked = job->offload.accumulate;
    bool several = job->offload.optimizer != OFFLOAD_NONE && choice->A > 1;
    bool can_both = plan->world == 1 || job->zero.stage > 0;
    choice->accumulate_on_host = several && asked == OFFLOAD_ACCUMULATE_HOST;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = fits(plan, limits);
    if (*fits_out || !several || !can_both || asked != OFFLOAD_ACCUMULATE_AUTO)
        return ZD_OK;
    choice->accumulate_on_host = true;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = fits(plan, limits);
    return ZD_OK;
}

/* Paged states that do not fit the device's limit go to the host's. */
static bool can_spill(const struct train_job *job, const struct limits *limits)
{
    return job->optim.paged && job->offload.optimizer == OFFLOAD_NONE &&
           !limits->shared;
}

static enum zd_status try_to_spill(
        const struct train_job *job, struct job_choice *choice, size_t bytes,
        struct job_plan *plan)
{
    choice->spill_bytes = bytes;
    return job_plan_try(job, choice, plan);
}

/* As much of the states on the host as the device needs, not more; when all of
 * them there are not enough that is the plan left. */
static enum zd_status try_spills(
        const struct train_job *job, struct job_choice *choice,
        const struct limits *limits, struct job_plan *plan, bool *fits_out)
{
    ZD_TRY(try_to_spill(job, choice, SIZE_MAX, plan));
    const struct arena_span *all = arena_plan_find(&plan->arena, "zero.paged");
    size_t few = 0, enough = all ? all->bytes : 0;
    *fits_out = false;
    if (!all || plan->arena.bytes[ARENA_DEVICE] > limits->device)
        return ZD_OK;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        ZD_TRY(try_to_spill(job, choice, middle, plan));
        if (plan->arena.bytes[ARENA_DEVICE] <= limits->device)
            enough = middle;
        else
            few = middle;
    }
    ZD_TRY(try_to_spill(job, choice, enough, plan));
    *fits_out = fits(plan, limits);
    return ZD_OK;
}

/* The job with everything settled but what the limits leave open. */
static enum zd_status try_choice(
        const struct train_job *job, struct job_choice *choice,
        const struct limits *limits, struct job_plan *plan, bool *fits_out)
{
    choice->spill_bytes = 0;
    ZD_TRY(try_accumulations(job, choice, limits, plan, fits_out));
    if (*fits_out || !can_spill(job, limits))
        return ZD_OK;
    return try_spills(job, choice, limits, plan, fits_out);
}

/* What might be changed in the job to make it fit. */
enum {
    CHANGE_FULL = 1,  /* gradient_checkpointing = "full" */
    CHANGE_BATCH = 2, /* smaller micro-batches, as many more of them */
    CHANGE_STAGE = 4, /* zero.stage = 3 */
};

struct fitting {
    struct job_choice choice; /* trying overwrites the plan's */
    uint64_t need;
};

/* With CHANGE_BATCH, the largest micro-batch that fits. */
static bool change_fits(
        const struct train_job *job, struct job_plan *plan, int change,
        const struct limits *limits, struct fitting *fitting)
{
    struct job_choice *choice = &fitting->choice;
    int samples = choice->B * choice->A, last = choice->B;
    struct train_job changed = *job;
    if (change & CHANGE_FULL)
        choice->checkpointing =
                (struct checkpointing){.mode = CHECKPOINTING_FULL};
    if (change & CHANGE_STAGE)
        changed.zero.stage = 3;
    for (int B = change & CHANGE_BATCH ? last - 1 : last; B > 0; B--) {
        if (last % B != 0)
            continue;
        bool is_fit = false;
        choice->B = B;
        choice->A = samples / B;
        if (try_choice(&changed, choice, limits, plan, &is_fit) != ZD_OK) {
            zd_error_clear();
        } else if (is_fit) {
            fitting->need = plan->arena.bytes[ARENA_DEVICE];
            return true;
        }
        if (!(change & CHANGE_BATCH))
            return false;
    }
    return false;
}

/* One line, as it is written in a job file. */
static void change_line(
        int change, const struct fitting *fitting, char *out, size_t out_bytes)
{
    char size[32], batch[120];
    snprintf(
            batch, sizeof batch,
            "train.per_device_train_batch_size = %d, "
            "train.gradient_accumulation_steps = %d",
            fitting->choice.B, fitting->choice.A);
    human(size, sizeof size, fitting->need);
    snprintf(
            out, out_bytes, "\n%s%s%s%s%s   (%s)",
            change & CHANGE_STAGE ? "zero.stage = 3" : "",
            change & CHANGE_STAGE && change != CHANGE_STAGE ? ", " : "",
            change & CHANGE_FULL ? "train.gradient_checkpointing = \"full\""
                                 : "",
            change & CHANGE_FULL && change & CHANGE_BATCH ? ", " : "",
            change & CHANGE_BATCH ? batch : "", size);
}

/* Lines of the changes that fit, cheapest first; none that holds another. */
static void suggest(
        const struct train_job *job, struct job_plan *plan,
        const struct limits *limits, char *out, size_t out_bytes)
{
    static const int changes[] = {
            CHANGE_FULL,
            CHANGE_BATCH,
            CHANGE_STAGE,
            CHANGE_FULL | CHANGE_STAGE,
            CHANGE_FULL | CHANGE_BATCH,
            CHANGE_BATCH | CHANGE_STAGE,
            CHANGE_FULL | CHANGE_BATCH | CHANGE_STAGE};
    const struct job_choice now = {
            .checkpointing = plan->shape.checkpointing,
            .B = plan->per_device,
            .A = plan->accumulation};
    int useless = (job->zero.stage == 3 ? CHANGE_STAGE : 0) |
                  (now.B == 1 ? CHANGE_BATCH : 0);
    int found[sizeof changes / sizeof changes[0]], count = 0;
    size_t used = strlen(out);

    if (now.checkpointing.mode == CHECKPOINTING_FULL)
        useless |= CHANGE_FULL;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct fitting fitting = {.choice = now};
        bool more = (changes[i] & useless) != 0;
        char line[256];
        for (int k = 0; k < count; k++)
            more = more || (changes[i] & found[k]) == found[k];
        if (more || !change_fits(job, plan, changes[i], limits, &fitting))
            continue;
        change_line(changes[i], &fitting, line, sizeof line);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s%s",
                count ? "" : "\nany one of these fits:", line);
        found[count++] = changes[i];
    }
    if (!count)
        snprintf(
                out + used, out_bytes - used,
                "\nno such change fits: more ranks, a shorter "
                "data.cutoff_len or a smaller model are left");
}

static enum zd_status refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct limits *limits)
{
    char need[32], limit[32], help[1000] = "";
    uint64_t device = plan->arena.bytes[ARENA_DEVICE];
    uint64_t host =
            plan->arena.bytes[ARENA_HOST] + plan->arena.bytes[ARENA_PINNED];
    bool is_device = limits->shared || device > limits->device;
    const char *what = limits->shared ? "memory"
                       : is_device    ? "device memory"
                                      : "host memory";
    uint64_t bytes = limits->shared ? device + host : is_device ? device : host;
    uint64_t bound = is_device ? limits->device : limits->host;

    human(need, sizeof need, bytes);
    human(limit, sizeof limit, bound);
    largest_spans(&plan->arena, limits, is_device, help, sizeof help);
    suggest(job, plan, limits, help, sizeof help);
    ZD_FAIL(ZD_ERR_UNFIT, "E0601",
            "does not fit: each rank needs %s of %s (%" PRIu64
            " bytes), the limit is %s (%" PRIu64 " bytes)",
            need, what, bytes, limit, bound);
    zd_fail_help("%s", help);
    return ZD_ERR_UNFIT;
}

/* "auto" takes the first that fits: nothing recomputed, then the mode with the
 * smaller activations of the two that recompute every layer once. Activations
 * that are offloaded are inputs of what is recomputed. States are spilled only
 * where recomputing does not do. */
static enum zd_status try_modes(
        const struct train_job *job, int B, int A, const struct limits *limits,
        struct job_plan *plan, bool *fits_out)
{
    struct checkpointing asked = job->train.gradient_checkpointing;
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SQRT, CHECKPOINTING_FULL};
    struct job_choice choice = {.checkpointing = asked, .B = B, .A = A};
    if (asked.mode != CHECKPOINTING_AUTO)
        return try_choice(job, &choice, limits, plan, fits_out);
    bool recompute = job->offload.activations != OFFLOAD_NONE;
    for (size_t i = recompute; i < sizeof modes / sizeof modes[0]; i++) {
        choice.checkpointing = (struct checkpointing){.mode = modes[i]};
        ZD_TRY(try_accumulations(job, &choice, limits, plan, fits_out));
        if (*fits_out)
            return ZD_OK;
    }
    for (size_t i = 1; i < sizeof modes / sizeof modes[0]; i++) {
        if (!can_spill(job, limits))
            break;
        choice.checkpointing = (struct checkpointing){.mode = modes[i]};
        ZD_TRY(try_spills(job, &choice, limits, plan, fits_out));
        if (*fits_out)
            return ZD_OK;
    }
    return ZD_OK;
}

enum zd_status plan_fit(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    struct limits limits = limits_of(job, local_size);
    int B = plan->per_device, A = plan->accumulation;
    bool fit = false;

    for (;;) {
        ZD_TRY(try_modes(job, B, A, &limits, plan, &fit));
        if (fit || !job->train.auto_find_batch_size || B % 2)
            break;
        B /= 2; /* the same samples in more, smaller micro-batches */
        A *= 2;
    }
    return fit ? ZD_OK : refuse(job, plan, &limits);
}
