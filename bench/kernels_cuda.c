/* kernels_cuda.c - bandwidth of a GPU's operations other than matmuls, relative
 * to a plain copy.
 *
 *   bench_kernels_cuda [bf16|fp16|fp32 [N [C [repeats]]]]
 *
 * N tokens of C channels (16384, 4096), an MLP of 4 C, a vocabulary of 50257 in
 * a chunk of 1024 rows at most. A line has the operation, the bytes that it
 * must read and write, the median time, and the bandwidth as a share of the
 * copy's. Data that fits in the L2 cache is faster than the copy: choose N C
 * accordingly. For attention, as chosen by the table, it is TFLOP/s over pairs
 * that see each other; also with windows shorter than T, and with a cap. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, D = 128, V = 50257, CHUNK = 1024 };

struct bench {
    const struct kernels *ops;
    int N, C, repeats;
    size_t unit; /* bytes of N * C elements */
    double copy; /* bytes per second */
};

static void must(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    exit(zd_exit_code(status));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Uniform in [-1, 1). Freed at exit. */
static void *numbers(enum dtype dtype, size_t count)
{
    enum { BLOCK = 1 << 20 };
    size_t bytes = dtype_bytes(dtype);
    float *floats = malloc(BLOCK * sizeof *floats);
    char *narrow = malloc(BLOCK * sizeof *floats);
    uint32_t state = 1;
    void *out;
    must(device_take(count * bytes + 16, &out));
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        for (size_t k = 0; k < n; k++) {
            state = state * 1664525u + 1013904223u;
            floats[k] = (float)(int32_t)state * 0x1p-31f;
        }
        dtype_convert(narrow, dtype, floats, DTYPE_FP32, n);
        must(device_write((char *)out + i * bytes, narrow, n * bytes));
    }
    free(floats);
    free(narrow);
    return out;
}

static int32_t *ints(const int32_t *list, size_t count)
{
    void *out;
    must(device_take(count * sizeof *list, &out));
    must(device_write(out, list, count * sizeof *list));
    return out;
}

static void show(
        const struct bench *b, const char *name, double bytes, double s)
{
    double share = b->copy > 0 ? bytes / s / b->copy : 1.0;
    printf("%-24s %9.1f MB %9.1f us %8.1f GB/s %6.3f of copy\n", name,
           bytes * 1e-6, s * 1e6, bytes / s * 1e-9, share);
}

/* The median time of `call`, queued `repeats` times. */
#define TIME(seconds, call)                                                    \
    do {                                                                       \
        double times_[RUNS];                                                   \
        must(call);                                                            \
        must(device_finish());                                                 \
        for (int run_ = 0; run_ < RUNS; run_++) {                              \
            double start_ = clock_seconds();                                   \
            for (int i_ = 0; i_ < b->repeats; i_++)                            \
                must(call);                                                    \
            must(device_finish());                                             \
            times_[run_] = (clock_seconds() - start_) / b->repeats;            \
        }                                                                      \
        qsort(times_, RUNS, sizeof times_[0], by_value);                       \
        seconds = times_[RUNS / 2];                                            \
    } while (0)
#define OP(name, bytes, call)                                                  \
    do {                                                                       \
        double took_;                                                          \
        TIME(took_, call);                                                     \
        show(b, name, (double)(bytes), took_);                                 \
    } while (0)

static void copies(struct bench *b, void *to, const void *from)
{
    double seconds;
    TIME(seconds, device_move(to, from, 4 * b->unit));
    b->copy = 8.0 * (double)b->unit / seconds;
    show(b, "copy", 8.0 * (double)b->unit, seconds);
}

static void norms(struct bench *b, char *x, char *y, char *z, float *sums)
{
    const struct kernels *k = b->ops;
    int N = b->N, C = b->C, rows = N * (C / D);
    size_t u = b->unit, elements = (size_t)N * (size_t)C;
    float *mean = numbers(DTYPE_FP32, elements / D + (size_t)N);
    float *rstd = numbers(DTYPE_FP32, elements / D + (size_t)N);
    void *w = numbers(k->dtype, (size_t)C);
    struct norm_forward root = {
            .out = y,
            .rstd = rstd,
            .x = x,
            .weight = w,
            .eps = 1e-5f,
            .N = N,
            .C = C,
            .sum = z};
    struct norm_forward centered = root, heads = root;
    struct norm_backward root_back = {
            .dx = y,
            .dweight = sums,
            .dout = z,
            .dresidual = y,
            .x = x,
            .weight = w,
            .rstd = rstd,
            .N = N,
            .C = C,
            .accumulate = true};
    struct norm_backward centered_back = root_back, heads_back = root_back;
    centered.mean = mean, centered.bias = w;
    centered_back.mean = mean, centered_back.dbias = sums + C;
    heads.N = heads_back.N = rows, heads.C = heads_back.C = D;
    heads_back.dresidual = NULL;
    OP("layernorm forward", 2 * u, k->norm_forward(NULL, &centered));
    OP("layernorm backward", 4 * u, k->norm_backward(NULL, &centered_back));
    OP("rmsnorm forward", 2 * u, k->norm_forward(NULL, &root));
    OP("rmsnorm backward", 4 * u, k->norm_backward(NULL, &root_back));
    OP("rmsnorm of heads", 2 * u, k->norm_forward(NULL, &heads));
    OP("  backward", 3 * u, k->norm_backward(NULL, &heads_back));
    root.add = centered.add = z;
    OP("add + layernorm", 4 * u, k->norm_forward(NULL, &centered));
    OP("add + rmsnorm", 4 * u, k->norm_forward(NULL, &root));
}

static void elements(struct bench *b, char *x, char *y, char *z, float *sums)
{
    const struct kernels *k = b->ops;
    int N = b->N, C = b->C;
    size_t u = b->unit, count = (size_t)N * (size_t)C;
    char *up = x + 2 * (size_t)C * dtype_bytes(k->dtype);
    char *dup = z + 2 * (size_t)C * dtype_bytes(k->dtype);
    OP("add", 3 * u, k->add(NULL, y, x, z, count));
    OP("gelu forward", 8 * u, k->gelu_forward(NULL, y, x, 4 * count));
    OP("gelu backward", 12 * u, k->gelu_backward(NULL, y, y, x, 4 * count));
    OP("swiglu forward", 6 * u,
       k->gated_forward(NULL, GATE_SILU, y, x, up, N, 2 * C, 4 * C));
    OP("swiglu backward", 10 * u,
       k->gated_backward(NULL, GATE_SILU, z, dup, y, x, up, N, 2 * C, 4 * C));
    OP("bias gradient C", u, k->reduce_rows(NULL, sums, x, N, C, true));
    OP("bias gradient 4C", 4 * u,
       k->reduce_rows(NULL, sums, x, N, 4 * C, true));
}

/* The operations of an adapter with r = 16 on a C x C matrix. */
static void adapters(struct bench *b, char *x, char *y, char *low, float *sums)
{
    const struct kernels *k = b->ops;
    enum dtype type = k->dtype;
    enum { R = 16 };
    struct dropout dropout = {.threshold = 1u << 28, .T = b->N};
    struct matmul down = {
            .M = b->N,
            .N = R,
            .K = b->C,
            .a = {x, type},
            .b = {y, type, true},
            .out = {low, type},
            .scale = 2};
    struct matmul up = {
            .M = b->N,
            .N = b->C,
            .K = R,
            .a = {low, type},
            .b = {x, type, true},
            .out = {y, type},
            .accumulate = true};
    struct matmul grads = {
            .M = b->C,
            .N = R,
            .K = b->N,
            .a = {x, type, true},
            .b = {low, type},
            .out = {sums, DTYPE_FP32}};
    OP("adapter down", b->unit, k->matmul(NULL, &down));
    OP("adapter gradient", b->unit, k->matmul(NULL, &grads));
    OP("adapter up", 2 * b->unit, k->matmul(NULL, &up));
    OP("  with dropout, apart", 3 * b->unit,
       k->scale_rows(NULL, y, b->C, x, b->N, b->C, 1, &dropout, true));
    OP("DoRA's gains", 2 * b->unit,
       k->scale_columns(NULL, y, b->C, x, b->C, type, sums, NULL, b->N, b->C));
    OP("  their gradient", 2 * b->unit,
       k->column_dots(
               NULL, sums, sums + b->C, x, b->C, y, b->C, b->N, b->C, false));
}

/* Samples of 4096 tokens, four query heads per key/value head. y: out, z:
 * gradients. */
static void attention(struct bench *b, char *x, char *y, char *z)
{
    static const struct {
        const char *name;
        int part; /* the window is T / part */
        float softcap;
    } seen[] = {
            {"", 0, 0}, {", T/4", 4, 0}, {", T/16", 16, 0}, {", cap", 0, 50}};
    const struct kernels *k = b->ops;
    int T = b->N < 4096 ? b->N : 4096, H = b->C / D, KV = H % 4 ? H : H / 4;
    struct attention_shape s = {
            .B = b->N / T, .T = T, .H = H, .KV = KV, .D = D, .scale = 0.088f};
    size_t rows = (size_t)b->N, element = dtype_bytes(k->dtype);
    size_t k_at = element * (size_t)(H * D), v_at = k_at + element * KV * D;
    int32_t *zeros = calloc(rows, sizeof *zeros), *starts = ints(zeros, rows);
    float *lse = numbers(DTYPE_FP32, rows * (size_t)H);
    void *scratch;
    s.q_stride = s.k_stride = s.v_stride = (H + 2 * KV) * D;
    s.documents = s.B;
    must(device_take(
            attention_scratch_bytes(&s, k->dtype, DEVICE_CUDA), &scratch));
    for (int i = 0; i < 4; i++) {
        double pairs = 0, forward, backward;
        s.window = seen[i].part ? T / seen[i].part : 0;
        s.softcap = seen[i].softcap;
        for (int t = 0; t < T; t++)
            pairs += s.window && s.window <= t ? s.window : t + 1;
        pairs *= 1e-12 * s.B * H * D;
        struct attention a = {&s,     x,       x + k_at, x + v_at,
                              starts, scratch, y,        lse};
        TIME(forward, k->attention_forward(NULL, &a));
        a.dout = y, a.dq = z, a.dk = z + k_at, a.dv = z + v_at;
        TIME(backward, k->attention_backward(NULL, &a));
        printf("attention forward%-7s %24.1f us %6.1f TFLOP/s\n", seen[i].name,
               forward * 1e6, 4 * pairs / forward);
        printf("attention backward%-6s %24.1f us %6.1f TFLOP/s\n", seen[i].name,
               backward * 1e6, 10 * pairs / backward);
    }
    free(zeros);
}

/* A quantized matrix of N x C, with arbitrary bytes as codes and scales. */
static void codes(struct bench *b, char *x, char *y, char *z)
{
    static const struct {
        const char *name;
        enum quant_format format;
        size_t nested_block;
    } rows[] = {
            {"dequantize nf4", QUANT_NF4, 0},
            {"  with nested scales", QUANT_NF4, QUANT_NESTED_BLOCK},
            {"dequantize int8", QUANT_INT8, 0},
            {"dequantize fp8", QUANT_FP8, 0}};
    for (int i = 0; i < 4; i++) {
        struct quant_matrix m = {
                .format = rows[i].format,
                .rows = b->N,
                .columns = b->C,
                .block = QUANT_BLOCK,
                .nested_block = rows[i].nested_block};
        OP(rows[i].name,
           b->unit + quant_code_bytes(&m, quant_matrix_count(&m)) +
                   quant_scale_bytes(&m),
           b->ops->dequantize(NULL, y, x, z, &m));
    }
}

/* Casts tokens or a weight of N x C to FP8; only for bf16. y: codes, z: scales.
 */
static void casts(struct bench *b, char *x, char *y, char *z)
{
    static const struct {
        const char *name;
        enum dtype to;
        enum scale_layout layout;
    } rows[] = {
            {"fp8 cast", DTYPE_E4M3, SCALES_TENSOR},
            {"  e5m2", DTYPE_E5M2, SCALES_TENSOR},
            {"  by 1 x 128", DTYPE_E4M3, SCALES_1X128},
            {"  by 128 x 128", DTYPE_E4M3, SCALES_128X128}};
    size_t half = b->unit / 2; /* one byte each */
    if (b->ops->dtype != DTYPE_BF16)
        return;
    OP("fp8 amax", b->unit,
       b->ops->fp8_amax(
               NULL, (float *)z, x, DTYPE_BF16, b->N, b->C, b->C, false));
    for (int i = 0; i < 4; i++) {
        struct fp8_cast cast = {
                .x = x,
                .from = DTYPE_BF16,
                .rows = b->N,
                .columns = b->C,
                .stride = b->C,
                .to = rows[i].to,
                .layout = rows[i].layout,
                .amax = (float *)z,
                .codes = (uint8_t *)y,
                .scales = (float *)(z + 16),
                .transposed = (uint8_t *)y + half,
                .transposed_scales = (float *)(z + half),
                .padded = fp8_padded(b->N)};
        OP(rows[i].name, 2 * b->unit, b->ops->fp8_cast(NULL, &cast));
    }
}

static void tokens(struct bench *b, char *x, char *y)
{
    const struct kernels *k = b->ops;
    int N = b->N, C = b->C;
    size_t u = b->unit, n = (size_t)N;
    int32_t *list = malloc(n * sizeof *list), *order = malloc(n * sizeof *list);
    int32_t *scratch = malloc((V + 1) * sizeof *scratch);
    float *angles = numbers(DTYPE_FP32, n * D / 2);
    void *table = numbers(k->dtype, (size_t)V * (size_t)C);
    float *dtable = numbers(DTYPE_FP32, (size_t)V * (size_t)C);
    for (int i = 0; i < N; i++)
        list[i] = i;
    int32_t *positions = ints(list, n);
    /* few ids are frequent, as in text */
    for (int i = 0; i < N; i++)
        list[i] =
                (int32_t)((uint64_t)V * V / ((uint64_t)(i * 7919 % V) + 1) % V);
    embedding_order(order, list, N, V, scratch);
    int32_t *ids = ints(list, n), *sorted = ints(order, n);
    const struct rope_angles turn = {
            .cosine = angles, .sine = angles, .positions = positions};
    OP("rope", 2 * u, k->rope(NULL, x, &turn, N, C / D, D, C, false));
    OP("embedding forward", 2 * u,
       k->embedding_forward(NULL, y, ids, table, N, C, false));
    size_t distinct = 0;
    for (int i = 0; i < N; i++)
        distinct += i == 0 || list[order[i]] != list[order[i - 1]];
    OP("embedding backward", u + 2 * distinct * (size_t)C * sizeof(float),
       k->embedding_backward(NULL, dtable, ids, sorted, x, N, C));
    free(list), free(order), free(scratch);
}

static void losses(struct bench *b)
{
    const struct kernels *k = b->ops;
    int32_t list[CHUNK];
    int n = b->N < CHUNK ? b->N : CHUNK;
    int stride = logits_stride(DEVICE_CUDA, V);
    size_t count = (size_t)n * (size_t)stride;
    void *logits = numbers(k->logits_dtype, count);
    float *out = numbers(DTYPE_FP32, CHUNK), *sum = numbers(DTYPE_FP32, 256);
    for (int i = 0; i < CHUNK; i++)
        list[i] = i * 7919 % V;
    int32_t *targets = ints(list, CHUNK);
    must(device_clear(sum, 256 * sizeof *sum));
    struct loss_rows rows = {out,   logits, logits, targets,
                             1e-3f, n,      stride, {0, V, V}};
    OP("cross entropy", 2 * (size_t)n * V * dtype_bytes(k->dtype),
       k->cross_entropy(NULL, &rows));
    OP("add losses", (size_t)n * sizeof *out,
       k->add_losses(NULL, (struct exact_sum *)sum, out, n));
}

int main(int argc, char **argv)
{
    struct bench bench = {.N = 16384, .C = 4096, .repeats = 20};
    struct bench *b = &bench;
    enum dtype dtype = DTYPE_BF16;
    struct device *device;
    void *workspace;
    for (enum dtype d = DTYPE_FP32; argc > 1 && d <= DTYPE_FP16; d++)
        if (strcmp(argv[1], dtype_name(d)) == 0)
            dtype = d;
    if (argc > 2)
        b->N = atoi(argv[2]);
    if (argc > 3)
        b->C = atoi(argv[3]) / D * D;
    if (argc > 4)
        b->repeats = atoi(argv[4]);
    if (b->N < 1 || b->C < D || b->repeats < 1)
        return 64;
    must(device_open(DEVICE_CUDA, 0, 1, &device));
    device_use(device);
    must(kernels_device(dtype, &b->ops));
    size_t bytes = kernels_workspace_bytes(b->N, b->C, 4 * b->C);
    must(device_take(bytes, &workspace));
    kernels_set_workspace(workspace, bytes);
    size_t wide = 4 * (size_t)b->N * (size_t)b->C;
    b->unit = wide / 4 * dtype_bytes(dtype);
    printf("%s on %s, N=%d C=%d\n", b->ops->name, device_facts().name, b->N,
           b->C);
    char *x = numbers(dtype, wide), *y = numbers(dtype, wide);
    char *z = numbers(dtype, wide);
    float *sums = numbers(DTYPE_FP32, 16 * (size_t)b->C);
    copies(b, y, x);
    norms(b, x, y, z, sums);
    elements(b, x, y, z, sums);
    adapters(b, x, y, z, sums);
    attention(b, x, y, z);
    codes(b, x, y, z);
    casts(b, x, y, z);
    tokens(b, x, y);
    losses(b);
    return 0;
}
