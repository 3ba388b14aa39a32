/* host_step - the cost of an optimizer step on the host.
 *
 *   bench/host_step [--millions N] [--threads N] [--repeat N] [--isa NAME]
 *                   [--serve] [MODE ..]      default: 256, 2, 7, the best, all
 *
 * Modes are run in turn, --repeat times, and each prints its median and spread.
 * Bytes per parameter count each necessary read and write of an array; an
 * in-place update is one read and one write.
 *
 *   copy, triad, update       memory bandwidth with 2 fp32 arrays (a = b), 3
 *                             (a = b + s c), 1 (a = s a, as in a step); does
 *                             not count the hidden read of a store to memory
 *                             that was not read first
 *   fp32, 8bit, bf16          AdamW with such states and bf16 gradients, which
 *                             the new bf16 weights overwrite
 *   fp32_apart, 8bit_apart    with separate memory for the new bf16 weights
 *   fp32_grad32, 8bit_grad32  fp32 gradients and no copy of the weights
 *   norm                      the squared norm of bf16 gradients
 *   pass_fp32, pass_8bit      bf16 gradients -> norm -> clip -> step -> bf16
 *                             weights
 *
 * --serve reads names of modes, a line each, runs each once and answers with
 * seconds: bench/peers/host_step.py races other optimizers against it. */
#include "base/number/rng.h"
#include "optim/simd.h"
#include "tests/optim/choose_isa.h"
#include "timing.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct arrays {
    size_t count;
    float *master;
    void *state[OPTIM_8BIT + 1][OPTIM_LANES]; /* per format */
    float *scale[OPTIM_LANES];
    uint16_t *grad, *slot; /* bf16; slot: also the new weights */
    float *grad32;         /* the memory of both, read as fp32 */
    struct optim_options options;
    int64_t t;
};

/* Each array begins some pages further into its mapping than the previous one:
 * exactly 1 GiB apart they would conflict in cache sets and memory banks (66 %
 * instead of 94 % of the bandwidth, fp32 with fp32 gradients). */
static void *map(size_t bytes)
{
    static size_t stagger;
    stagger += 5 * 4096 + 1024;
    char *at =
            mmap(NULL, bytes + stagger, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(at, bytes + stagger, MADV_HUGEPAGE);
    return at + stagger;
}

/* Realistic values: magnitudes of gradients differ from row to row. */
static void fill(struct arrays *a)
{
    enum { ROW = 4096 };
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < a->count; at += ROW) {
        float x[ROW];
        size_t n = a->count - at < ROW ? a->count - at : ROW;
        rng_normal(1, 1, at, n, x);
        float size = 1e-4f * expf(2 * x[0]);
        for (size_t i = 0; i < n; i++) {
            a->master[at + i] = 0.02f * x[i];
            a->grad[at + i] = float_to_bf16(size * x[i]);
            a->slot[at + i] = a->grad[at + i];
        }
    }
    for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++)
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            optim_lane_clear(
                    (enum optim_lane)lane, (enum optim_format)format,
                    a->state[format][lane], a->scale[lane], a->count);
}

static struct arrays take(size_t count)
{
    struct arrays a = {
            .count = count,
            .options = optim_options_default(),
            .master = map(4 * count),
            .grad = map(4 * count)};
    a.slot = a.grad + count;
    a.grad32 = (float *)(void *)a.grad;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++)
            a.state[format][lane] =
                    map(optim_lane_bytes((enum optim_format)format, count));
        a.scale[lane] =
                map(optim_scale_count(OPTIM_8BIT, count) * sizeof(float));
    }
    fill(&a);
    return a;
}

/* --- modes ---------------------------------------------------------------- */

struct mode {
    const char *name;
    double bytes; /* per parameter, or per element of an array */
    void (*run)(struct arrays *a, const struct mode *mode);
    enum optim_format states;
    bool is_in_place, is_grad32, has_norm;
};

static void run_copy(struct arrays *a, const struct mode *mode)
{
    float *restrict x = a->state[OPTIM_FP32][0];
    const float *restrict y = a->state[OPTIM_FP32][1];
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < a->count; i++)
        x[i] = y[i];
}

static void run_triad(struct arrays *a, const struct mode *mode)
{
    float *restrict x = a->state[OPTIM_FP32][0];
    const float *restrict y = a->state[OPTIM_FP32][1], *restrict z = a->master;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < a->count; i++)
        x[i] = y[i] + 0.0f * z[i];
}

static void run_update(struct arrays *a, const struct mode *mode)
{
    float *restrict x = a->master;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < a->count; i++)
        x[i] = 0.9999f * x[i];
}

static double norm_of(struct arrays *a)
{
    struct exact_sum sum;
    exact_sum_clear(&sum);
    optim_add_squares_threads(&sum, a->slot, DTYPE_BF16, a->count);
    return sqrt(exact_sum_value(&sum));
}

static void run_norm(struct arrays *a, const struct mode *mode)
{
    if (!isfinite(norm_of(a)))
        exit(1);
}

static struct optim_span span_of(struct arrays *a, const struct mode *mode)
{
    struct optim_span span = {
            .master = a->master,
            .master_type = DTYPE_FP32,
            .grad = mode->is_in_place ? a->slot : a->grad,
            .grad_type = DTYPE_BF16,
            .param = a->slot,
            .param_type = DTYPE_BF16,
            .layout = {{mode->states, mode->states}},
            .count = a->count,
            .decays = true};
    if (mode->is_grad32) {
        span.grad = a->grad32;
        span.grad_type = DTYPE_FP32;
        span.param = NULL;
    }
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        span.lanes.state[lane] = a->state[mode->states][lane];
        span.lanes.scale[lane] =
                mode->states == OPTIM_8BIT ? a->scale[lane] : NULL;
    }
    return span;
}

static void run_step(struct arrays *a, const struct mode *mode)
{
    float clip = 1;
    if (mode->has_norm)
        clip = (float)fmin(1, 1 / (norm_of(a) + 1e-6));
    struct optim_span span = span_of(a, mode);
    struct optim_step step = {
            .options = &a->options,
            .learning_rate = 1e-5,
            .t = ++a->t,
            .grad_scale = clip};
    optim_update_threads(&span, &step);
}

static const struct mode modes[] = {
        {"copy", 8, run_copy},
        {"triad", 12, run_triad},
        {"update", 8, run_update},
        {"fp32", 28, run_step, OPTIM_FP32, .is_in_place = true},
        {"8bit", 16.0625, run_step, OPTIM_8BIT, .is_in_place = true},
        {"bf16", 20, run_step, OPTIM_BF16, .is_in_place = true},
        {"fp32_apart", 28, run_step, OPTIM_FP32},
        {"8bit_apart", 16.0625, run_step, OPTIM_8BIT},
        {"fp32_grad32", 28, run_step, OPTIM_FP32, .is_grad32 = true},
        {"8bit_grad32", 16.0625, run_step, OPTIM_8BIT, .is_grad32 = true},
        {"norm", 2, run_norm},
        {"pass_fp32", 30, run_step, OPTIM_FP32, .is_in_place = true,
         .has_norm = true},
        {"pass_8bit", 18.0625, run_step, OPTIM_8BIT, .is_in_place = true,
         .has_norm = true},
};
enum { MODES = sizeof modes / sizeof *modes };

static const struct mode *mode_of(const char *name)
{
    for (size_t i = 0; i < MODES; i++)
        if (!strcmp(modes[i].name, name))
            return &modes[i];
    return NULL;
}

/* Seconds of one run. First restores what an in-place step has overwritten. */
static double seconds_of(struct arrays *a, const struct mode *mode)
{
    if (mode->is_in_place)
        memcpy(a->slot, a->grad, a->count * sizeof *a->slot);
    double start = clock_seconds();
    mode->run(a, mode);
    return clock_seconds() - start;
}

/* --- in turn -------------------------------------------------------------- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest bandwidth of copy, triad and update is the reference for all. */
static void print_medians(
        const struct arrays *a, const struct mode *const *chosen, int count,
        double *times, int repeat)
{
    double bandwidth = 0;
    printf("%-12s %9s %19s %8s %9s\n", "mode", "G/s", "(slowest..fastest)",
           "GB/s", "of bound");
    for (int i = 0; i < count; i++) {
        double *t = times + i * repeat;
        qsort(t, (size_t)repeat, sizeof *t, rising);
        double n = (double)a->count * 1e-9;
        double rate = n / t[repeat / 2] * chosen[i]->bytes;
        if (chosen[i]->run == run_copy || chosen[i]->run == run_triad ||
            chosen[i]->run == run_update)
            bandwidth = fmax(bandwidth, rate);
        printf("%-12s %9.3f %9.3f..%-8.3f %8.1f", chosen[i]->name,
               n / t[repeat / 2], n / t[repeat - 1], n / t[0], rate);
        if (bandwidth > 0)
            printf(" %8.0f%%", 100 * rate / bandwidth);
        printf("\n");
    }
}

static void run_in_turn(
        struct arrays *a, const struct mode *const *chosen, int count,
        int repeat)
{
    double *times = malloc((size_t)(count * repeat) * sizeof *times);
    for (int i = 0; i < count; i++) /* make states nonzero */
        seconds_of(a, chosen[i]);
    for (int k = 0; k < repeat; k++)
        for (int i = 0; i < count; i++)
            times[i * repeat + k] = seconds_of(a, chosen[i]);
    print_medians(a, chosen, count, times, repeat);
    free(times);
}

static void serve(struct arrays *a)
{
    char name[32];
    while (scanf("%31s", name) == 1) {
        const struct mode *mode = mode_of(name);
        printf("%.9f\n", mode ? seconds_of(a, mode) : -1.0);
        fflush(stdout);
    }
}

/* --- command line --------------------------------------------------------- */

static void usage(void)
{
    fprintf(stderr,
            "usage: host_step [--millions N] [--threads N] [--repeat N] "
            "[--isa NAME] [--serve] [MODE ..]\n");
    exit(64);
}

static enum isa isa_named(const char *name)
{
    for (int isa = 0; isa < ISA_COUNT; isa++)
        if (!strcmp(isa_name((enum isa)isa), name) && isa_runs((enum isa)isa))
            return (enum isa)isa;
    fprintf(stderr, "this machine runs:");
    for (int isa = 0; isa < ISA_COUNT; isa++)
        if (isa_runs((enum isa)isa))
            fprintf(stderr, " '%s'", isa_name((enum isa)isa));
    fprintf(stderr, "\n");
    exit(64);
}

int main(int argc, char **argv)
{
    long millions = 256, threads = 2, repeat = 7;
    bool serves = false;
    const struct mode *chosen[64];
    int count = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--millions"))
            millions = atol(value), i++;
        else if (!strcmp(argv[i], "--threads"))
            threads = atol(value), i++;
        else if (!strcmp(argv[i], "--repeat"))
            repeat = atol(value), i++;
        else if (!strcmp(argv[i], "--isa"))
            chosen_isa = isa_named(value), i++;
        else if (!strcmp(argv[i], "--serve"))
            serves = true;
        else if (count < 64 && mode_of(argv[i]))
            chosen[count++] = mode_of(argv[i]);
        else
            usage();
    }
    if (millions < 1 || threads < 1 || repeat < 1)
        usage();
    if (!count)
        for (; count < MODES; count++)
            chosen[count] = &modes[count];
    omp_set_num_threads((int)threads);
    struct arrays a = take((size_t)millions << 20);
    if (serves) {
        serve(&a);
        return 0;
    }
    printf("%zu parameters, %ld threads, %s, median of %ld\n", a.count, threads,
           isa_name(isa_best()), repeat);
    run_in_turn(&a, chosen, count, (int)repeat);
    return 0;
}
