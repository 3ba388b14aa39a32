/* offload.c - the cost of the offload engine for a step that computes elsewhere
 * (on a GPU; here it sleeps), with both clipping strategies:
 *
 *     bench_offload [million parameters] [threads] [ms of forward, of backward]
 *
 * Steps of both strategies alternate. Prints the median of each, and the time
 * of compute alone, if nothing is clipped and if every step is (then an early
 * update is undone). */
#include "offload/offload.h"
#include "bench/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 16, STEPS = 9 };

struct engine {
    struct offload_options options;
    struct optim_options optim;
    struct offload_extent extents[SEGMENTS];
    size_t counts[SEGMENTS];
    struct offload_request request;
    struct arena_plan plan;
    struct arena arena;
    struct stream *down, *up;
    struct offload *offload;
    int64_t t;
};

static struct {
    size_t count; /* elements per segment */
    int threads;
    double forward, backward; /* seconds */
    uint16_t *grads, *params; /* the device */
} bench;

static void must(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    exit(1);
}

static void make(struct engine *e, enum offload_clipping clipping)
{
    size_t bytes[OFFLOAD_PARTS];
    memset(e, 0, sizeof *e);
    e->options = offload_options_default();
    e->options.optimizer = OFFLOAD_CPU;
    e->options.clipping = clipping;
    e->optim = optim_options_default();
    e->optim.state_type = OPTIM_STATE_8BIT;
    for (int s = 0; s < SEGMENTS; s++) {
        e->counts[s] = bench.count;
        e->extents[s] = (struct offload_extent){
                .segment = s,
                .count = bench.count,
                .layout = {{OPTIM_8BIT, OPTIM_8BIT}},
                .decays = true,
        };
    }
    e->request = (struct offload_request){
            .options = &e->options,
            .optim = &e->optim,
            .dtype = DTYPE_BF16,
            .segment_counts = e->counts,
            .segment_count = SEGMENTS,
            .extents = e->extents,
            .extent_count = SEGMENTS,
    };
    arena_plan_init(&e->plan);
    must(stream_create("down", STREAM_THREAD, &e->down));
    must(stream_create("up", STREAM_THREAD, &e->up));
    e->request.undo_first = offload_undo_first(&e->request);
    offload_measure(&e->request, bytes);
    must(offload_plan_spans(bytes, &e->plan));
    must(arena_take(&e->arena, &e->plan));
    struct offload_place place = {
            .down = e->down,
            .up = e->up,
            .worker_threads = bench.threads,
            .first_cpu = -1,
    };
    must(offload_create(&e->request, &e->arena, &place, &e->offload));
    for (int s = 0; s < SEGMENTS; s++)
        offload_params_to(
                e->offload, s, bench.params + (size_t)s * bench.count);
}

static void end(struct engine *e)
{
    offload_destroy(e->offload);
    stream_destroy(e->down);
    stream_destroy(e->up);
    arena_release(&e->arena);
    arena_plan_fini(&e->plan);
}

static void compute(double seconds)
{
    struct timespec t = {
            (time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

/* Backward, update, and the next forward. */
static double run_step(
        struct engine *e, bool is_clipped, struct offload_report *report)
{
    struct exact_sum sum;
    struct optim_step step = {
            .options = &e->optim,
            .learning_rate = 1e-4,
            .t = ++e->t,
            .grad_scale = 1,
    };
    double begin = clock_seconds();
    offload_step_begin(e->offload, &step);
    for (int s = SEGMENTS - 1; s >= 0; s--) {
        compute(bench.backward / SEGMENTS);
        must(offload_grads_down(
                e->offload, s, bench.grads + (size_t)s * bench.count,
                (struct token){0}, 0, true));
    }
    exact_sum_clear(&sum);
    must(offload_squares(e->offload, &sum));
    if (is_clipped)
        step.grad_scale = 0.5f;
    must(offload_update(e->offload, &step, NULL));
    for (int s = 0; s < SEGMENTS; s++) {
        must(offload_params_wait(e->offload, s));
        compute(bench.forward / SEGMENTS);
    }
    double took = clock_seconds() - begin;
    *report = offload_report_take(e->offload);
    return took;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(struct engine engines[2], bool is_clipped)
{
    static const char *const names[] = {"wait", "undo"};
    double took[2][STEPS];
    struct offload_report report[2];
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < 2; i++)
            took[i][step] = run_step(&engines[i], is_clipped, &report[i]);
    for (int i = 0; i < 2; i++) {
        qsort(took[i], STEPS, sizeof took[i][0], by_value);
        printf("%s  %s  %7.1f ms   compute alone %.1f   workers busy %.1f   "
               "waited for gradients %.1f, update %.1f, disk %.1f, "
               "parameters %.1f\n",
               is_clipped ? "clipped    " : "not clipped", names[i],
               1e3 * took[i][STEPS / 2], 1e3 * (bench.forward + bench.backward),
               1e3 * report[i].worker_seconds,
               1e3 * report[i].wait_down_seconds,
               1e3 * report[i].wait_host_seconds,
               1e3 * report[i].wait_disk_seconds,
               1e3 * report[i].wait_up_seconds);
    }
}

int main(int argc, char **argv)
{
    double millions = argc > 1 ? atof(argv[1]) : 64;
    struct engine engines[2];
    bench.threads = argc > 2 ? atoi(argv[2]) : 2;
    bench.forward = 1e-3 * (argc > 3 ? atof(argv[3]) : 100);
    bench.backward = 1e-3 * (argc > 4 ? atof(argv[4]) : 200);
    bench.count = (size_t)(millions * 1e6 / SEGMENTS) / 256 * 256;
    size_t bytes = SEGMENTS * bench.count * sizeof *bench.grads;
    bench.grads = malloc(bytes);
    bench.params = malloc(bytes);
    memset(bench.params, 0, bytes);
    for (size_t i = 0; i < SEGMENTS * bench.count; i++)
        bench.grads[i] = float_to_bf16(
                1e-3f * (float)((int)(i * 2654435761u >> 20 & 255) - 128));
    make(&engines[0], OFFLOAD_CLIP_WAIT);
    make(&engines[1], OFFLOAD_CLIP_UNDO);
    printf("%.0f M parameters, 8-bit AdamW, bf16, %d threads\n", millions,
           bench.threads);
    compare(engines, false);
    compare(engines, true);
    end(&engines[0]);
    end(&engines[1]);
    free(bench.grads);
    free(bench.params);
    return 0;
}
