/* adamw - parameters per second of the AdamW step over one long span.
 *
 *     bench/adamw [millions of parameters] [threads]      default: 64, 2
 *
 * Prints the best of 20 passes for fp32 (28 bytes of memory traffic per
 * parameter: master, m, v read and written, gradient read) and for bf16
 * gradients and parameters (28 as well: 26 + 2). */
#include "optim/optim.h"

#include <omp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Memory as the arena takes it: mapped, on huge pages where the system can. */
static float *floats(size_t count, float value)
{
    size_t bytes = count * sizeof(float);
    float *x =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(x, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++)
        x[i] = value;
    return x;
}

static void measure(
        const char *name, const struct adamw_span *span, int threads)
{
    double best = 1e30;
    struct adamw_step step = {
            .learning_rate = 1e-4,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .grad_scale = 1.0f};
    for (step.t = 1; step.t <= 20; step.t++) {
        double start = now();
        optim_adamw(span, &step);
        double seconds = now() - start;
        if (seconds < best)
            best = seconds;
    }
    printf("%-6s %6.3f Gparam/s  %6.1f GB/s  (%zu parameters, %d threads)\n",
           name, (double)span->count / best * 1e-9,
           28.0 * (double)span->count / best * 1e-9, span->count, threads);
}

int main(int argc, char **argv)
{
    size_t count = (size_t)(argc > 1 ? atol(argv[1]) : 64) * 1000000;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    if (!count || threads < 1) {
        fprintf(stderr, "usage: adamw [millions] [threads]\n");
        return 64;
    }
    omp_set_num_threads(threads);
    float *grad = floats(count, 1e-3f);
    struct adamw_span span = {
            .master = floats(count, 0.5f),
            .m = floats(count, 0.0f),
            .v = floats(count, 0.0f),
            .grad = grad,
            .grad_type = DTYPE_FP32,
            .count = count,
            .decays = true};
    measure("fp32", &span, threads);

    uint16_t *half = (uint16_t *)grad;
    for (size_t i = 0; i < count; i++)
        half[i] = float_to_bf16(1e-3f);
    span.grad_type = DTYPE_BF16;
    span.param = floats((count + 1) / 2, 0.0f);
    span.param_type = DTYPE_BF16;
    measure("bf16", &span, threads);
    return 0;
}
