/* calibrate_updates.c - measures the bytes per second of each kind of update in
 * memory far larger than the caches: with states on the device, and in an
 * offload engine with a run's workers and chunks. Bytes per element are counted
 * as in the plan (cost.c). */
#include "train/plan/calibrate.h"

#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "offload/offload.h"
#include "optim/device.h"
#include "optim/lanes.h"

#include <math.h>
#include <stdlib.h>

enum zd_status bench_time(struct bench *b, bench_fn *run, double *seconds_out)
{
    double all = 0, runs = 0;
    int times = 1;
    ZD_TRY(run(b)); /* warm-up */
    ZD_TRY(device_finish());
    do {
        double began = clock_seconds();
        for (int i = 0; i < times; i++, b->rounds++)
            ZD_TRY(run(b));
        ZD_TRY(device_finish());
        double took = clock_seconds() - began;
        all += took;
        runs += times;
        if (took < b->share / 16 && times < 1 << 16)
            times *= 2;
    } while (all < b->share);
    *seconds_out = fmax(all / runs, 1e-9);
    return ZD_OK;
}

enum {
    SEGMENTS = 8,
    LEAST_BYTES = 1 << 20,
    MOST_BYTES = 1 << 30,
    BYTES_A_SECOND = 128 << 20
};

/* Shared by all measurements of a kind. */
struct updates {
    struct optim_options optim;
    size_t count; /* elements; segments are multiples of 256 */
    double share; /* seconds */
    int threads, first_cpu;
};

static struct updates updates_of(int kind, size_t bytes)
{
    static const double widths[] = {12, 8, 6};
    struct updates u = {.optim = optim_options_default()};
    u.optim.state_type = (enum optim_state_type)(kind / 2);
    u.optim.master = kind % 2 ? OPTIM_MASTER_NONE : OPTIM_MASTER_FP32;
    u.count = (size_t)((double)bytes / widths[kind / 2]);
    u.count -= u.count % (SEGMENTS * OPTIM_QBLOCK);
    return u;
}

static struct optim_step step_of(const struct updates *u, int64_t t)
{
    return (struct optim_step){
            .options = &u->optim,
            .learning_rate = 1e-4,
            .t = t,
            .grad_scale = 1};
}

/* Fills gradients in bf16. */
static void fill(uint16_t *grads, size_t count)
{
    enum { PIECE = 4096 };
    float values[PIECE];
    rng_normal(1, 1, 0, PIECE, values);
    for (size_t i = 0; i < count; i++)
        grads[i] = float_to_bf16(1e-3f * values[i % PIECE]);
}

/* --- by the device -------------------------------------------------------- */

struct here {
    const struct updates *updates;
    struct optim_span span;
};

static enum zd_status update(struct bench *b)
{
    const struct here *here = b->ctx;
    struct optim_step step = step_of(here->updates, (int64_t)b->rounds + 1);
    return optim_device()->update(&here->span, &step);
}

static enum zd_status measure_here(const struct updates *u, double *rate_out)
{
    static const struct tensor_blocks none;
    const struct optim_layout layout =
            optim_layout_of(&u->optim, u->count, false, &none);
    const struct optim_record record =
            optim_record_of(&layout, u->count, ARENA_ALIGN);
    bool bare = u->optim.master == OPTIM_MASTER_NONE;
    size_t params = u->count * sizeof(uint16_t), seen = 2 * params;
    size_t masters = bare ? params : u->count * sizeof(float);
    size_t states = record.lane[OPTIM_LANES], bytes = states + masters + seen;
    double seconds = 1;
    void *base;
    ZD_TRY(device_take(bytes, &base));
    char *master = (char *)base + states, *grad = master + masters;
    struct here here = {
            .updates = u,
            .span = {
                    .master = master,
                    .master_type = bare ? DTYPE_BF16 : DTYPE_FP32,
                    .lanes = optim_lanes_in_record(&layout, &record, base),
                    .grad = grad,
                    .grad_type = DTYPE_BF16,
                    .param = bare ? NULL : grad + params,
                    .param_type = DTYPE_BF16,
                    .layout = layout,
                    .count = u->count,
                    .decays = true}};
    struct bench bench = {.share = u->share, .ctx = &here};
    ZD_FREED uint16_t *grads = zd_must(malloc(params));
    fill(grads, u->count);
    enum zd_status status = device_write(grad, grads, params);
    ZD_THEN(status, bench_time(&bench, update, &seconds));
    device_give(base, bytes);
    /* reads the gradient, writes the parameter, reads and writes all else */
    *rate_out = (double)(2 * (states + (bare ? 0 : masters)) + seen) / seconds;
    return status;
}

/* --- by an engine --------------------------------------------------------- */

/* Runs steps of an engine with parameters on the host; all segments get the
 * same gradients. The engine's report has the time of the update. */
static enum zd_status run_engine(
        const struct updates *u, struct offload *offload, const uint16_t *grads,
        double *seconds_out)
{
    double all = 0;
    int steps = 0;
    for (int64_t t = 1; all < u->share || steps < 1; t++) {
        struct optim_step step = step_of(u, t);
        struct exact_sum sum;
        exact_sum_clear(&sum);
        for (int s = 0; s < SEGMENTS; s++)
            ZD_TRY(offload_grads_down(
                    offload, s, grads, (struct token){0}, 0, true));
        ZD_TRY(offload_squares(offload, &sum));
        ZD_TRY(offload_update(offload, &step, NULL));
        ZD_TRY(offload_finish(offload));
        double took = offload_report_take(offload).host_seconds;
        all += t > 1 ? took : 0; /* the first is a warm-up */
        steps += t > 1;
    }
    *seconds_out = all / steps;
    return ZD_OK;
}

static enum zd_status measure_engine(const struct updates *u, double *rate_out)
{
    static const struct tensor_blocks none;
    struct offload_options options = offload_options_default();
    struct offload_extent extents[SEGMENTS];
    size_t counts[SEGMENTS], bytes[OFFLOAD_PARTS];
    struct offload_place place = {
            .worker_threads = u->threads, .first_cpu = u->first_cpu};
    ZD_SCOPED(arena_plan_fini) struct arena_plan plan = {0};
    ZD_SCOPED(arena_release) struct arena arena = {0};
    struct offload *offload = NULL;
    double seconds = 1;
    options.optimizer = options.params = OFFLOAD_CPU;
    for (int s = 0; s < SEGMENTS; s++) {
        counts[s] = u->count / SEGMENTS;
        extents[s] = (struct offload_extent){
                .segment = s,
                .count = counts[s],
                .layout = optim_layout_of(&u->optim, u->count, false, &none),
                .decays = true};
    }
    const struct offload_request request = {
            .options = &options,
            .optim = &u->optim,
            .dtype = DTYPE_BF16,
            .segment_counts = counts,
            .segment_count = SEGMENTS,
            .extents = extents,
            .extent_count = SEGMENTS,
            .params_on_host = true};
    ZD_FREED uint16_t *grads = zd_must(malloc(counts[0] * sizeof *grads));
    fill(grads, counts[0]);
    offload_measure(&request, bytes);
    ZD_TRY(offload_plan_spans(bytes, &plan));
    ZD_TRY(arena_take(&arena, &plan));
    ZD_TRY(offload_create(&request, &arena, &place, &offload));
    enum zd_status status = run_engine(u, offload, grads, &seconds);
    offload_destroy(offload);
    *rate_out = 2.0 * (double)(bytes[OFFLOAD_STATES] + bytes[OFFLOAD_SLOTS]) /
                seconds;
    return status;
}

/* --- every kind ----------------------------------------------------------- */

enum zd_status calibrate_updates(
        struct comm *comm, double seconds, int threads,
        struct plan_machine *machine)
{
    struct device *device = device_current();
    int first = comm_local_rank(comm) * threads;
    bool is_bound = first + threads <= device_affinity_cpus();
    size_t bytes = (size_t)(seconds * BYTES_A_SECOND);
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    bytes = bytes < MOST_BYTES ? bytes : MOST_BYTES;
    for (int kind = 0; kind < PLAN_UPDATES; kind++) {
        struct updates u = updates_of(kind, bytes);
        u.share = seconds / PLAN_UPDATES / 2;
        u.threads = threads;
        u.first_cpu = is_bound ? first : -1;
        ZD_TRY(measure_here(&u, &machine->update[kind]));
        device_use(NULL);
        enum zd_status status = measure_engine(&u, &machine->host[kind]);
        device_use(device);
        ZD_TRY(status);
    }
    return ZD_OK;
}
