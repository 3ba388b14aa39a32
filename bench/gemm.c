/* gemm.c - GF/s of every matmul in a step of GPT-2 124M, by this machine's
 * kernel table (fp32, bf16 and blockwise FP8, where K is a multiple of 16) and
 * by the library, with the processor's peak; and the tokens/s that matmuls
 * alone would allow.
 *
 *   gemm [threads [repeats]]        1024 tokens: B=4 T=256, or B=1 T=1024
 *
 * Then the matmuls of one decode step, for 1 to 16 tokens: the rate of reading
 * the matrix in GB/s, next to that of summing its elements with as many
 * threads. */
#include "bench/timing.h"
#include "kernels/kernels.h"
#include "kernels/matmul/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 1024,
    C = 768,
    V = 50257,
    R = 16,
    LAYERS = 12,
    MOST = V * TOKENS
};

struct product {
    const char *name;
    int M, N, K;
    bool trans_a, trans_b, accumulate;
    int per_step; /* times per step; 0: only for comparison */
};

static const struct product products[] = {
        {"qkv forward", TOKENS, 3 * C, C, false, false, false, LAYERS},
        {"attn.proj forward", TOKENS, C, C, false, false, false, LAYERS},
        {"fc forward", TOKENS, 4 * C, C, false, false, false, LAYERS},
        {"mlp.proj forward", TOKENS, C, 4 * C, false, false, false, LAYERS},
        {"qkv dx", TOKENS, C, 3 * C, false, true, false, LAYERS},
        {"attn.proj dx", TOKENS, C, C, false, true, false, LAYERS},
        {"fc dx", TOKENS, C, 4 * C, false, true, false, LAYERS},
        {"mlp.proj dx", TOKENS, 4 * C, C, false, true, false, LAYERS},
        {"qkv dw", C, 3 * C, TOKENS, true, false, true, LAYERS},
        {"attn.proj dw", C, C, TOKENS, true, false, true, LAYERS},
        {"fc dw", C, 4 * C, TOKENS, true, false, true, LAYERS},
        {"mlp.proj dw", 4 * C, C, TOKENS, true, false, true, LAYERS},
        {"head forward, 256", 256, V, C, false, true, false, 0},
        {"head dx, 256", 256, C, V, false, false, false, 0},
        {"head dw, 256", V, C, 256, true, false, true, 0},
        {"head forward, 512", 512, V, C, false, true, false, 2},
        {"head dx, 512", 512, C, V, false, false, false, 2},
        {"head dw, 512", V, C, 512, true, false, true, 2},
        {"head forward, 1024", 1024, V, C, false, true, false, 0},
        {"head dx, 1024", 1024, C, V, false, false, false, 0},
        {"head dw, 1024", V, C, 1024, true, false, true, 0},
        {"adapter, x A", TOKENS, R, C, false, true, false, 0},
        {"adapter, u B", TOKENS, C, R, false, true, true, 0},
        {"adapter, dB", C, R, TOKENS, true, false, true, 0},
        {"adapter, du", TOKENS, R, C, false, false, false, 0},
        {"adapter, dA", R, C, TOKENS, true, false, true, 0},
        {"adapter, dx", TOKENS, C, R, false, false, true, 0},
        {"adapter of fc, x A", TOKENS, R, 4 * C, false, true, false, 0},
        {"adapter of fc, u B", TOKENS, 4 * C, R, false, true, true, 0},
        {"adapter of fc, dB", 4 * C, R, TOKENS, true, false, true, 0},
        {"adapter of fc, du", TOKENS, R, 4 * C, false, false, false, 0},
        {"adapter of fc, dA", R, 4 * C, TOKENS, true, false, true, 0},
        {"adapter of fc, dx", TOKENS, 4 * C, R, false, false, true, 0},
};

struct arrays {
    float *a, *b, *out;
    void *a16, *b16;
};

static struct matmul matmul_of(const struct product *p)
{
    return (struct matmul){
            .M = p->M,
            .N = p->N,
            .K = p->K,
            .a.transposed = p->trans_a,
            .b.transposed = p->trans_b,
            .accumulate = p->accumulate};
}

static double table_time(
        const struct kernels *k, const struct arrays *x,
        const struct product *p, int repeats)
{
    bool narrow = k->dtype == DTYPE_BF16;
    struct matmul m = matmul_of(p);
    m.a.data = narrow ? x->a16 : x->a, m.a.type = k->dtype;
    m.b.data = narrow ? x->b16 : x->b, m.b.type = k->dtype;
    m.out.data = x->out;
    m.out.type = narrow && !p->accumulate ? DTYPE_BF16 : DTYPE_FP32;
    double best;
    TIME_BEST(best, repeats, k->matmul(NULL, &m));
    return best;
}

/* Arbitrary bytes serve as codes, arbitrary floats as scales. */
static double fp8_time(
        const struct kernels *bf16, const struct arrays *x,
        const struct product *p, int repeats)
{
    struct matmul m = {
            .M = p->M,
            .N = p->N,
            .K = p->K,
            .a = {x->a16, DTYPE_E4M3, .scales = x->a, .layout = SCALES_1X128},
            .b = {x->b16, DTYPE_E4M3, true, .scales = x->b,
                  .layout = SCALES_1X128},
            .out = {x->out, p->accumulate ? DTYPE_FP32 : DTYPE_BF16},
            .accumulate = p->accumulate};
    double best = 0;
    if (p->K % FP8_ALIGN == 0)
        TIME_BEST(best, repeats, bf16->matmul(NULL, &m));
    return best;
}

static double library_time(
        const struct arrays *x, const struct product *p, int repeats,
        int threads)
{
    struct matmul m = matmul_of(p);
    m.a.data = x->a, m.b.data = x->b, m.out.data = x->out;
    double best;
    TIME_BEST(best, repeats, library_sgemm(&m, threads));
    return best;
}

#if defined(__x86_64__)
/* Multiply-adds in registers only: 12 chains of 8 floats, one core. */
__attribute__((target("avx2,fma"))) static double core_peak(void)
{
    typedef float v8 __attribute__((vector_size(32)));
    enum { ROUNDS = 20000000 };
    v8 sum[12] = {{0}}, factor = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
    double best;
    TIME_BEST(best, 3, {
        for (int i = 0; i < ROUNDS; i++)
#pragma GCC unroll 12
            for (int j = 0; j < 12; j++)
                sum[j] = sum[j] * factor + factor;
        __asm__ volatile("" : : "m"(sum));
    });
    return 12.0 * 16.0 * ROUNDS / best * 1e-9;
}
#endif

static void fill(struct arrays *x)
{
    x->a = malloc(MOST * sizeof(float));
    x->b = malloc(MOST * sizeof(float));
    x->out = calloc(MOST, sizeof(float));
    x->a16 = malloc(MOST * sizeof(uint16_t));
    x->b16 = malloc(MOST * sizeof(uint16_t));
    if (!x->a || !x->b || !x->out || !x->a16 || !x->b16)
        exit(69);
    uint32_t state = 1;
    for (size_t i = 0; i < MOST; i++) {
        state = state * 1664525u + 1013904223u;
        x->a[i] = (float)(int32_t)state * 0x1p-32f;
        x->b[i] = x->a[i] + 0.25f;
    }
    dtype_convert(x->a16, DTYPE_BF16, x->a, DTYPE_FP32, MOST);
    dtype_convert(x->b16, DTYPE_BF16, x->b, DTYPE_FP32, MOST);
}

/* One pass over the largest matrix. */
static double sum_all(const float *x, int threads)
{
    enum { LANES = 16, COUNT = V * C / LANES };
    typedef float lanes
            __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
    double total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total)
    for (int t = 0; t < threads; t++) {
        int64_t i = (int64_t)COUNT * t / threads;
        int64_t last = (int64_t)COUNT * (t + 1) / threads;
        lanes sum[4] = {{0}};
        for (; i < last; i++)
            sum[i % 4] += *(const lanes *)(x + i * LANES);
        for (int l = 0; l < LANES; l++)
            total += sum[0][l] + sum[1][l] + sum[2][l] + sum[3][l];
    }
    return total;
}

static void print_decode(
        const struct kernels *fp32, const struct kernels *bf16,
        const struct arrays *x, int repeats, int threads)
{
    static const struct product parts[] = {
            {"decode qkv", 1, 3 * C, C, false, false, false, LAYERS},
            {"decode attn.proj", 1, C, C, false, false, false, LAYERS},
            {"decode fc", 1, 4 * C, C, false, false, false, LAYERS},
            {"decode mlp.proj", 1, C, 4 * C, false, false, false, LAYERS},
            {"decode head", 1, V, C, false, true, false, 1},
    };
    static const int rows[] = {1, 2, 3, 4, 6, 8, 12, 16};
    double took;
    volatile double sum;
    TIME_BEST(took, repeats, sum = sum_all(x->b, threads));
    (void)sum;
    printf("%-20s %9s %9s %9s   GB/s; a sum reads %.1f\n", "product, rows",
           "fp32", "bf16", "library", 4e-9 * V * C / took);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            struct product p = parts[i];
            p.M = rows[r];
            double giga = 1e-9 * p.N * p.K;
            printf("%-17s %2d %9.1f %9.1f %9.1f\n", p.name, p.M,
                   4 * giga / table_time(fp32, x, &p, repeats),
                   2 * giga / table_time(bf16, x, &p, repeats),
                   4 * giga / library_time(x, &p, repeats, threads));
        }
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : device_affinity_cpus();
    int repeats = argc > 2 ? atoi(argv[2]) : 5;
    const struct kernels *fp32, *bf16;
    struct arrays x;
    double total[4] = {0};
    kernels_set_threads(threads);
    if (kernels_cpu(DTYPE_FP32, &fp32) != ZD_OK ||
        kernels_cpu(DTYPE_BF16, &bf16) != ZD_OK)
        return 69;
    fill(&x);
    printf("%s\n%s\nlibrary: %s, %d threads\n", fp32->name, bf16->name,
           matmul_library(), threads);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        printf("AVX2 peak: %.1f GF/s a core\n", core_peak());
#endif
    printf("%-20s %9s %9s %9s %9s   GF/s, best of %d\n", "product", "fp32",
           "bf16", "fp8", "library", repeats);
    ZD_EACH(p, products, sizeof products / sizeof products[0]) {
        double gigaflop = 2e-9 * p->M * p->N * p->K;
        double took[4] = {
                table_time(fp32, &x, p, repeats),
                table_time(bf16, &x, p, repeats),
                fp8_time(bf16, &x, p, repeats),
                library_time(&x, p, repeats, threads),
        };
        printf("%-20s", p->name);
        for (int t = 0; t < 4; t++) {
            printf(" %9.1f", took[t] > 0 ? gigaflop / took[t] : 0);
            total[t] += p->per_step * took[t];
        }
        printf("\n");
    }
    printf("%-20s %9.1f %9.1f %9s %9.1f   tokens/s\n", "products of a step",
           TOKENS / total[0], TOKENS / total[1], "", TOKENS / total[3]);
    print_decode(fp32, bf16, &x, repeats, threads);
    return 0;
}
