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

/* Append the three largest spans to the help. */
static void largest_spans(
        const struct arena_plan *arena, char *out, size_t out_bytes)
{
    const struct arena_span **order =
            calloc((size_t)arena->span_count, sizeof *order);
    size_t used = 0;
    if (!order)
        return;
    for (int i = 0; i < arena->span_count; i++)
        order[i] = &arena->spans[i];
    qsort(order, (size_t)arena->span_count, sizeof *order, by_bytes);
    used += (size_t)snprintf(out, out_bytes, "the largest spans:");
    for (int i = 0; i < arena->span_count && i < 3; i++) {
        char size[32];
        human(size, sizeof size, order[i]->bytes);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s %s %s", i ? "," : "",
                order[i]->name, size);
    }
    free(order);
}

/* A change to the job that might make it fit. */
struct change {
    const char *text;
    bool full;        /* gradient_checkpointing = "full" */
    bool small_batch; /* B = 1, A = A * B */
    bool stage3;
};

static bool change_fits(
        const struct train_job *job, struct job_plan *plan,
        const struct change *change, const struct limits *limits, int B, int A,
        uint64_t *need_out)
{
    struct train_job changed = *job;
    struct checkpointing checkpointing = plan->shape.checkpointing;
    if (change->full)
        checkpointing.mode = CHECKPOINTING_FULL;
    if (change->stage3)
        changed.zero.stage = 3;
    if (change->small_batch) {
        A *= B;
        B = 1;
    }
    if (job_plan_try(&changed, checkpointing, B, A, plan) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    *need_out = plan->arena.bytes[ARENA_DEVICE];
    return fits(plan, limits);
}

/* Lines "train.x = y   n GiB" of the changes that fit, cheapest first. */
static void suggest(
        const struct train_job *job, struct job_plan *plan,
        const struct limits *limits, char *out, size_t out_bytes)
{
    static const struct change changes[] = {
            {"train.gradient_checkpointing = \"full\"", true, false, false},
            {"train.per_device_train_batch_size = 1 (with more accumulation)",
             false, true, false},
            {"zero.stage = 3", false, false, true},
            {"zero.stage = 3 and train.gradient_checkpointing = \"full\"", true,
             false, true},
            {"zero.stage = 3, train.gradient_checkpointing = \"full\" and "
             "train.per_device_train_batch_size = 1",
             true, true, true},
    };
    int B = plan->per_device, A = plan->accumulation, found = 0;
    size_t used = strlen(out);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        uint64_t need;
        char size[32];
        if (found == 3 ||
            (changes[i].stage3 && job->zero.stage == 3 && !changes[i].full) ||
            (changes[i].small_batch && !changes[i].full && B == 1))
            continue;
        if (!change_fits(job, plan, &changes[i], limits, B, A, &need))
            continue;
        human(size, sizeof size, need);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s\n%s   (%s)",
                found ? "" : "\nany one of these fits:", changes[i].text, size);
        found++;
    }
    if (!found)
        snprintf(
                out + used, out_bytes - used,
                "\nno single change fits: more ranks, a shorter "
                "data.cutoff_len or a smaller model are left");
}

static enum zd_status refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct limits *limits)
{
    char need[32], limit[32], help[1000] = "";
    uint64_t device = plan->arena.bytes[ARENA_DEVICE];
    uint64_t host = plan->arena.bytes[ARENA_HOST];
    bool is_device = limits->shared || device > limits->device;
    const char *what = limits->shared ? "memory"
                       : is_device    ? "device memory"
                                      : "host memory";
    uint64_t bytes = limits->shared ? device + host : is_device ? device : host;
    uint64_t bound = is_device ? limits->device : limits->host;

    human(need, sizeof need, bytes);
    human(limit, sizeof limit, bound);
    largest_spans(&plan->arena, help, sizeof help);
    suggest(job, plan, limits, help, sizeof help);
    ZD_FAIL(ZD_ERR_UNFIT, "E0601",
            "does not fit: each rank needs %s of %s (%" PRIu64
            " bytes), the limit is %s (%" PRIu64 " bytes)",
            need, what, bytes, limit, bound);
    zd_fail_help("%s", help);
    return ZD_ERR_UNFIT;
}

/* "auto" takes the first that fits: nothing recomputed, then the mode with the
 * smaller activations of the two that recompute every layer once. */
static enum zd_status try_modes(
        const struct train_job *job, int B, int A, const struct limits *limits,
        struct job_plan *plan, bool *fits_out)
{
    struct checkpointing asked = job->train.gradient_checkpointing;
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SQRT, CHECKPOINTING_FULL};
    if (asked.mode != CHECKPOINTING_AUTO) {
        ZD_TRY(job_plan_try(job, asked, B, A, plan));
        *fits_out = fits(plan, limits);
        return ZD_OK;
    }
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct checkpointing mode = {.mode = modes[i]};
        ZD_TRY(job_plan_try(job, mode, B, A, plan));
        *fits_out = fits(plan, limits);
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
