#include "cases.h"

#include "arrays.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "run.h"

static void matmul_shape(int M, int N, int K, int flags)
{
    enum dtype type = pair_type();
    bool trans_a = flags & 1, trans_b = flags & 2, accumulate = flags & 4;
    bool narrow = flags & 8, with_bias = flags & 16;
    bool on_gpu = pair_runner(0)->device;
    enum dtype out_type = narrow ? type : DTYPE_FP32;
    float scale = 1.0f / sqrtf((float)K); /* results near 1 */
    pairs_begin();
    struct pair x = pair_of(type, (size_t)M * K, scale, 1);
    struct pair y = pair_of(type, (size_t)K * N, 1.0f, 2);
    struct pair bias = pair_of(type, (size_t)N, 1.0f, 3);
    struct pair out = pair_of(out_type, (size_t)M * N, 1.0f, 4);
    RUN(
            matmul(NULL, &(struct matmul){
                                 .M = M,
                                 .N = N,
                                 .K = K,
                                 .a = {x.of[r], type, trans_a},
                                 .b = {y.of[r], type, trans_b},
                                 .out = {out.of[r], out_type},
                                 .scale = on_gpu && narrow ? 0.75f : 0,
                                 .bias = with_bias ? bias.of[r] : NULL,
                                 .accumulate = accumulate}));
    pair_compare(out);
}

static void matmul_case(void)
{
    static const int shapes[][3] = {
            {37, 48, 509},  {1, 130, 48},  {3, 509, 37},  {100, 33, 400},
            {13, 1100, 20}, {800, 5, 16},  {1, 1, 1},     {24, 48, 385},
            {2, 530, 9},    {2, 71, 390},  {1, 2100, 70}, {2, 65, 3},
            {257, 17, 259}, {256, 270, 5}, {5, 300, 259}, {8, 1200, 70},
            {7, 37, 130},   {40, 1111, 23}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int flags = 0; flags < 32; flags++)
            /* on a CPU one that accumulates is not narrow */
            if ((flags & 12) != 12 || pair_runner(0)->device)
                matmul_shape(shapes[s][0], shapes[s][1], shapes[s][2], flags);
}

/* The first R of D channels turn. */
static void rope_shape(int H, int D, int R, int pad, bool mixed, bool backward)
{
    enum { N = 111 };
    int stride = H * D + pad;
    int32_t list[N];
    for (int n = 0; n < N; n++)
        list[n] = (n * 7) % N;
    pairs_begin();
    struct pair cosine = pair_of(DTYPE_FP32, (size_t)(N * R / 2), 1.0f, 1);
    struct pair sine = pair_of(DTYPE_FP32, (size_t)(N * R / 2), 1.0f, 2);
    struct pair positions = pair_of_ints(list, N);
    struct pair x = pair_of(pair_type(), (size_t)(N * stride), 1.0f, 3);
    RUN(
            rope(NULL, x.of[r],
                 &(struct rope_angles){
                         .cosine = cosine.of[r],
                         .sine = sine.of[r],
                         .positions = positions.of[r],
                         .pairs = R == D ? 0 : R / 2,
                         .interleaved = mixed},
                 N, H, D, stride, backward));
    pair_compare(x);
}

static void rope_case(void)
{
    static const int widths[] = {16, 40, 64, 128};
    for (int i = 0; i < 16; i++)
        rope_shape(5, widths[i / 4], widths[i / 4], 24, i & 2, i & 1);
    for (int i = 0; i < 4; i++) {
        rope_shape(3, 96, 72, 0, i & 1, i & 2);
        rope_shape(2, 128, 64, 16, i & 1, i & 2);
        rope_shape(2, 20, 6, 3, i & 1, i & 2);
    }
}

static void activation_shape(size_t count)
{
    enum dtype type = pair_type();
    pairs_begin();
    struct pair x = pair_of(type, count, 12.0f, 1); /* into both tails */
    struct pair g = pair_of(type, count, 1.0f, 2);
    struct pair u = pair_of(type, count, 3.0f, 3);
    struct pair out[7];
    int F = (int)count;
    for (int k = 0; k < 7; k++)
        out[k] = pair_of(type, count, 2.0f, 10 + (uint64_t)k);
    RUN(gelu_forward(NULL, out[0].of[r], x.of[r], count));
    RUN(gelu_backward(NULL, out[1].of[r], g.of[r], x.of[r], count));
    RUN(gelu_backward(NULL, out[2].of[r], out[2].of[r], x.of[r], count));
    RUN(gated_forward(
            NULL, GATE_SILU, out[3].of[r], x.of[r], u.of[r], 1, F, F));
    RUN(gated_backward(
            NULL, GATE_SILU, out[4].of[r], out[5].of[r], g.of[r], out[4].of[r],
            out[5].of[r], 1, F, F));
    RUN(add(NULL, out[6].of[r], out[6].of[r], x.of[r], count));
    for (int k = 0; k < 7; k++)
        pair_compare(out[k]);
}

/* gate and up are the halves of one array; into both tails. */
static void gated_rows(enum gate by, int N, int F, int pad, float scale)
{
    enum dtype type = pair_type();
    int64_t stride = 2 * F + pad;
    size_t fused = (size_t)N * (size_t)stride, count = (size_t)N * (size_t)F;
    size_t up = (size_t)F * dtype_bytes(type);
    pairs_begin();
    struct pair x = pair_of(type, fused, scale, 1);
    struct pair d = pair_of(type, count, 1.0f, 2);
    struct pair out = pair_of(type, count, 1.0f, 3);
    struct pair dx = pair_of(type, fused, 1.0f, 4);
    struct pair same = pair_of(type, fused, scale, 1);
    RUN(gated_forward(
            NULL, by, out.of[r], x.of[r], (char *)x.of[r] + up, N, F, stride));
    for (int i = 0; i < 2; i++) { /* then in the places of gate and up */
        struct pair to = i ? same : dx, from = i ? same : x;
        RUN(gated_backward(
                NULL, by, to.of[r], (char *)to.of[r] + up, d.of[r], from.of[r],
                (char *)from.of[r] + up, N, F, stride));
    }
    PAIRS_COMPARE(out, dx, same);
}

static void activation_case(void)
{
    activation_shape(1);
    activation_shape(37);
    activation_shape(40001);
    gated_rows(GATE_SILU, 7, 48, 0, 6.0f);
    gated_rows(GATE_SILU, 5, 1360, 16, 6.0f);
    gated_rows(GATE_SILU, 3, 37, 5, 6.0f);
}

static void geglu_case(void)
{
    gated_rows(GATE_GELU, 7, 48, 0, 12.0f);
    gated_rows(GATE_GELU, 5, 1360, 16, 3.0f);
    gated_rows(GATE_GELU, 3, 37, 5, 12.0f);
    gated_rows(GATE_GELU, 1, 40001, 0, 6.0f);
}

/* ids are below `rows`; below 0: of another table. */
static void embedding_shape(const int32_t *list, int N, int C, int rows)
{
    enum dtype type = pair_type();
    size_t count = (size_t)N * (size_t)C, entries = (size_t)rows * (size_t)C;
    int32_t *sorted = malloc(((size_t)N + 1) * sizeof *sorted);
    int32_t *scratch = malloc(((size_t)rows + 1) * sizeof *scratch);
    embedding_order(sorted, list, N, rows, scratch);
    pairs_begin();
    struct pair ids = pair_of_ints(list, (size_t)N);
    struct pair order = pair_of_ints(sorted, (size_t)N);
    struct pair table = pair_of(type, entries, 1.0f, 1);
    struct pair set = pair_of(type, count, 1.0f, 2);
    struct pair added = pair_of(type, count, 1.0f, 3);
    struct pair dtable = pair_of(DTYPE_FP32, entries, 1.0f, 4);
    struct pair dout = pair_of(type, count, 0.1f, 6);
    RUN(embedding_forward(
            NULL, set.of[r], ids.of[r], table.of[r], N, C, false));
    RUN(embedding_forward(
            NULL, added.of[r], ids.of[r], table.of[r], N, C, true));
    RUN(embedding_backward(
            NULL, dtable.of[r], ids.of[r], order.of[r], dout.of[r], N, C));
    PAIRS_COMPARE(set, added, dtable);
    free(sorted), free(scratch);
}

/* Rows apart or not, added or not, with dropout or without. */
static void scale_rows_shape(int N, int C, int flags)
{
    enum dtype type = pair_type();
    int64_t stride = flags & 1 ? C + 5 : C;
    struct dropout dropout = {
            .threshold = flags & 2 ? 0x40000000u : 0,
            .key = 7 * (uint64_t)N,
            .first_sample = (int64_t)1 << 33,
            .first_row = 3,
            .T = 5,
            .columns = N > 7 ? 3 * C : 0, /* the middle of three places */
            .before = N > 7 ? C / 4 * 4 : 0};
    pairs_begin();
    struct pair x = pair_of(type, (size_t)N * (size_t)C, 1.0f, 1);
    struct pair out = pair_of(type, (size_t)N * (size_t)stride, 1.0f, 2);
    RUN(scale_rows(
            NULL, out.of[r], stride, x.of[r], N, C, 1.5f, &dropout, flags & 4));
    pair_compare(out);
}

static void scale_rows_case(void)
{
    static const int shapes[][2] = {{1, 1}, {7, 16}, {13, 67}, {37, 1030}};
    for (int s = 0; s < 4; s++)
        for (int flags = 0; flags < 8; flags++)
            scale_rows_shape(shapes[s][0], shapes[s][1], flags);
}

static void reduce_shape(int N, int C, bool accumulate)
{
    pairs_begin();
    struct pair x = pair_of(pair_type(), (size_t)N * (size_t)C, 0.1f, 6);
    struct pair sums = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 5);
    RUN(reduce_rows(NULL, sums.of[r], x.of[r], N, C, accumulate));
    pair_compare(sums);
}

static void embedding_case(void)
{
    for (int i = 0; i < 4; i++) {
        int N = i & 1 ? 37 : 700, C = i & 2 ? 48 : 509, rows = 13;
        int32_t ids[700];
        for (int n = 0; n < N; n++) /* ids repeat */
            ids[n] = i > 1 && n % 7 == 3 ? -1 : (n * n) % rows;
        embedding_shape(ids, N, C, rows);
        reduce_shape(N, C, i & 1);
    }
}

static enum zd_status run_cross_entropy(
        const struct kernels *ops, struct loss_rows rows,
        const struct pair *losses, const struct pair *d,
        const struct pair *logits, const struct pair *targets, int r)
{
    rows.losses = losses->of[r], rows.dlogits = d ? d->of[r] : NULL;
    rows.logits = logits->of[r], rows.targets = targets->of[r];
    return ops->cross_entropy(NULL, &rows);
}

/* The gradient in the place of the logits, where the types agree. */
static void cross_entropy_in_place(
        const float *logits, const struct pair *targets,
        const struct pair *expected, struct loss_rows rows)
{
    const struct kernels *ops = pair_enter(0);
    enum dtype type = ops->dtype;
    int n = rows.n, V = rows.slice.count, stride = rows.stride;
    size_t count = (size_t)n * (size_t)stride;
    if (type != ops->logits_dtype)
        return;
    struct pair same = pair_of_logits(logits, count);
    struct pair untouched = pair_of_logits(logits, count);
    struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 2);
    pair_enter(0); /* making pairs entered the other */
    rows.losses = losses.of[0], rows.targets = targets->of[0];
    rows.logits = rows.dlogits = same.of[0];
    if (ops->cross_entropy(NULL, &rows) != ZD_OK)
        pair_differs(INFINITY);
    char *in_place = pair_fetch(&same, 0), *apart = pair_fetch(expected, 0);
    char *was = pair_fetch(&untouched, 0);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * (size_t)stride * dtype_bytes(type);
        size_t end = at + (size_t)V * dtype_bytes(type);
        pair_differs(worst(in_place + at, apart + at, type, (size_t)V));
        if (memcmp(in_place + end, was + end,
                   (size_t)(stride - V) * dtype_bytes(type)) != 0)
            pair_differs(INFINITY);
    }
    free(in_place), free(apart), free(was);
}

/* What lies between rows is no number: a result that depends on it shows. Of
 * `d` it is the same on both sides and stays so. */
static void mapped_shape(
        int n, int V, int stride, float dloss, const struct logit_map *map)
{
    size_t count = (size_t)n * (size_t)stride;
    ZD_FREED float *floats = random_floats(count, 9.0f, 1);
    int32_t list[64];
    for (size_t i = 0; i < count; i++)
        if (i % (size_t)stride >= (size_t)V)
            floats[i] = NAN;
    for (int t = 0; t < n; t++)
        list[t] = t % 5 == 2 ? -1 : t * 13 % V;
    list[0] = V - 1;
    if (n > 1) /* far above those before it: e to their difference is inf */
        floats[stride + V - 1] = 120;
    pairs_begin();
    struct pair logits = pair_of_logits(floats, count);
    struct pair targets = pair_of_ints(list, (size_t)n);
    struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 2);
    struct pair alone = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 3);
    struct pair d = pair_of(pair_type(), count, 1.0f, 4);
    struct loss_rows rows = {
            .dloss = dloss,
            .n = n,
            .stride = stride,
            .slice = {0, V, V},
            .map = map};
    RUN_OF(run_cross_entropy(ops, rows, &losses, &d, &logits, &targets, r))
    RUN_OF(run_cross_entropy(ops, rows, &alone, NULL, &logits, &targets, r))
    cross_entropy_in_place(floats, &targets, &d, rows);
    PAIRS_COMPARE(losses, alone, d);
}

/* As they are, scaled, under a cap. */
static void cross_entropy_shape(int n, int V, int stride, float dloss)
{
    static const struct logit_map maps[] = {{0.125f, 0}, {1, 6}, {0.5f, 3}};
    mapped_shape(n, V, stride, dloss, NULL);
    for (int i = 0; i < 3; i++)
        mapped_shape(n, V, stride, dloss, &maps[i]);
}

/* Two results of the first table, of n rows, that differ by rounding only. */
static void expect_near(
        struct pair *a, struct pair *b, enum dtype type, int n, int count,
        int stride)
{
    char *x = pair_fetch(a, 0), *y = pair_fetch(b, 0);
    double most = 0;
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * (size_t)stride * dtype_bytes(type);
        most = fmax(most, worst(x + at, y + at, type, (size_t)count));
    }
    free(x), free(y);
    if (!(most <= (type == DTYPE_FP32 ? 4e-6 : 1e-2)))
        pair_differs(INFINITY);
}

/* A vocabulary of three slices, the last of which has columns that are padding;
 * the loss is that of the whole, and so is the gradient. */
static void row_losses_shape(
        int n, int V, int stride, const struct logit_map *map)
{
    enum { SLICES = 3 };
    int width = (V + SLICES - 1) / SLICES;
    size_t count = (size_t)n * (size_t)stride;
    ZD_FREED float *floats = random_floats(count, 9.0f, 1);
    int32_t list[64];
    for (int t = 0; t < n; t++)
        list[t] = t % 5 == 2 ? -1 : t * 13 % V;
    pairs_begin();
    struct pair logits = pair_of_logits(floats, count);
    struct pair targets = pair_of_ints(list, (size_t)n);
    struct pair scores = pair_of(DTYPE_FP32, 3 * SLICES * (size_t)n, 1.0f, 2);
    struct pair losses = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 3);
    struct pair whole = pair_of(DTYPE_FP32, (size_t)n, 1.0f, 4);
    struct pair d = pair_of(pair_type(), count, 1.0f, 5);
    struct pair of_whole = pair_of(pair_type(), count, 1.0f, 5);
    for (int part = 0; part < 2 * SLICES; part++) {
        int first = part % SLICES * width, left = V - first;
        struct loss_rows rows = {
                .dloss = 0.5f,
                .n = n,
                .stride = stride,
                .slice = {first, left < width ? left : width, width},
                .map = map};
        for (int r = 0; r < 2; r++) {
            const struct kernels *ops = pair_enter(r);
            struct row_score *all = scores.of[r];
            rows.losses = losses.of[r], rows.targets = targets.of[r];
            rows.dlogits =
                    (char *)d.of[r] + dtype_bytes(pair_type()) * (size_t)first;
            rows.logits = (const char *)logits.of[r] +
                          dtype_bytes(ops->logits_dtype) * (size_t)first;
            if ((part < SLICES
                         ? ops->row_scores(NULL, all + part * n, &rows)
                         : ops->row_losses(NULL, &rows, all, SLICES)) != ZD_OK)
                pair_differs(INFINITY);
        }
    }
    struct loss_rows rows = {
            .dloss = 0.5f,
            .n = n,
            .stride = stride,
            .slice = {0, V, V},
            .map = map};
    RUN_OF(run_cross_entropy(
            ops, rows, &whole, &of_whole, &logits, &targets, r))
    expect_near(&losses, &whole, DTYPE_FP32, 1, n, n);
    expect_near(&d, &of_whole, pair_type(), n, V, stride);
    PAIRS_COMPARE(losses, d);
}

static void row_losses_case(void)
{
    static const struct logit_map capped = {0.5f, 3};
    row_losses_shape(37, 2003, 2048, NULL);
    row_losses_shape(37, 2003, 2048, &capped);
    row_losses_shape(11, 62, 63, NULL);
}

static void cross_entropy_case(void)
{
    cross_entropy_shape(37, 2003, 2003, 0.5f);
    cross_entropy_shape(37, 2003, 2048, 0.5f);
    cross_entropy_shape(37, 509, 511, 0.5f);
}

/* --- what is special on a GPU ----------------------------------------------
 */

/* Rows that begin at any alignment, shorter than a pack too; large gradients,
 * so that the tolerance is one of their size. */
static void vocabulary_case(void)
{
    cross_entropy_shape(2, 50257, 50257, 64.0f);
    cross_entropy_shape(2, 50257, 50304, 64.0f);
    for (int V = 1; V < 20; V += 3)
        cross_entropy_shape(9, V, V, 64.0f);
    cross_entropy_shape(3, 1024, 1024, 64.0f);
}

/* Runs of equal ids: short, over the end of a piece, over several pieces, all
 * one; and rows of several tiles. */
static void runs_case(void)
{
    enum { N = 600 };
    int32_t ids[N];
    for (int kind = 0; kind < 4; kind++) {
        for (int n = 0; n < N; n++)
            ids[n] = kind == 0   ? n % 300
                     : kind == 1 ? (n % 7 ? 11 : n % 5)
                     : kind == 2 ? n * n % 31
                                 : 5;
        embedding_shape(ids, N, 72, 301);
        embedding_shape(ids, 33 + kind, 1600, 301);
        embedding_shape(ids, 64, 37, 301);
    }
    embedding_shape(ids, 0, 8, 6);
}

static void columns_case(void)
{
    static const int shapes[][2] = {{2000, 8}, {700, 2304}, {1, 1600},
                                    {65, 771}, {33, 1},     {0, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        reduce_shape(shapes[i][0], shapes[i][1], i & 1);
    rope_shape(32, 128, 128, 2 * 8 * 128, 0, false);
    rope_shape(3, 6, 6, 1, 0, true);
    activation_shape(0);
    activation_shape(2056);
}

/* What the table has in one pass, against the parts of the other. */
static void fused_case(void)
{
    enum dtype type = pair_type();
    static const int shapes[][3] = {{24, 48, 72}, {17, 136, 40}, {5, 33, 9}};
    pairs_begin();
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
        RUN(
                matmul(NULL, &(struct matmul){
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
        RUN(
                matmul(NULL, &(struct matmul){
                                     .M = M,
                                     .N = N,
                                     .K = K,
                                     .a = {x.of[r], type},
                                     .b = {w.of[r], type, i & 1},
                                     .out = {dpre.of[r], type},
                                     .epilogue = MATMUL_DGELU,
                                     .aux = p.of[r]}));
        for (int y_first = 0; y_first < 2; y_first++)
            RUN(matmul(
                    NULL,
                    &(struct matmul){
                            .M = y_first ? N : K,
                            .N = y_first ? K : N,
                            .K = M,
                            .a = {(y_first ? y : x).of[r], type, true},
                            .b = {(y_first ? x : y).of[r], type},
                            .out = {dw.of[r], DTYPE_FP32},
                            .epilogue = y_first ? MATMUL_SUM_A : MATMUL_SUM_B,
                            .aux = db.of[r],
                            .accumulate = y_first || i & 1}));
        PAIRS_COMPARE(out, pre, dpre, dw, db);
    }
}

double case_run(case_fn *run, struct runner a, struct runner b)
{
    pair_runners(a, b);
    run();
    pairs_begin();
    return pair_difference();
}

/* bf16 results differ by one unit in the last place where the sums before it
 * differ in their last bits: by 2^-7 of a value that is a power of two, and by
 * less of others (2^-6 / 3 at 2, which cuBLASLt was seen to do); fp16 results
 * by 2^-10. Where an operation is nearer than that, its limit is too. */
const struct op_case op_cases[] = {
        {"matmul", matmul_case, {4e-6, 0x1p-7, 0x1p-10}},
        {"norms", norm_case, {2e-5, 9e-3, 1.3e-3}},
        {"rmsnorm of heads", head_norm_case, {2e-5, 9e-3, 1.3e-3}},
        {"rope", rope_case, {1e-6, 5e-3, 7e-4}},
        {"rmsnorm of heads, rope", head_norm_rope_case, {2e-5, 1.3e-2, 2e-3}},
        {"activation", activation_case, {2e-6, 5e-3, 7e-4}},
        {"geglu", geglu_case, {4e-6, 0x1p-7, 0x1p-10}},
        {"rows with dropout", scale_rows_case, {2e-6, 9e-3, 1.3e-3}},
        {"gains of rows", row_gains_case, {2e-6, 2e-6, 2e-6}},
        {"columns with gains", scale_columns_case, {2e-6, 9e-3, 1.3e-3}},
        {"dots of columns", column_dots_case, {4e-6, 4e-6, 4e-6}},
        {"dequantize", dequantize_case, {0, 0, 0}},
        {"fp8, cast for matmuls", fp8_cast_case, {0, 0, 0}},
        {"fp8 matmul", fp8_matmul_case, {0, 0x1p-7, 0}},
        {"fp8 matmul, gradients", fp8_gradient_case, {0, 4e-6, 0}},
        {"fp8 matmul, every code", fp8_codes_case, {0, 4e-6, 0}},
        {"embedding", embedding_case, {4e-6, 5e-3, 7e-4}},
        {"cross_entropy", cross_entropy_case, {2e-6, 5e-3, 7e-4}},
        {"row_losses", row_losses_case, {2e-6, 5e-3, 7e-4}},
        {"attention", attention_case, {1e-5, 9e-3, 1.3e-3}},
        {"attention, windows and caps", window_case, {1e-5, 9e-3, 1.3e-3}},
        {"attention, shares of queries",
         attention_share_case,
         {1e-5, 9e-3, 1.3e-3}},
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
