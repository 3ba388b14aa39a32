#include "cases.h"

#include "arrays.h"

#define RUN(result, call)                                                      \
    for (int turn_ = 0; turn_ < 2; turn_++) {                                  \
        const struct kernels *ops = turn_ ? b.ops : a.ops;                     \
        int r = turn_;                                                         \
        set_threads(turn_ ? b : a);                                            \
        if (ops->call != ZD_OK)                                                \
            result = INFINITY;                                                 \
    }

/* 0: leave the number as it is, which threads may not change at once. */
static void set_threads(struct runner runner)
{
    if (runner.threads > 0)
        kernels_set_threads(runner.threads);
}

static void raise_to(double *most, double value)
{
    if (!(value <= *most))
        *most = value;
}

/* Two copies of the same random array: one for each runner. */
struct pair {
    void *of[2];
    enum dtype dtype;
    size_t count;
};

static struct pair pair_of(
        enum dtype dtype, size_t count, float scale, uint64_t seed)
{
    struct pair p = {.dtype = dtype, .count = count};
    for (int i = 0; i < 2; i++)
        p.of[i] = random_array(dtype, count, scale, seed);
    return p;
}

static void pair_compare(double *most, struct pair p)
{
    raise_to(most, worst(p.of[0], p.of[1], p.dtype, p.count));
    free(p.of[0]);
    free(p.of[1]);
}

static void matmul_shape(
        double *most, struct runner a, struct runner b, int M, int N, int K,
        int flags)
{
    enum dtype type = a.ops->dtype;
    bool trans_a = flags & 1, trans_b = flags & 2, accumulate = flags & 4;
    bool narrow = !accumulate && flags & 8, with_bias = flags & 16;
    enum dtype out_type = narrow ? type : DTYPE_FP32;
    float scale = 1.0f / sqrtf((float)K); /* results near 1 */
    void *x = random_array(type, (size_t)M * K, scale, 1);
    void *y = random_array(type, (size_t)K * N, 1.0f, 2);
    void *bias = with_bias ? random_array(type, (size_t)N, 1.0f, 3) : NULL;
    struct pair out = pair_of(out_type, (size_t)M * N, 1.0f, 4);
    RUN(*most, matmul(NULL, out.of[r], out_type, x, y, bias, M, N, K, trans_a,
                      trans_b, accumulate));
    pair_compare(most, out);
    free(x);
    free(y);
    free(bias);
}

static double matmul_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][3] = {
            {37, 48, 509},  {1, 130, 48}, {3, 509, 37}, {100, 33, 400},
            {13, 1100, 20}, {800, 5, 16}, {1, 1, 1},    {24, 48, 385}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int flags = 0; flags < 32; flags++)
            matmul_shape(
                    &most, a, b, shapes[s][0], shapes[s][1], shapes[s][2],
                    flags);
    return most;
}

static double layernorm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    for (int i = 0; i < 8; i++) {
        int N = i & 1 ? 37 : 257, C = i & 2 ? 48 : 509;
        bool accumulate = i & 4;
        size_t count = (size_t)N * C, c = (size_t)C;
        void *x = random_array(type, count, 2.0f, 1);
        void *w = random_array(type, c, 1.0f, 2);
        void *bias = random_array(type, c, 1.0f, 3);
        void *dout = random_array(type, count, 1.0f, 4);
        void *res = random_array(type, count, 1.0f, 5);
        struct pair out = pair_of(type, count, 1.0f, 6);
        struct pair dx = pair_of(type, count, 1.0f, 7);
        struct pair mean = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 8);
        struct pair rstd = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 9);
        struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
        struct pair db = pair_of(DTYPE_FP32, c, 1.0f, 11);
        RUN(most, layernorm_forward(
                          NULL, out.of[r], mean.of[r], rstd.of[r], x, w, bias,
                          1e-5f, N, C));
        RUN(most, layernorm_backward(
                          NULL, dx.of[r], dw.of[r], db.of[r], dout,
                          i & 1 ? res : NULL, x, w, mean.of[0], rstd.of[0], N,
                          C, accumulate));
        RUN(most, layernorm_backward(
                          NULL, dx.of[r], NULL, NULL, dout, dx.of[r], x, w,
                          mean.of[0], rstd.of[0], N, C, false));
        pair_compare(&most, out);
        pair_compare(&most, dx);
        pair_compare(&most, mean);
        pair_compare(&most, rstd);
        pair_compare(&most, dw);
        pair_compare(&most, db);
        free(x), free(w), free(bias), free(dout), free(res);
    }
    return most;
}

static double rmsnorm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    for (int i = 0; i < 8; i++) {
        int N = i & 1 ? 37 : 257, C = i & 2 ? 48 : 509;
        size_t count = (size_t)N * C, c = (size_t)C;
        void *x = random_array(type, count, 2.0f, 1);
        void *w = random_array(type, c, 1.0f, 2);
        void *res = random_array(type, count, 1.0f, 5);
        struct pair out = pair_of(type, count, 1.0f, 6);
        struct pair dx = pair_of(type, count, 1.0f, 7);
        struct pair rstd = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 9);
        struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
        RUN(most,
            rmsnorm_forward(NULL, out.of[r], rstd.of[r], x, w, 1e-5f, N, C));
        RUN(most, rmsnorm_backward(
                          NULL, dx.of[r], dw.of[r], dx.of[r],
                          i & 1 ? res : NULL, x, w, rstd.of[0], N, C, i & 4));
        pair_compare(&most, out);
        pair_compare(&most, dx);
        pair_compare(&most, rstd);
        pair_compare(&most, dw);
        free(x), free(w), free(res);
    }
    return most;
}

static double rope_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int widths[] = {16, 40, 64, 128};
    for (int i = 0; i < 8; i++) {
        int N = 111, H = 5, D = widths[i / 2], stride = H * D + 24;
        float *cosine = random_floats((size_t)(N * D / 2), 1.0f, 1);
        float *sine = random_floats((size_t)(N * D / 2), 1.0f, 2);
        int32_t positions[111];
        for (int n = 0; n < N; n++)
            positions[n] = (n * 7) % N;
        struct pair x = pair_of(a.ops->dtype, (size_t)(N * stride), 1.0f, 3);
        RUN(most, rope(NULL, x.of[r], cosine, sine, positions, N, H, D, stride,
                       i & 1));
        pair_compare(&most, x);
        free(cosine), free(sine);
    }
    return most;
}

static double activation_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    static const size_t counts[] = {1, 37, 40001};
    for (int i = 0; i < 3; i++) {
        size_t count = counts[i];
        void *x = random_array(type, count, 12.0f, 1); /* into both tails */
        void *g = random_array(type, count, 1.0f, 2);
        void *u = random_array(type, count, 3.0f, 3);
        struct pair out[7];
        for (int k = 0; k < 7; k++)
            out[k] = pair_of(type, count, 2.0f, 10 + (uint64_t)k);
        RUN(most, gelu_forward(NULL, out[0].of[r], x, count));
        RUN(most, gelu_backward(NULL, out[1].of[r], g, x, count));
        RUN(most, gelu_backward(NULL, out[2].of[r], out[2].of[r], x, count));
        RUN(most, swiglu_forward(
                          NULL, out[3].of[r], x, u, 1, (int)count,
                          (int64_t)count));
        RUN(most, swiglu_backward(
                          NULL, out[4].of[r], out[5].of[r], g, out[4].of[r],
                          out[5].of[r], 1, (int)count, (int64_t)count));
        RUN(most, add(NULL, out[6].of[r], out[6].of[r], x, count));
        for (int k = 0; k < 7; k++)
            pair_compare(&most, out[k]);
        free(x), free(g), free(u);
    }
    return most;
}

static double embedding_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    for (int i = 0; i < 4; i++) {
        int N = i & 1 ? 37 : 700, C = i & 2 ? 48 : 509, rows = 13;
        size_t count = (size_t)N * C, entries = (size_t)rows * C;
        void *table = random_array(type, entries, 1.0f, 1);
        int32_t ids[700];
        for (int n = 0; n < N; n++) /* ids repeat */
            ids[n] = (n * n) % rows;
        struct pair set = pair_of(type, count, 1.0f, 2);
        struct pair added = pair_of(type, count, 1.0f, 3);
        struct pair dtable = pair_of(DTYPE_FP32, entries, 1.0f, 4);
        struct pair sums = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 5);
        void *dout = random_array(type, count, 0.1f, 6);
        RUN(most, embedding_forward(NULL, set.of[r], ids, table, N, C, false));
        RUN(most, embedding_forward(NULL, added.of[r], ids, table, N, C, true));
        RUN(most, embedding_backward(NULL, dtable.of[r], ids, NULL, dout, N, C));
        RUN(most, reduce_rows(NULL, sums.of[r], dout, N, C, i & 1));
        pair_compare(&most, set);
        pair_compare(&most, added);
        pair_compare(&most, dtable);
        pair_compare(&most, sums);
        free(table), free(dout);
    }
    return most;
}

static double cross_entropy_case(struct runner a, struct runner b)
{
    double most = 0.0;
    for (int i = 0; i < 2; i++) {
        int n = 37, V = i ? 509 : 2003;
        size_t count = (size_t)n * V;
        float *logits = random_floats(count, 9.0f, 1);
        int32_t targets[37];
        for (int t = 0; t < n; t++)
            targets[t] = t % 5 == 2 ? -1 : t * 13 % V;
        struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 2);
        struct pair alone = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 3);
        struct pair d = pair_of(a.ops->dtype, count, 1.0f, 4);
        RUN(most,
            cross_entropy(
                    NULL, losses.of[r], d.of[r], logits, targets, 0.5f, n, V));
        RUN(most,
            cross_entropy(
                    NULL, alone.of[r], NULL, logits, targets, 0.5f, n, V));
        raise_to(&most, worst(alone.of[0], losses.of[0], DTYPE_FP32, n));
        if (a.ops->dtype == DTYPE_FP32) { /* in place */
            memcpy(alone.of[0], losses.of[0], (size_t)n * sizeof(float));
            float *same = copy_of(logits, count * sizeof *logits);
            set_threads(a);
            a.ops->cross_entropy(
                    NULL, alone.of[0], same, same, targets, 0.5f, n, V);
            raise_to(&most, worst(same, d.of[1], DTYPE_FP32, count));
            free(same);
        }
        pair_compare(&most, losses);
        pair_compare(&most, alone);
        pair_compare(&most, d);
        free(logits);
    }
    return most;
}

static void attention_run(
        double *most, struct runner a, struct runner b, int T, int H, int KV,
        int D, bool documents)
{
    enum dtype type = a.ops->dtype;
    int B = 2;
    struct attention_shape s = {
            B,
            T,
            H,
            KV,
            D,
            (H + 2 * KV) * D,
            (H + 2 * KV) * D,
            (H + 2 * KV) * D,
            1.0f / sqrtf((float)D)};
    size_t rows = (size_t)B * T, fused = rows * (size_t)s.q_stride;
    size_t outs = rows * (size_t)(H * D), bytes = dtype_bytes(type);
    char *qkv = random_array(type, fused, 2.0f, 1);
    void *dout = random_array(type, outs, 1.0f, 2);
    int32_t *starts = calloc(rows, sizeof *starts);
    for (size_t i = 0; documents && i < rows; i++) {
        int t = (int)(i % (size_t)T), step = i < (size_t)T ? 13 : 150;
        starts[i] = t / step * step;
    }
    struct pair out = pair_of(type, outs, 1.0f, 3);
    struct pair lse = pair_of(DTYPE_FP32, rows * (size_t)H, 1.0f, 4);
    struct pair d = pair_of(type, fused, 1.0f, 5);
    size_t k_at = (size_t)(H * D) * bytes, v_at = (size_t)(KV * D) * bytes;
    v_at += k_at;
    set_threads(a.threads > b.threads ? a : b);
    size_t scratch_bytes = attention_scratch_bytes(&s, type, DEVICE_CPU);
    void *scratch = malloc(scratch_bytes ? scratch_bytes : 1);
    RUN(*most, attention_forward(
                       NULL, out.of[r], lse.of[r], qkv, qkv + k_at, qkv + v_at,
                       starts, scratch, &s));
    RUN(*most, attention_backward(
                       NULL, d.of[r], (char *)d.of[r] + k_at,
                       (char *)d.of[r] + v_at, dout, out.of[0], lse.of[0], qkv,
                       qkv + k_at, qkv + v_at, starts, scratch, &s));
    pair_compare(most, out);
    pair_compare(most, lse);
    pair_compare(most, d);
    free(qkv), free(dout), free(starts), free(scratch);
}

static double attention_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int widths[] = {16, 40, 64, 128};
    for (int i = 0; i < 8; i++)
        attention_run(&most, a, b, 37, i & 1 ? 3 : 6, 3, widths[i / 2], i & 1);
    attention_run(&most, a, b, 301, 3, 1, 16, false);
    attention_run(&most, a, b, 301, 2, 2, 40, true);
    attention_run(&most, a, b, 193, 1, 1, 20, false);
    return most;
}

static double decode_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    for (int i = 0; i < 6; i++) {
        int n = i & 1 ? 37 : 1, past = i * 40, H = 6, KV = 3;
        int D = i < 3 ? 40 : 64, stride = H * D + 8;
        size_t cache = (size_t)(past + n) * (size_t)(KV * D);
        void *q = random_array(type, (size_t)(n * stride), 2.0f, 1);
        void *k = random_array(type, cache, 2.0f, 2);
        void *v = random_array(type, cache, 1.0f, 3);
        struct pair out = pair_of(type, (size_t)(n * H * D), 1.0f, 4);
        RUN(most,
            attention_decode(
                    NULL, out.of[r], q, k, v, n, past, H, KV, D, stride, 0.2f));
        pair_compare(&most, out);
        free(q), free(k), free(v);
    }
    return most;
}

/* bf16 results differ by one rounding where the sums before it differ in their
 * last bits: 2^-8 of the value, twice that where a rounded result is used; fp16
 * results by 2^-11. */
const struct op_case op_cases[] = {
        {"matmul", matmul_case, {4e-6, 5e-3, 7e-4}},
        {"layernorm", layernorm_case, {2e-5, 9e-3, 1.3e-3}},
        {"rmsnorm", rmsnorm_case, {1e-5, 9e-3, 1.3e-3}},
        {"rope", rope_case, {1e-6, 5e-3, 7e-4}},
        {"activation", activation_case, {2e-6, 5e-3, 7e-4}},
        {"embedding", embedding_case, {4e-6, 5e-3, 7e-4}},
        {"cross_entropy", cross_entropy_case, {2e-6, 5e-3, 7e-4}},
        {"attention", attention_case, {1e-5, 9e-3, 1.3e-3}},
        {"attention_decode", decode_case, {4e-6, 5e-3, 7e-4}},
};
const int op_case_count = sizeof op_cases / sizeof op_cases[0];
