#include "cases.h"

#include "arrays.h"
#include "base/number/rng.h"
#include "kernels/fused.h"
#include "run.h"

static void matmul_shape(
        double *most, struct runner a, struct runner b, int M, int N, int K,
        int flags)
{
    enum dtype type = a.ops->dtype;
    bool trans_a = flags & 1, trans_b = flags & 2, accumulate = flags & 4;
    bool narrow = !accumulate && flags & 8, with_bias = flags & 16;
    enum dtype out_type = narrow ? type : DTYPE_FP32;
    float scale = 1.0f / sqrtf((float)K); /* results near 1 */
    pair_runners(a, b);
    struct pair x = pair_of(type, (size_t)M * K, scale, 1);
    struct pair y = pair_of(type, (size_t)K * N, 1.0f, 2);
    struct pair bias = pair_of(type, (size_t)N, 1.0f, 3);
    struct pair out = pair_of(out_type, (size_t)M * N, 1.0f, 4);
    RUN(*most, matmul(NULL, &(struct matmul){
                                    .M = M,
                                    .N = N,
                                    .K = K,
                                    .a = {x.of[r], type, trans_a},
                                    .b = {y.of[r], type, trans_b},
                                    .out = {out.of[r], out_type},
                                    .bias = with_bias ? bias.of[r] : NULL,
                                    .accumulate = accumulate}));
    pair_compare(most, out);
    pair_free(x), pair_free(y), pair_free(bias);
}

static double matmul_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][3] = {
            {37, 48, 509},  {1, 130, 48},  {3, 509, 37},  {100, 33, 400},
            {13, 1100, 20}, {800, 5, 16},  {1, 1, 1},     {24, 48, 385},
            {2, 530, 9},    {2, 71, 390},  {1, 2100, 70}, {2, 65, 3},
            {257, 17, 259}, {256, 270, 5}, {5, 300, 259}, {8, 1200, 70},
            {7, 37, 130},   {40, 1111, 23}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int flags = 0; flags < 32; flags++)
            matmul_shape(
                    &most, a, b, shapes[s][0], shapes[s][1], shapes[s][2],
                    flags);
    return most;
}

static void rope_shape(
        double *most, struct runner a, struct runner b, int H, int D, int pad,
        bool backward)
{
    enum { N = 111 };
    int stride = H * D + pad;
    int32_t list[N];
    for (int n = 0; n < N; n++)
        list[n] = (n * 7) % N;
    pair_runners(a, b);
    struct pair cosine = pair_of(DTYPE_FP32, (size_t)(N * D / 2), 1.0f, 1);
    struct pair sine = pair_of(DTYPE_FP32, (size_t)(N * D / 2), 1.0f, 2);
    struct pair positions = pair_of_ints(list, N);
    struct pair x = pair_of(a.ops->dtype, (size_t)(N * stride), 1.0f, 3);
    RUN(*most, rope(NULL, x.of[r], cosine.of[r], sine.of[r], positions.of[r], N,
                    H, D, stride, backward));
    pair_compare(most, x);
    pair_free(cosine), pair_free(sine), pair_free(positions);
}

static double rope_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int widths[] = {16, 40, 64, 128};
    for (int i = 0; i < 8; i++)
        rope_shape(&most, a, b, 5, widths[i / 2], 24, i & 1);
    return most;
}

static void activation_shape(
        double *most, struct runner a, struct runner b, size_t count)
{
    enum dtype type = a.ops->dtype;
    pair_runners(a, b);
    struct pair x = pair_of(type, count, 12.0f, 1); /* into both tails */
    struct pair g = pair_of(type, count, 1.0f, 2);
    struct pair u = pair_of(type, count, 3.0f, 3);
    struct pair out[7];
    int F = (int)count;
    for (int k = 0; k < 7; k++)
        out[k] = pair_of(type, count, 2.0f, 10 + (uint64_t)k);
    RUN(*most, gelu_forward(NULL, out[0].of[r], x.of[r], count));
    RUN(*most, gelu_backward(NULL, out[1].of[r], g.of[r], x.of[r], count));
    RUN(*most, gelu_backward(NULL, out[2].of[r], out[2].of[r], x.of[r], count));
    RUN(*most, swiglu_forward(NULL, out[3].of[r], x.of[r], u.of[r], 1, F, F));
    RUN(*most, swiglu_backward(
                       NULL, out[4].of[r], out[5].of[r], g.of[r], out[4].of[r],
                       out[5].of[r], 1, F, F));
    RUN(*most, add(NULL, out[6].of[r], out[6].of[r], x.of[r], count));
    for (int k = 0; k < 7; k++)
        pair_compare(most, out[k]);
    pair_free(x), pair_free(g), pair_free(u);
}

/* gate and up are the halves of one array. */
static void swiglu_rows(
        double *most, struct runner a, struct runner b, int N, int F, int pad)
{
    enum dtype type = a.ops->dtype;
    int64_t stride = 2 * F + pad;
    size_t fused = (size_t)N * (size_t)stride, count = (size_t)N * (size_t)F;
    size_t up = (size_t)F * dtype_bytes(type);
    pair_runners(a, b);
    struct pair x = pair_of(type, fused, 6.0f, 1);
    struct pair d = pair_of(type, count, 1.0f, 2);
    struct pair out = pair_of(type, count, 1.0f, 3);
    struct pair dx = pair_of(type, fused, 1.0f, 4);
    struct pair same = pair_of(type, fused, 6.0f, 1);
    RUN(*most,
        swiglu_forward(
                NULL, out.of[r], x.of[r], (char *)x.of[r] + up, N, F, stride));
    RUN(*most, swiglu_backward(
                       NULL, dx.of[r], (char *)dx.of[r] + up, d.of[r], x.of[r],
                       (char *)x.of[r] + up, N, F, stride));
    RUN(*most, swiglu_backward(
                       NULL, same.of[r], (char *)same.of[r] + up, d.of[r],
                       same.of[r], (char *)same.of[r] + up, N, F, stride));
    PAIRS_COMPARE(most, out, dx, same);
    pair_free(x), pair_free(d);
}

static double activation_case(struct runner a, struct runner b)
{
    double most = 0.0;
    activation_shape(&most, a, b, 1);
    activation_shape(&most, a, b, 37);
    activation_shape(&most, a, b, 40001);
    swiglu_rows(&most, a, b, 7, 48, 0);
    swiglu_rows(&most, a, b, 5, 1360, 16);
    swiglu_rows(&most, a, b, 3, 37, 5);
    return most;
}

/* ids are below `rows`. */
static void embedding_shape(
        double *most, struct runner a, struct runner b, const int32_t *list,
        int N, int C, int rows)
{
    enum dtype type = a.ops->dtype;
    size_t count = (size_t)N * (size_t)C, entries = (size_t)rows * (size_t)C;
    int32_t *sorted = malloc(((size_t)N + 1) * sizeof *sorted);
    int32_t *scratch = malloc(((size_t)rows + 1) * sizeof *scratch);
    embedding_order(sorted, list, N, rows, scratch);
    pair_runners(a, b);
    struct pair ids = pair_of_ints(list, (size_t)N);
    struct pair order = pair_of_ints(sorted, (size_t)N);
    struct pair table = pair_of(type, entries, 1.0f, 1);
    struct pair set = pair_of(type, count, 1.0f, 2);
    struct pair added = pair_of(type, count, 1.0f, 3);
    struct pair dtable = pair_of(DTYPE_FP32, entries, 1.0f, 4);
    struct pair dout = pair_of(type, count, 0.1f, 6);
    RUN(*most, embedding_forward(
                       NULL, set.of[r], ids.of[r], table.of[r], N, C, false));
    RUN(*most, embedding_forward(
                       NULL, added.of[r], ids.of[r], table.of[r], N, C, true));
    RUN(*most,
        embedding_backward(
                NULL, dtable.of[r], ids.of[r], order.of[r], dout.of[r], N, C));
    PAIRS_COMPARE(most, set, added, dtable);
    pair_free(ids), pair_free(order), pair_free(table), pair_free(dout);
    free(sorted), free(scratch);
}

/* Rows apart or not, added or not, with dropout or without. */
static void scale_rows_shape(
        double *most, struct runner a, struct runner b, int N, int C, int flags)
{
    enum dtype type = a.ops->dtype;
    int64_t stride = flags & 1 ? C + 5 : C;
    struct dropout dropout = {
            .threshold = flags & 2 ? 0x40000000u : 0,
            .key = 7 * (uint64_t)N,
            .first_sample = (int64_t)1 << 33,
            .first_row = 3,
            .T = 5};
    pair_runners(a, b);
    struct pair x = pair_of(type, (size_t)N * (size_t)C, 1.0f, 1);
    struct pair out = pair_of(type, (size_t)N * (size_t)stride, 1.0f, 2);
    RUN(*most, scale_rows(
                       NULL, out.of[r], stride, x.of[r], N, C, 1.5f, &dropout,
                       flags & 4));
    pair_compare(most, out);
    pair_free(x);
}

static double scale_rows_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][2] = {{1, 1}, {7, 16}, {13, 67}, {37, 1030}};
    for (int s = 0; s < 4; s++)
        for (int flags = 0; flags < 8; flags++)
            scale_rows_shape(&most, a, b, shapes[s][0], shapes[s][1], flags);
    return most;
}

static void reduce_shape(
        double *most, struct runner a, struct runner b, int N, int C,
        bool accumulate)
{
    pair_runners(a, b);
    struct pair x = pair_of(a.ops->dtype, (size_t)N * (size_t)C, 0.1f, 6);
    struct pair sums = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 5);
    RUN(*most, reduce_rows(NULL, sums.of[r], x.of[r], N, C, accumulate));
    pair_compare(most, sums);
    pair_free(x);
}

static double embedding_case(struct runner a, struct runner b)
{
    double most = 0.0;
    for (int i = 0; i < 4; i++) {
        int N = i & 1 ? 37 : 700, C = i & 2 ? 48 : 509, rows = 13;
        int32_t ids[700];
        for (int n = 0; n < N; n++) /* ids repeat */
            ids[n] = (n * n) % rows;
        embedding_shape(&most, a, b, ids, N, C, rows);
        reduce_shape(&most, a, b, N, C, i & 1);
    }
    return most;
}

/* The gradient in the place of the logits, where the types agree. */
static void cross_entropy_in_place(
        double *most, struct runner runner, const float *logits,
        const struct pair *targets, const struct pair *expected, float dloss,
        int n, int V, int stride)
{
    enum dtype type = runner.ops->dtype;
    size_t count = (size_t)n * (size_t)stride;
    if (type != runner.ops->logits_dtype)
        return;
    struct pair same = pair_of_logits(logits, count);
    struct pair untouched = pair_of_logits(logits, count);
    struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 2);
    runner_enter(runner);
    if (runner.ops->cross_entropy(
                NULL, losses.of[0], same.of[0], same.of[0], targets->of[0],
                dloss, n, V, stride) != ZD_OK)
        *most = INFINITY;
    char *in_place = pair_fetch(&same, 0), *apart = pair_fetch(expected, 0);
    char *was = pair_fetch(&untouched, 0);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * (size_t)stride * dtype_bytes(type);
        size_t end = at + (size_t)V * dtype_bytes(type);
        raise_to(most, worst(in_place + at, apart + at, type, (size_t)V));
        if (memcmp(in_place + end, was + end,
                   (size_t)(stride - V) * dtype_bytes(type)) != 0)
            *most = INFINITY;
    }
    free(in_place), free(apart), free(was);
    pair_free(same), pair_free(losses), pair_free(untouched);
}

/* What lies between rows is no number: a result that depends on it shows. Of
 * `d` it is the same on both sides and stays so. */
static void cross_entropy_shape(
        double *most, struct runner a, struct runner b, int n, int V,
        int stride, float dloss)
{
    size_t count = (size_t)n * (size_t)stride;
    float *floats = random_floats(count, 9.0f, 1);
    int32_t list[64];
    for (size_t i = 0; i < count; i++)
        if (i % (size_t)stride >= (size_t)V)
            floats[i] = NAN;
    for (int t = 0; t < n; t++)
        list[t] = t % 5 == 2 ? -1 : t * 13 % V;
    list[0] = V - 1;
    pair_runners(a, b);
    struct pair logits = pair_of_logits(floats, count);
    struct pair targets = pair_of_ints(list, (size_t)n);
    struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 2);
    struct pair alone = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 3);
    struct pair d = pair_of(a.ops->dtype, count, 1.0f, 4);
    RUN(*most, cross_entropy(
                       NULL, losses.of[r], d.of[r], logits.of[r], targets.of[r],
                       dloss, n, V, stride));
    RUN(*most, cross_entropy(
                       NULL, alone.of[r], NULL, logits.of[r], targets.of[r],
                       dloss, n, V, stride));
    cross_entropy_in_place(most, a, floats, &targets, &d, dloss, n, V, stride);
    PAIRS_COMPARE(most, losses, alone, d);
    pair_free(logits), pair_free(targets);
    free(floats);
}

static double cross_entropy_case(struct runner a, struct runner b)
{
    double most = 0.0;
    cross_entropy_shape(&most, a, b, 37, 2003, 2003, 0.5f);
    cross_entropy_shape(&most, a, b, 37, 2003, 2048, 0.5f);
    cross_entropy_shape(&most, a, b, 37, 509, 511, 0.5f);
    return most;
}

/* --- what is special on a GPU ----------------------------------------------
 */

/* Rows that begin at any alignment, shorter than a pack too; large gradients,
 * so that the tolerance is one of their size. */
static double vocabulary_case(struct runner a, struct runner b)
{
    double most = 0.0;
    cross_entropy_shape(&most, a, b, 2, 50257, 50257, 64.0f);
    cross_entropy_shape(&most, a, b, 2, 50257, 50304, 64.0f);
    for (int V = 1; V < 20; V += 3)
        cross_entropy_shape(&most, a, b, 9, V, V, 64.0f);
    cross_entropy_shape(&most, a, b, 3, 1024, 1024, 64.0f);
    return most;
}

/* Runs of equal ids: short, over the end of a piece, over several pieces, all
 * one; and rows of several tiles. */
static double runs_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum { N = 600 };
    int32_t ids[N];
    for (int kind = 0; kind < 4; kind++) {
        for (int n = 0; n < N; n++)
            ids[n] = kind == 0   ? n % 300
                     : kind == 1 ? (n % 7 ? 11 : n % 5)
                     : kind == 2 ? n * n % 31
                                 : 5;
        embedding_shape(&most, a, b, ids, N, 72, 301);
        embedding_shape(&most, a, b, ids, 33 + kind, 1600, 301);
        embedding_shape(&most, a, b, ids, 64, 37, 301);
    }
    embedding_shape(&most, a, b, ids, 0, 8, 6);
    return most;
}

static double columns_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][2] = {{2000, 8}, {700, 2304}, {1, 1600},
                                    {65, 771}, {33, 1},     {0, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        reduce_shape(&most, a, b, shapes[i][0], shapes[i][1], i & 1);
    rope_shape(&most, a, b, 32, 128, 2 * 8 * 128, false);
    rope_shape(&most, a, b, 3, 6, 1, true);
    activation_shape(&most, a, b, 0);
    activation_shape(&most, a, b, 2056);
    return most;
}

/* What the table has in one pass, against the parts of the other. */
static double fused_case(struct runner a, struct runner b)
{
    double most = 0.0;
    enum dtype type = a.ops->dtype;
    static const int shapes[][3] = {{24, 48, 72}, {17, 136, 40}, {5, 33, 9}};
    pair_runners(a, b);
    for (int i = 0; i < 3; i++) {
        int M = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
        size_t m = (size_t)M, n = (size_t)N, k = (size_t)K;
        float scale = 1.0f / sqrtf((float)K);
        struct pair x = pair_of(type, m * k, 3.0f * scale, 1);
        struct pair w = pair_of(type, n * k, 1.0f, 2);
        struct pair bias = pair_of(type, n, 1.0f, 3);
        struct pair out = pair_of(type, m * n, 1.0f, 4);
        struct pair pre = pair_of(type, m * n, 1.0f, 5);
        struct pair dpre = pair_of(type, m * n, 1.0f, 6);
        struct pair dw = pair_of(DTYPE_FP32, k * n, 1.0f, 7);
        struct pair db = pair_of(DTYPE_FP32, n, 1.0f, 8);
        RUN(most, matmul(NULL, &(struct matmul){
                                       .M = M,
                                       .N = N,
                                       .K = K,
                                       .a = {x.of[r], type},
                                       .b = {w.of[r], type, i & 1},
                                       .out = {out.of[r], type},
                                       .bias = bias.of[r],
                                       .epilogue = MATMUL_GELU,
                                       .aux = pre.of[r]}));
        struct pair p = pair_of_first(&pre), y = pair_of_first(&out);
        RUN(most, matmul(NULL, &(struct matmul){
                                       .M = M,
                                       .N = N,
                                       .K = K,
                                       .a = {x.of[r], type},
                                       .b = {w.of[r], type, i & 1},
                                       .out = {dpre.of[r], type},
                                       .epilogue = MATMUL_DGELU,
                                       .aux = p.of[r]}));
        for (int y_first = 0; y_first < 2; y_first++)
            RUN(most,
                matmul(NULL, &(struct matmul){
                                     .M = y_first ? N : K,
                                     .N = y_first ? K : N,
                                     .K = M,
                                     .a = {(y_first ? y : x).of[r], type, true},
                                     .b = {(y_first ? x : y).of[r], type},
                                     .out = {dw.of[r], DTYPE_FP32},
                                     .epilogue = y_first ? MATMUL_SUM_A
                                                         : MATMUL_SUM_B,
                                     .aux = db.of[r],
                                     .accumulate = y_first || i & 1}));
        PAIRS_COMPARE(&most, out, pre, dpre, dw, db);
        pair_free(x), pair_free(w), pair_free(bias), pair_free(p);
        pair_free(y);
    }
    return most;
}

/* bf16 results differ by one unit in the last place where the sums before it
 * differ in their last bits: by 2^-7 of a value that is a power of two, and by
 * less of others (2^-6 / 3 at 2, which cuBLASLt was seen to do); fp16 results
 * by 2^-10. Where an operation is nearer than that, its limit is too. */
const struct op_case op_cases[] = {
        {"matmul", matmul_case, {4e-6, 0x1p-7, 0x1p-10}},
        {"layernorm", layernorm_case, {2e-5, 9e-3, 1.3e-3}},
        {"rmsnorm", rmsnorm_case, {1e-5, 9e-3, 1.3e-3}},
        {"rmsnorm of heads", head_norm_case, {2e-5, 9e-3, 1.3e-3}},
        {"rope", rope_case, {1e-6, 5e-3, 7e-4}},
        {"rmsnorm of heads, rope", head_norm_rope_case, {2e-5, 1.3e-2, 2e-3}},
        {"activation", activation_case, {2e-6, 5e-3, 7e-4}},
        {"rows with dropout", scale_rows_case, {2e-6, 9e-3, 1.3e-3}},
        {"gains of rows", row_gains_case, {2e-6, 2e-6, 2e-6}},
        {"columns with gains", scale_columns_case, {2e-6, 9e-3, 1.3e-3}},
        {"dots of columns", column_dots_case, {4e-6, 4e-6, 4e-6}},
        {"dequantize", dequantize_case, {0, 0, 0}},
        {"rows, quantized", codes_rows_case, {1e-5, 0x1p-7, 0x1p-10}},
        {"matmul, quantized", matmul_codes_case, {5e-5, 0x1p-7, 0x1p-10}},
        {"embedding", embedding_case, {4e-6, 5e-3, 7e-4}},
        {"cross_entropy", cross_entropy_case, {2e-6, 5e-3, 7e-4}},
        {"attention", attention_case, {1e-5, 9e-3, 1.3e-3}},
        {"attention_decode", decode_case, {4e-6, 5e-3, 7e-4}},
};
const int op_case_count = sizeof op_cases / sizeof op_cases[0];

const struct op_case cuda_cases[] = {
        {"norm shapes", norm_shapes_case, {2e-5, 9e-3, 1.3e-3}},
        {"add and norm", add_norm_case, {2e-5, 9e-3, 1.3e-3}},
        {"vocabulary", vocabulary_case, {4e-6, 5e-3, 7e-4}},
        {"runs of ids", runs_case, {4e-6, 5e-3, 7e-4}},
        {"columns", columns_case, {4e-6, 5e-3, 7e-4}},
        {"matmul epilogues", fused_case, {4e-6, 9e-3, 1.3e-3}},
};
const int cuda_case_count = sizeof cuda_cases / sizeof cuda_cases[0];
