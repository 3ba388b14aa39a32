/* suggest.c - a job that does not fit: what is short, and which changes of
 * the job file would make it fit. */
#include "base/text_buffer.h"
#include "train/plan/candidate.h"

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

struct fitting {
    struct job_choice choice; /* trying overwrites the plan's */
    uint64_t device, host, disk;
};

/* Micro-batches of a step that are worth a suggestion: nobody waits for more,
 * and at stage 3 each is planned move by move. */
enum { ACCUMULATION_MAX = 4096 };

/* With other micro-batches, the largest that fits. */
static bool candidate_fits(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_candidate *candidate,
        const struct plan_limits *limits, struct fitting *fitting)
{
    struct job_choice *choice = &fitting->choice;
    bool other = candidate->option[CHOOSE_BATCH] == BATCH_OTHER;
    int samples = choice->B * choice->A, last = choice->B;
    const struct train_job changed = candidate_job(job, candidate);
    if (candidate->option[CHOOSE_MODE])
        choice->checkpointing = candidate_mode(candidate);
    for (int B = other ? last - 1 : last; B > 0; B--) {
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
        if (!other)
            return false;
    }
    return false;
}

/* One line, to be put behind a command that takes the job. False when there is
 * no room left for it. */
static bool add_candidate(
        struct text_buffer *text, const struct train_job *job,
        const struct plan_candidate *candidate, const struct fitting *fitting)
{
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    char device[32], host[32], disk[32], words[600];
    struct text_buffer line = {.out = words, .bytes = sizeof words};
    const char *folder = job->offload.nvme_path;
    human(device, sizeof device, fitting->device);
    human(host, sizeof host, fitting->host);
    human(disk, sizeof disk, fitting->disk);
    int count = candidate_settings(job, candidate, &fitting->choice, settings);
    settings_print(settings, count, &line);
    text_buffer_add(&line, "   (device %s, host %s", device, host);
    if (fitting->disk)
        text_buffer_add(
                &line, ", %s free in %.60s", disk,
                folder && *folder ? folder : "FOLDER");
    if (text->used + line.used + 4 > text->bytes)
        return false;
    text_buffer_add(text, "\n%s)", words);
    return true;
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
            .A = plan->accumulation,
            .moves_most = PLAN_MOVES_MOST};
    const struct plan_space space = plan_space_refusal(job);
    struct train_job settled = *job; /* what "auto" has chosen is chosen */
    struct plan_candidate found[LINES];
    int count = 0;
    settled.train.gradient_checkpointing = now.checkpointing;
    for (int cost = 1; cost <= COST_MAX; cost++) {
        struct plan_candidate candidate = {{0}};
        while (count < LINES && candidate_next(&space, &candidate)) {
            struct fitting fitting = {.choice = now};
            bool skip = candidate_cost(&candidate) != cost ||
                        (candidate.option[CHOOSE_BATCH] && now.B == 1) ||
                        !candidate_is_sound(&settled, plan->world, &candidate);
            for (int k = 0; k < count; k++)
                skip = skip || candidate_holds(&candidate, &found[k]);
            if (skip ||
                !candidate_fits(&settled, plan, &candidate, limits, &fitting))
                continue;
            if (!count)
                text_buffer_add(
                        text, "\nany one of these, on the command line or in "
                              "the file:");
            found[count++] = candidate;
            if (!add_candidate(text, job, &candidate, &fitting))
                return;
        }
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
