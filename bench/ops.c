/* ops.c - the time of every operation of a GPT-2 124M step that is no matrix
 * product, and of all of them in a step of B=4 sequences.
 *
 *   ops [threads [repeats]] */
#include "bench/timing.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 4, C = 768, H = 12, V = 50257, LAYERS = 12, CHUNK = 512 };

struct arrays {
    void *x, *y, *z, *dx;                     /* (N, 4C) */
    void *w;                                  /* (4C) */
    float *mean, *rstd, *lse, *sums, *logits; /* logits: (CHUNK, V) */
    void *dlogits, *table, *scratch;
    float *dtable;
    int32_t *ids, *starts;
};

static void *numbers(enum dtype dtype, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    void *out = malloc(count * sizeof *floats);
    uint32_t state = 1;
    if (!floats || !out)
        exit(69);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        floats[i] = (float)(int32_t)state * 0x1p-30f;
    }
    dtype_convert(out, dtype, floats, DTYPE_FP32, count);
    free(floats);
    return out;
}

static void fill(
        struct arrays *a, enum dtype d, const struct attention_shape *s)
{
    size_t N = (size_t)s->B * (size_t)s->T, wide = N * 4 * C;
    *a = (struct arrays){
            numbers(d, wide), numbers(d, wide), numbers(d, wide),
            numbers(d, wide), numbers(d, 4 * C)};
    a->mean = numbers(DTYPE_FP32, N);
    a->rstd = numbers(DTYPE_FP32, N);
    a->lse = numbers(DTYPE_FP32, N * H);
    a->sums = numbers(DTYPE_FP32, 4 * C);
    a->logits = numbers(DTYPE_FP32, (size_t)CHUNK * V);
    a->dlogits = d == DTYPE_FP32 ? a->logits : numbers(d, (size_t)CHUNK * V);
    a->table = numbers(d, (size_t)V * C);
    a->dtable = numbers(DTYPE_FP32, (size_t)V * C);
    a->scratch = malloc(attention_scratch_bytes(s, d, DEVICE_CPU));
    a->ids = malloc(N * sizeof *a->ids);
    a->starts = calloc(N, sizeof *a->starts);
    for (size_t i = 0; i < N; i++)
        a->ids[i] = (int32_t)(i * 7919 % V);
}

static void fini(struct arrays *a)
{
    if (a->dlogits != a->logits)
        free(a->dlogits);
    void *all[] = {a->x,     a->y,      a->z,       a->dx,   a->w,
                   a->mean,  a->rstd,   a->lse,     a->sums, a->logits,
                   a->table, a->dtable, a->scratch, a->ids,  a->starts};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static double show(const char *name, double seconds, double times)
{
    printf("  %-20s %8.3f ms x %3.0f = %8.2f ms\n", name, seconds * 1e3, times,
           seconds * times * 1e3);
    return seconds * times;
}

static void bench(enum dtype dtype, int T, int repeats)
{
    const struct kernels *k;
    struct attention_shape s = {B, T, H, H, C / H, 3 * C, 3 * C, 3 * C, 0.125f};
    struct arrays a;
    int N = B * T;
    size_t bytes = dtype_bytes(dtype), wide = (size_t)N * 4 * C;
    double best, total = 0.0;
    if (kernels_cpu(dtype, &k) != ZD_OK)
        exit(69);
    fill(&a, dtype, &s);
    char *q = a.x, *dq = a.dx;
    char *key = q + C * bytes, *value = key + C * bytes;
    char *dk = dq + C * bytes, *dv = dk + C * bytes;
    printf("%s, B=%d T=%d\n", k->name, B, T);
#define OP(name, times, call)                                                  \
    TIME_BEST(best, repeats, call);                                            \
    total += show(name, best, times);
    OP("attention forward", LAYERS,
       k->attention_forward(
               NULL, a.y, a.lse, q, key, value, a.starts, a.scratch, &s))
    OP("attention backward", LAYERS,
       k->attention_backward(
               NULL, dq, dk, dv, a.z, a.y, a.lse, q, key, value, a.starts,
               a.scratch, &s))
    OP("layernorm forward", 2 * LAYERS + 1,
       k->layernorm_forward(
               NULL, a.y, a.mean, a.rstd, a.x, a.w, a.w, 1e-5f, N, C))
    OP("layernorm backward", 2 * LAYERS + 1,
       k->layernorm_backward(
               NULL, a.dx, a.sums, a.sums + C, a.y, a.z, a.x, a.w, a.mean,
               a.rstd, N, C, true))
    OP("gelu forward", LAYERS, k->gelu_forward(NULL, a.y, a.x, wide))
    OP("gelu backward", LAYERS, k->gelu_backward(NULL, a.dx, a.y, a.x, wide))
    OP("bias gradient 4C", LAYERS,
       k->reduce_rows(NULL, a.sums, a.x, N, 4 * C, true))
    OP("bias gradient 3C", LAYERS,
       k->reduce_rows(NULL, a.sums, a.x, N, 3 * C, true))
    OP("bias gradient C", 2 * LAYERS,
       k->reduce_rows(NULL, a.sums, a.x, N, C, true))
    OP("add", 2 * LAYERS, k->add(NULL, a.y, a.x, a.z, (size_t)N * C))
    OP("embedding forward", 2,
       k->embedding_forward(NULL, a.y, a.ids, a.table, N, C, true))
    OP("embedding backward", 2,
       k->embedding_backward(NULL, a.dtable, a.ids, NULL, a.y, N, C))
    OP("cross entropy", N / (double)CHUNK,
       k->cross_entropy(
               NULL, a.lse, a.dlogits, a.logits, a.ids, 1e-3f, CHUNK, V, V))
#undef OP
    printf("  %-20s %37.2f ms\n", "all of a step", total * 1e3);
    fini(&a);
}

int main(int argc, char **argv)
{
    int repeats = argc > 2 ? atoi(argv[2]) : 5;
    kernels_set_threads(argc > 1 ? atoi(argv[1]) : device_affinity_cpus());
    for (enum dtype d = DTYPE_FP32; d <= DTYPE_FP16; d++)
        for (int T = 256; T <= 1024; T *= 4)
            bench(d, T, repeats);
    return 0;
}
