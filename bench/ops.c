/* ops.c - the time of every operation of a GPT-2 124M step other than matmuls,
 * and of all of them in a step of B=4 sequences.
 *
 *   ops [threads [repeats [type [operation]]]]     ops 2 20 bf16 gelu
 *
 * First with what the call before left in the caches, then with nothing of it.
 * A step lies between: what the operation before has just made is in a cache
 * where that is large enough, what forward kept for backward is not.
 *
 * Roof: the bytes that the operation must read and write, at the rate at which
 * the same threads copy an array of N x 4C elements in the same state; for
 * cross entropy a copy of as many bytes. For attention it is GF/s over pairs
 * that see each other, 4 D in forward and 10 D in backward; also with windows
 * shorter than T, and with a soft cap. */
#include "bench/timing.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 4, C = 768, H = 12, V = 50257, LAYERS = 12, CHUNK = 512 };
enum { COPY_PIECE = 8192, LARGEST_CACHE = 256 << 20 };

struct arrays {
    void *x, *y, *z, *dx;                     /* (N, 4C) */
    void *w;                                  /* (4C) */
    float *mean, *rstd, *lse, *sums, *logits; /* logits: (CHUNK, V) */
    void *dlogits, *table, *scratch;
    float *dtable;
    int32_t *ids, *starts;
};

/* As an arena's spans. */
static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        exit(69);
    return p;
}

static void *numbers(enum dtype dtype, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    void *out = aligned(count * sizeof *floats);
    uint32_t state = 1;
    if (!floats)
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
    a->scratch = aligned(attention_scratch_bytes(s, d, DEVICE_CPU));
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

/* Copies in pieces that stay in the first-level cache. */
static void copy(void *out, const void *in, size_t bytes)
{
#pragma omp parallel for num_threads(kernels_threads())
    for (size_t at = 0; at < bytes; at += COPY_PIECE)
        memcpy((char *)out + at, (const char *)in + at, COPY_PIECE);
}

/* Reads so much that nothing else is left in a cache. */
static void evict(void)
{
    enum { COUNT = LARGEST_CACHE / sizeof(uint64_t), LINE = 8 };
    static uint64_t *all;
    uint64_t sum = 0;
    if (!all)
        all = memset(aligned(LARGEST_CACHE), 1, LARGEST_CACHE);
#pragma omp parallel for num_threads(kernels_threads()) reduction(+ : sum)
    for (size_t i = 0; i < COUNT; i += LINE)
        sum += all[i];
    all[0] = sum | 1;
}

/* Seconds, or GB/s. */
struct both {
    double cached, memory;
};

#define TIME_BOTH(best, repeats, call)                                         \
    do {                                                                       \
        TIME_BEST((best).cached, repeats, call);                               \
        TIME_BEST_AFTER((best).memory, repeats, evict(), call);                \
    } while (0)

struct shown {
    struct both copied; /* GB/s, what is read and what is written */
    struct both total;
};

static struct both rates(double gigabytes, struct both seconds)
{
    return (struct both){
            gigabytes / seconds.cached, gigabytes / seconds.memory};
}

/* `work` is GB, or of attention GF. */
static void show(
        struct shown *shown, const char *name, struct both seconds,
        double times, double work, bool copies)
{
    struct both rate = rates(work, seconds);
    printf("  %-24s %4.0f x %8.3f ms %5.1f %s", name, times,
           seconds.cached * 1e3, rate.cached, copies ? "GB/s" : "GF/s");
    if (copies)
        printf(" %4.2f", rate.cached / shown->copied.cached);
    printf("%s %8.3f ms %5.1f", copies ? "" : "     ", seconds.memory * 1e3,
           rate.memory);
    if (copies)
        printf(" %4.2f", rate.memory / shown->copied.memory);
    printf("\n");
    shown->total.cached += seconds.cached * times;
    shown->total.memory += seconds.memory * times;
}

/* Pairs of tokens that see each other, in samples of T. */
static double pairs_of(int T, int window)
{
    double pairs = 0;
    for (int t = 0; t < T; t++)
        pairs += window && window <= t ? window : t + 1;
    return pairs;
}

/* Casts (N, 4C) and its transpose. */
static enum zd_status cast(
        const struct kernels *k, const struct arrays *a, enum scale_layout by,
        int N)
{
    return k->fp8_cast(
            NULL, &(struct fp8_cast){
                          .x = a->x,
                          .from = k->dtype,
                          .rows = N,
                          .columns = 4 * C,
                          .stride = 4 * C,
                          .to = DTYPE_E4M3,
                          .layout = by,
                          .amax = by == SCALES_TENSOR ? a->lse : NULL,
                          .codes = a->y,
                          .scales = a->dx,
                          .transposed = a->z,
                          .transposed_scales = a->logits,
                          .padded = fp8_padded(N)});
}

static void bench(enum dtype dtype, int T, int repeats, const char *only)
{
    const struct kernels *k;
    struct attention_shape s = {B, T, H, H, C / H, 3 * C, 3 * C, 3 * C, 0.125f};
    struct arrays a;
    int N = B * T;
    size_t bytes = dtype_bytes(dtype), wide = (size_t)N * 4 * C;
    struct shown shown = {0};
    struct both best;
    double row = 1e-9 * (double)bytes * N * C; /* GB of N x C elements */
    double pairs, scores = 1e-9 * B * H * (C / H);
    bool copies = false;
    if (kernels_cpu(dtype, &k) != ZD_OK)
        exit(69);
    fill(&a, dtype, &s);
    TIME_BOTH(best, repeats, copy(a.y, a.x, wide * bytes));
    shown.copied = rates(2e-9 * (double)(wide * bytes), best);
    char *q = a.x, *dq = a.dx;
    char *key = q + C * bytes, *value = key + C * bytes;
    char *dk = dq + C * bytes, *dv = dk + C * bytes;
    printf("%s, B=%d T=%d, a copy: %.1f GB/s, from memory %.1f\n"
           "  %-24s a step; in cache, of the copy; from memory, of that copy\n",
           k->name, B, T, shown.copied.cached, shown.copied.memory, "");
#define OP(name, times, work, call)                                            \
    if (!only || strstr(name, only)) {                                         \
        TIME_BOTH(best, repeats, call);                                        \
        show(&shown, name, best, times, work, copies);                         \
    }
    static const struct {
        const char *name;
        int part; /* the window is T / part */
        float softcap;
    } seen[] = {
            {"", 0, 0},
            {", T/2", 2, 0},
            {", T/4", 4, 0},
            {", T/8", 8, 0},
            {", T, capped", 0, 50}};
    for (int i = 0; i < 5; i++) {
        char name[64];
        s.window = seen[i].part ? T / seen[i].part : 0;
        s.softcap = seen[i].softcap;
        pairs = scores * pairs_of(T, s.window);
        struct attention forward = {&s,       q,         key, value,
                                    a.starts, a.scratch, a.y, a.lse};
        struct attention backward = forward;
        backward.dout = a.z;
        backward.dq = dq, backward.dk = dk, backward.dv = dv;
        snprintf(name, sizeof name, "attention forward%s", seen[i].name);
        OP(name, i ? 0 : LAYERS, 4 * pairs,
           k->attention_forward(NULL, &forward))
        snprintf(name, sizeof name, "attention backward%s", seen[i].name);
        OP(name, i ? 0 : LAYERS, 10 * pairs,
           k->attention_backward(NULL, &backward))
    }
    copies = true;
    OP("layernorm forward", 2 * LAYERS + 1, 2 * row,
       k->norm_forward(
               NULL, &(struct norm_forward){
                             .out = a.y,
                             .mean = a.mean,
                             .rstd = a.rstd,
                             .x = a.x,
                             .weight = a.w,
                             .bias = a.w,
                             .eps = 1e-5f,
                             .N = N,
                             .C = C}))
    OP("layernorm backward", 2 * LAYERS + 1, 4 * row,
       k->norm_backward(
               NULL, &(struct norm_backward){
                             .dx = a.dx,
                             .dweight = a.sums,
                             .dbias = a.sums + C,
                             .dout = a.y,
                             .dresidual = a.z,
                             .x = a.x,
                             .weight = a.w,
                             .mean = a.mean,
                             .rstd = a.rstd,
                             .N = N,
                             .C = C,
                             .accumulate = true}))
    OP("gelu forward", LAYERS, 8 * row, k->gelu_forward(NULL, a.y, a.x, wide))
    OP("gelu backward", LAYERS, 12 * row,
       k->gelu_backward(NULL, a.dx, a.y, a.x, wide))
    OP("swiglu forward", 0, 12 * row,
       k->gated_forward(NULL, GATE_SILU, a.y, a.x, a.z, N, 4 * C, 4 * C))
    OP("swiglu backward", 0, 20 * row,
       k->gated_backward(
               NULL, GATE_SILU, a.dx, a.y, a.y, a.x, a.z, N, 4 * C, 4 * C))
    OP("geglu forward", 0, 12 * row,
       k->gated_forward(NULL, GATE_GELU, a.y, a.x, a.z, N, 4 * C, 4 * C))
    OP("geglu backward", 0, 20 * row,
       k->gated_backward(
               NULL, GATE_GELU, a.dx, a.y, a.y, a.x, a.z, N, 4 * C, 4 * C))
    OP("bias gradient 4C", LAYERS, 4 * row,
       k->reduce_rows(NULL, a.sums, a.x, N, 4 * C, true))
    OP("bias gradient 3C", LAYERS, 3 * row,
       k->reduce_rows(NULL, a.sums, a.x, N, 3 * C, true))
    OP("bias gradient C", 2 * LAYERS, row,
       k->reduce_rows(NULL, a.sums, a.x, N, C, true))
    OP("add", 2 * LAYERS, 3 * row, k->add(NULL, a.y, a.x, a.z, (size_t)N * C))
    OP("embedding forward", 2, 2 * row,
       k->embedding_forward(NULL, a.y, a.ids, a.table, N, C, true))
    OP("embedding backward", 2, row * (1.0 + 8.0 / (double)bytes),
       k->embedding_backward(NULL, a.dtable, a.ids, NULL, a.y, N, C))
    double all = (4.0 + (double)bytes) * CHUNK * V;
    size_t half = (size_t)all / 2 / COPY_PIECE * COPY_PIECE;
    struct both wide_copied = shown.copied;
    TIME_BOTH(best, repeats, copy(a.dtable, a.logits, half));
    shown.copied = rates(2e-9 * (double)half, best);
    struct loss_rows rows = {a.lse, a.dlogits, a.logits, a.ids,
                             1e-3f, CHUNK,     V,        {0, V, V}};
    OP("cross entropy", N / (double)CHUNK, 1e-9 * all,
       k->cross_entropy(NULL, &rows))
    shown.copied = wide_copied;
    double codes = 8 * row / (double)bytes;
    OP("fp8 amax", 0, 4 * row,
       k->fp8_amax(NULL, a.lse, a.x, dtype, N, 4 * C, 4 * C, false))
    OP("fp8 cast, tensor", 0, 4 * row + codes, cast(k, &a, SCALES_TENSOR, N))
    OP("fp8 cast, 1x128", 0, 4 * row + codes, cast(k, &a, SCALES_1X128, N))
    OP("fp8 cast, 128x128", 0, 4 * row + codes, cast(k, &a, SCALES_128X128, N))
#undef OP
    printf("  %-24s %15.2f ms, from memory %.2f\n", "all of a step",
           shown.total.cached * 1e3, shown.total.memory * 1e3);
    fini(&a);
}

int main(int argc, char **argv)
{
    int repeats = argc > 2 ? atoi(argv[2]) : 5;
    const char *type = argc > 3 ? argv[3] : NULL;
    kernels_set_threads(argc > 1 ? atoi(argv[1]) : device_affinity_cpus());
    for (enum dtype d = DTYPE_FP32; d <= DTYPE_FP16; d++)
        for (int T = 256; T <= 1024; T *= 4)
            if (!type || strcmp(type, dtype_name(d)) == 0)
                bench(d, T, repeats, argc > 4 ? argv[4] : NULL);
    return 0;
}
