/* The plain definitions' gradients against central differences of the same
 * definitions in double, which are accurate to nine digits. */
#include "arrays.h"

#include "kernels/kernels.h"
#include "kernels/plain.h"

#include <assert.h>
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* The same definitions with every array in double. */
#define ELEM     double
#define REAL     double
#define DTYPE    DTYPE_FP32
#define LOAD(x)  (x)
#define ROUND(v) (v)
#define NAME(op) op##_double

/* Only the forward directions are used. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "kernels/plain_ops.inc"
#include "tests/support/must.h"

#define STEP      1e-5
#define TOLERANCE 2e-6 /* of 1 + |gradient|: fp32 inputs, one fp32 rounding */

/* The loss is sum_i weights_i out_i, so dout = weights. */
struct probe {
    size_t count;
    double *out;
    float *weights;
    double (*loss)(const struct probe *);
    /* inputs of the current operation */
    double *x, *y, *z;
    double *mean, *rstd, *lse;
    int N, C, V;
    const int32_t *ids;
    struct attention_shape shape;
    enum rmsnorm_form form;
    enum gate gate;
    const struct logit_map *map;
};

static double weighted(const struct probe *p)
{
    double sum = 0.0;
    for (size_t i = 0; i < p->count; i++)
        sum += p->out[i] * (double)p->weights[i];
    return sum;
}

/* Arrays of one test (each test is a process). */
static void *kept[32];
static int kept_count;

static void *keep(void *array)
{
    assert(kept_count < 32);
    return kept[kept_count++] = array;
}

static void free_kept(void)
{
    while (kept_count)
        free(kept[--kept_count]);
}

TestSuite(kernels_plain, .fini = free_kept);

/* A random array that lives until the end of the test. */
static float *floats(size_t count, float scale, uint64_t seed)
{
    return keep(random_floats(count, scale, seed));
}

static double *widened(const float *in, size_t count)
{
    double *out = keep(malloc(count * sizeof *out));
    for (size_t i = 0; i < count; i++)
        out[i] = (double)in[i];
    return out;
}

/* `gradient` of p->loss with respect to `x`, an array of the probe. */
static void expect_gradient(
        const struct probe *p, double *x, const float *gradient, size_t count,
        const char *name)
{
    double most = 0.0;
    for (size_t i = 0; i < count; i++) {
        double here = x[i];
        x[i] = here + STEP;
        double above = p->loss(p);
        x[i] = here - STEP;
        double below = p->loss(p);
        x[i] = here;
        double expected = (above - below) / (2.0 * STEP);
        double error =
                fabs(expected - (double)gradient[i]) / (1.0 + fabs(expected));
        most = error > most || isnan(error) ? error : most;
    }
    cr_expect(most <= TOLERANCE, "%s: differs by %g", name, most);
}

/* `mean` NULL: rmsnorm. */
static double norm_loss(const struct probe *p)
{
    norm_forward_double(
            NULL, &(struct norm_forward){
                          .out = p->out,
                          .mean = (float *)p->mean,
                          .rstd = (float *)p->rstd,
                          .x = p->x,
                          .weight = p->y,
                          .bias = p->z,
                          .eps = 1e-5f,
                          .form = p->form,
                          .N = p->N,
                          .C = p->C});
    return weighted(p);
}

Test(kernels_plain, gradients_of_norms_match_finite_differences)
{
    const struct kernels *k = &kernels_plain_fp32;
    enum { N = 5, C = 13 };
    float *x = floats(N * C, 2.0f, 1), *w = floats(C, 1.0f, 2);
    float *bias = floats(C, 1.0f, 3), *dout;
    float out[N * C], mean[N], rstd[N], dx[N * C], dw[C], db[C];
    double dout_[N * C], mean_[N], rstd_[N];
    dout = floats(N * C, 1.0f, 4);
    struct probe p = {
            .count = N * C,
            .out = dout_,
            .weights = dout,
            .loss = norm_loss,
            .x = widened(x, N * C),
            .y = widened(w, C),
            .z = widened(bias, C),
            .mean = mean_,
            .rstd = rstd_,
            .N = N,
            .C = C};
    for (int form = RMSNORM_ONE_PLUS + 1; form >= 0; form--) {
        bool centered = form > RMSNORM_ONE_PLUS; /* layernorm */
        p.form = centered ? RMSNORM_ROUND_FIRST : (enum rmsnorm_form)form;
        p.mean = centered ? mean_ : NULL;
        k->norm_forward(
                NULL, &(struct norm_forward){
                              .out = out,
                              .mean = centered ? mean : NULL,
                              .rstd = rstd,
                              .x = x,
                              .weight = w,
                              .bias = bias,
                              .eps = 1e-5f,
                              .form = p.form,
                              .N = N,
                              .C = C});
        k->norm_backward(
                NULL, &(struct norm_backward){
                              .dx = dx,
                              .dweight = dw,
                              .dbias = centered ? db : NULL,
                              .dout = dout,
                              .x = x,
                              .weight = w,
                              .mean = centered ? mean : NULL,
                              .rstd = rstd,
                              .form = p.form,
                              .N = N,
                              .C = C});
        expect_gradient(&p, p.x, dx, N * C, "norm x");
        expect_gradient(&p, p.y, dw, C, "norm weight");
        if (centered)
            expect_gradient(&p, p.z, db, C, "layernorm bias");
    }
}

static double gelu_loss(const struct probe *p)
{
    gelu_forward_double(NULL, p->out, p->x, p->count);
    return weighted(p);
}

static double gated_loss(const struct probe *p)
{
    gated_forward_double(
            NULL, p->gate, p->out, p->x, p->y, 1, (int)p->count, 0);
    return weighted(p);
}

Test(kernels_plain, gradients_of_activations_match_finite_differences)
{
    const struct kernels *k = &kernels_plain_fp32;
    enum { COUNT = 101 };
    float *x = floats(COUNT, 5.0f, 1), *u = floats(COUNT, 2, 2);
    float *dout = floats(COUNT, 1.0f, 3), dx[COUNT], du[COUNT];
    double out[COUNT];
    struct probe p = {
            .count = COUNT,
            .out = out,
            .weights = dout,
            .loss = gelu_loss,
            .x = widened(x, COUNT),
            .y = widened(u, COUNT)};
    k->gelu_backward(NULL, dx, dout, x, COUNT);
    expect_gradient(&p, p.x, dx, COUNT, "gelu");
    p.loss = gated_loss;
    for (int gate = GATE_SILU; gate <= GATE_GELU; gate++) {
        p.gate = (enum gate)gate;
        k->gated_backward(NULL, p.gate, dx, du, dout, x, u, 1, COUNT, COUNT);
        expect_gradient(&p, p.x, dx, COUNT, "gate");
        expect_gradient(&p, p.y, du, COUNT, "up");
    }
}

static double cross_entropy_loss(const struct probe *p)
{
    struct loss_rows rows = {
            (float *)p->out, NULL,  p->x, p->ids, 1.0f, p->N, p->V,
            {0, p->V, p->V}, p->map};
    cross_entropy_double(NULL, &rows);
    return weighted(p);
}

Test(kernels_plain, gradient_of_cross_entropy_matches_finite_differences)
{
    enum { N = 4, V = 29 };
    static const int32_t targets[N] = {3, -1, 0, 28};
    float *logits = floats(N * V, 4.0f, 1), losses[N], d[N * V];
    float weights[N] = {0.25f, 0.25f, 0.25f, 0.25f};
    double out[N];
    struct probe p = {
            .count = N,
            .out = out,
            .weights = weights,
            .loss = cross_entropy_loss,
            .x = widened(logits, N * V),
            .N = N,
            .V = V,
            .ids = targets};
    static const struct logit_map maps[] = {{0.5f, 0}, {1, 3}, {2, 3}};
    for (int i = 0; i < 4; i++) {
        p.map = i ? &maps[i - 1] : NULL;
        struct loss_rows rows = {losses, d, logits,    targets, 0.25f,
                                 N,      V, {0, V, V}, p.map};
        kernels_plain_fp32.cross_entropy(NULL, &rows);
        expect_gradient(&p, p.x, d, N * V, "cross entropy");
        cr_expect_eq(losses[1], 0.0f);
    }
}

static double attention_loss(const struct probe *p)
{
    struct attention a = {&p->shape, p->x, p->y,   p->z,
                          p->ids,    NULL, p->out, (float *)p->lse};
    attention_forward_double(NULL, &a);
    return weighted(p);
}

Test(kernels_plain, gradients_of_attention_match_finite_differences)
{
    enum { T = 9, H = 4, KV = 2, D = 6, QS = H * D + 3, KS = KV * D + 1 };
    static const int32_t starts[2 * T] = {0, 0, 0, 0, 4, 4, 4, 7, 7,
                                          0, 0, 0, 0, 0, 0, 0, 0, 0};
    float *q = floats(2 * T * QS, 2.0f, 1), *dout;
    float *k = floats(2 * T * KS, 2.0f, 2);
    float *v = floats(2 * T * KS, 1.0f, 3);
    float out[2 * T * H * D], lse[2 * H * T];
    float dq[2 * T * QS] = {0}, dk[2 * T * KS] = {0}, dv[2 * T * KS] = {0};
    double out_[2 * T * H * D], lse_[2 * H * T];
    dout = floats(2 * T * H * D, 1.0f, 4);
    struct probe p = {
            .count = 2 * T * H * D,
            .out = out_,
            .weights = dout,
            .loss = attention_loss,
            .x = widened(q, 2 * T * QS),
            .y = widened(k, 2 * T * KS),
            .z = widened(v, 2 * T * KS),
            .lse = lse_,
            .ids = starts,
            .shape = {2, T, H, KV, D, QS, KS, KS, 0.4f}};
    for (int i = 0; i < 4; i++) { /* window, cap, both */
        p.shape.window = i & 1 ? 3 : 0;
        p.shape.softcap = i & 2 ? 1.5f : 0;
        struct attention a = {&p.shape, q,   k,    v,  starts, NULL,
                              out,      lse, dout, dq, dk,     dv};
        kernels_plain_fp32.attention_forward(NULL, &a);
        kernels_plain_fp32.attention_backward(NULL, &a);
        expect_gradient(&p, p.x, dq, 2 * T * QS, "attention q");
        expect_gradient(&p, p.y, dk, 2 * T * KS, "attention k");
        expect_gradient(&p, p.z, dv, 2 * T * KS, "attention v");
    }
}

/* Backward is the transpose of forward: <R x, y> = <x, R^T y>. */
Test(kernels_plain, backward_of_linear_operations_is_their_transpose)
{
    const struct kernels *k = &kernels_plain_fp32;
    enum { N = 7, H = 3, D = 8, S = H * D, ROWS = 4 };
    float *x = floats(N * S, 1.0f, 1), *y = floats(N * S, 1, 2);
    float *rx = keep(copy_of(x, N * S * sizeof *x));
    float *ry = keep(copy_of(y, N * S * sizeof *y));
    float *table = floats(N * D, 3.14f, 3), cosine[N * D], sine[N * D];
    static const int32_t positions[N] = {0, 1, 2, 0, 1, 6, 5};
    for (int i = 0; i < N * D / 2; i++) {
        cosine[i] = cosf(table[i]);
        sine[i] = sinf(table[i]);
    }
    double left, right, moved;
    for (int kind = 0; kind < 4; kind++) {
        const struct rope_angles angles = {
                .cosine = cosine,
                .sine = sine,
                .positions = positions,
                .pairs = kind & 2 ? 2 : 0,
                .interleaved = kind & 1};
        memcpy(rx, x, N * S * sizeof *x);
        memcpy(ry, y, N * S * sizeof *y);
        k->rope(NULL, rx, &angles, N, H, D, S, false);
        k->rope(NULL, ry, &angles, N, H, D, S, true);
        left = right = moved = 0.0;
        for (int i = 0; i < N * S; i++) {
            left += (double)rx[i] * (double)y[i];
            right += (double)x[i] * (double)ry[i];
            moved += fabs((double)rx[i] - (double)x[i]);
        }
        cr_expect_float_eq(left, right, 1e-5);
        cr_expect_gt(moved, 1.0);
    }

    static const int32_t ids[N] = {3, 0, 3, 1, 3, 0, 1};
    float weights[ROWS * S], d[ROWS * S] = {0}, out[N * S];
    memcpy(weights, floats(ROWS * S, 1.0f, 5), sizeof weights);
    k->embedding_forward(NULL, out, ids, weights, N, S, false);
    k->embedding_backward(NULL, d, ids, NULL, y, N, S);
    left = right = 0.0;
    for (int i = 0; i < N * S; i++)
        left += (double)out[i] * (double)y[i];
    for (int i = 0; i < ROWS * S; i++)
        right += (double)weights[i] * (double)d[i];
    cr_expect_float_eq(left, right, 1e-5);
}

/* One row of decode is the last row of forward. */
Test(kernels_plain, decode_matches_forward)
{
    const struct kernels *k = &kernels_plain_fp32;
    enum { T = 11, H = 4, KV = 2, D = 6 };
    struct attention_shape s = {1, T, H, KV, D, H * D, KV * D, KV * D, 0.4f};
    static const int32_t starts[T] = {0};
    float *q = floats(T * H * D, 2.0f, 1);
    float *key = floats(T * KV * D, 2.0f, 2);
    float *value = floats(T * KV * D, 1.0f, 3);
    float whole[T * H * D], lse[H * T], last[2 * H * D];
    for (int i = 0; i < 4; i++) { /* window, cap, both */
        s.window = i & 1 ? 4 : 0;
        s.softcap = i & 2 ? 1.5f : 0;
        struct attention a = {&s, q, key, value, starts, NULL, whole, lse};
        k->attention_forward(NULL, &a);
        a.q = q + (T - 2) * H * D, a.out = last;
        k->attention_decode(NULL, &a, 2, T - 2);
        cr_expect(
                worst(last, whole + (T - 2) * H * D, DTYPE_FP32, 2 * H * D) <
                1e-6);
    }
}

/* Places that share a sample compute rows of the whole result, and gradients of
 * keys and values that add up to the whole. */
Test(kernels_plain, shares_of_queries_make_up_attention)
{
    const struct kernels *k = &kernels_plain_fp32;
    enum { T = 24, H = 4, KV = 2, D = 6, PLACES = 3, Q = T / PLACES };
    struct attention_shape s = {1, T, H, KV, D, H * D, KV * D, KV * D, 0.4f};
    float *q = floats(T * H * D, 2.0f, 1), *dout = floats(T * H * D, 1.0f, 4);
    float *key = floats(T * KV * D, 2.0f, 2);
    float *value = floats(T * KV * D, 1.0f, 3);
    float out[T * H * D], lse[H * T], dq[T * H * D];
    float dk[2][T * KV * D], dv[2][T * KV * D], sum[2][T * KV * D] = {{0}};
    int32_t starts[T];
    for (int t = 0; t < T; t++)
        starts[t] = t < 5 ? 0 : 5;
    s.window = 13, s.softcap = 1.5f;
    struct attention a = {&s,  q,   key,  value, starts, NULL,
                          out, lse, dout, dq,    dk[0],  dv[0]};
    k->attention_forward(NULL, &a);
    k->attention_backward(NULL, &a);
    for (int place = 0; place < PLACES; place++) {
        float own[3][Q * H * D], own_lse[H * Q], own_dq[Q * H * D];
        int32_t own_starts[Q];
        s.queries = attention_share(T, PLACES, place);
        for (int r = 0; r < Q; r++) {
            int t = attention_token(s.queries, r);
            own_starts[r] = starts[t];
            cr_expect_eq(attention_row(s.queries, t), r);
            memcpy(own[0] + r * H * D, q + t * H * D, H * D * sizeof(float));
            memcpy(own[1] + r * H * D, dout + t * H * D, H * D * sizeof(float));
        }
        a = (struct attention){&s,         own[0], key,    value,
                               own_starts, NULL,   own[2], own_lse,
                               own[1],     own_dq, dk[1],  dv[1]};
        k->attention_forward(NULL, &a);
        k->attention_backward(NULL, &a);
        for (int r = 0; r < Q; r++) {
            int t = attention_token(s.queries, r) * H * D;
            size_t row = H * D * sizeof(float);
            cr_expect_arr_eq(own[2] + r * H * D, out + t, row);
            cr_expect_arr_eq(own_dq + r * H * D, dq + t, row);
        }
        for (int i = 0; i < T * KV * D; i++)
            sum[0][i] += dk[1][i], sum[1][i] += dv[1][i];
    }
    cr_expect(worst(sum[0], dk[0], DTYPE_FP32, T * KV * D) < 1e-6);
    cr_expect(worst(sum[1], dv[0], DTYPE_FP32, T * KV * D) < 1e-6);
}

Test(kernels_plain, matmul_transposes_and_accumulates)
{
    const struct kernels *k = &kernels_plain_fp32;
    static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 0, 1, 1, 1};
    static const float bias[] = {10, 20};
    float out[4];
    struct matmul m = {
            .M = 2,
            .N = 2,
            .K = 3,
            .a = {a, DTYPE_FP32},
            .b = {b, DTYPE_FP32},
            .out = {out, DTYPE_FP32},
            .bias = bias};
    k->matmul(NULL, &m);
    cr_expect_arr_eq(out, ((float[]){14, 25, 20, 31}), sizeof out);
    m.a.transposed = m.b.transposed = m.accumulate = true;
    k->matmul(NULL, &m);
    cr_expect_arr_eq(out, ((float[]){25, 54, 32, 63}), sizeof out);
}

/* Dropout of rows of ones: the dropped share, and independence of tokens and
 * elements, keyed by the index in the batch. */
Test(kernels_plain, dropout_depends_on_token_and_element)
{
    enum { N = 64, C = 257, SHIFT = 3 };
    static float ones[N * C], out[N * C], later[N * C];
    const struct kernels *ops;
    struct dropout dropout = {.threshold = 0x40000000u, .key = 5, .T = 16};
    for (int i = 0; i < N * C; i++)
        ones[i] = 1;
    MUST(kernels_plain(DTYPE_FP32, &ops));
    MUST(ops->scale_rows(NULL, out, C, ones, N, C, 1, &dropout, false));
    dropout.first_row = SHIFT;
    MUST(ops->scale_rows(NULL, later, C, ones, N, C, 1, &dropout, false));
    int dropped = 0;
    for (int i = 0; i < N * C; i++)
        dropped += out[i] == 0;
    cr_expect_float_eq((double)dropped / (N * C), 0.25, 0.015);
    cr_expect_arr_eq(later, out + SHIFT * C, (N - SHIFT) * C * sizeof(float));
    for (int n = 0; n < N; n++)
        for (int m = 0; m < n; m++)
            cr_expect(
                    memcmp(out + n * C, out + m * C, C * sizeof(float)) != 0,
                    "tokens %d and %d drop the same", n, m);
    for (int c = 0; c < C; c++)
        for (int d = 0; d < c; d++) {
            int same = 0;
            for (int n = 0; n < N; n++)
                same += (out[n * C + c] == 0) == (out[n * C + d] == 0);
            cr_expect(same < N, "elements %d and %d drop the same", c, d);
        }
}

/* --- FP8 ------------------------------------------------------------------ */

enum { ROWS8 = 150, COLUMNS8 = 272, PADDED8 = 160, OUT8 = 144 };

/* A tensor cast both ways; scales as many as the largest layout has. */
struct cast8 {
    uint8_t codes[ROWS8 * COLUMNS8], turned[COLUMNS8 * PADDED8];
    float scales[3 * 152], turned_scales[3 * COLUMNS8];
};

/* Element (r, k) of a matrix of `rows` rows: its code times the scale that lies
 * where fp8.h says. */
static double value8(
        const uint8_t *codes, const float *scales, enum scale_layout layout,
        int rows, int K, int r, int k)
{
    int blocks = (K + 127) / 128, across = (blocks + 3) / 4 * 4;
    int down = rows / 4 * 4, last = blocks * down + k / 128 * 4 + r - down;
    float scale = layout == SCALES_TENSOR ? scales[0]
                  : layout == SCALES_128X128
                          ? scales[r / 128 * across + k / 128]
                          : scales[r < down ? k / 128 * down + r : last];
    return (double)fp8_to_float(codes[r * K + k], DTYPE_E4M3) * (double)scale;
}

static void cast8(
        struct cast8 *out, const uint16_t *x, int rows,
        enum scale_layout layout)
{
    const struct kernels *k = &kernels_plain_bf16;
    float amax;
    k->fp8_amax(NULL, &amax, x, DTYPE_BF16, rows, COLUMNS8, COLUMNS8, false);
    k->fp8_cast(
            NULL, &(struct fp8_cast){
                          .x = x,
                          .from = DTYPE_BF16,
                          .rows = rows,
                          .columns = COLUMNS8,
                          .stride = COLUMNS8,
                          .to = DTYPE_E4M3,
                          .layout = layout,
                          .amax = layout == SCALES_TENSOR ? &amax : NULL,
                          .codes = out->codes,
                          .scales = out->scales,
                          .transposed = out->turned,
                          .transposed_scales = out->turned_scales,
                          .padded = fp8_padded(rows)});
}

/* Columns 128 to 255 are zeros; others differ from block to block by more than
 * codes can. */
static uint16_t *tensor8(int rows, float scale, uint64_t seed)
{
    float *x = floats((size_t)(rows * COLUMNS8), scale, seed);
    uint16_t *narrow = keep(malloc((size_t)(rows * COLUMNS8) * 2));
    for (int i = 0; i < rows * COLUMNS8; i++) {
        int c = i % COLUMNS8;
        x[i] *= c < 128 ? 1 : c < 256 ? 0 : 1e-6f;
        narrow[i] = float_to_bf16(x[i]);
    }
    return narrow;
}

Test(kernels_plain, fp8_codes_and_their_transpose_stand_for_the_tensor)
{
    uint16_t *x = tensor8(ROWS8, 3.0f, 1);
    for (int l = SCALES_TENSOR; l <= SCALES_128X128; l++) {
        struct cast8 *cast = keep(calloc(1, sizeof *cast));
        enum scale_layout layout = (enum scale_layout)l;
        cast8(cast, x, ROWS8, layout);
        for (int r = 0; r < PADDED8; r++)
            for (int c = 0; c < COLUMNS8; c++) {
                double turned =
                        value8(cast->turned, cast->turned_scales, layout,
                               COLUMNS8, PADDED8, c, r);
                if (r >= ROWS8) {
                    cr_assert_eq(cast->turned[c * PADDED8 + r], 0);
                    continue;
                }
                double want = (double)bf16_to_float(x[r * COLUMNS8 + c]);
                double got =
                        value8(cast->codes, cast->scales, layout, ROWS8,
                               COLUMNS8, r, c);
                double block = layout == SCALES_TENSOR || c < 128 ? 3.0 : 3e-6;
                double most = fabs(want) / 16 + block / 448 * 0x1p-10;
                cr_assert_leq(fabs(got - want), most);
                cr_assert_leq(fabs(turned - want), most);
                if (layout != SCALES_1X128)
                    cr_assert_eq(got, turned);
            }
        if (layout == SCALES_128X128) /* of zeros alone */
            cr_assert(cast->scales[1] == 1 && cast->scales[5] == 1);
    }
}

static void check_matmul8(
        const struct kernels *k, enum scale_layout of_a, enum scale_layout of_b)
{
    static float out[ROWS8 * OUT8];
    struct cast8 *a = keep(calloc(1, sizeof *a));
    struct cast8 *b = keep(calloc(1, sizeof *b));
    cast8(a, tensor8(ROWS8, 3.0f, 1), ROWS8, of_a);
    cast8(b, tensor8(OUT8, 0.1f, 2), OUT8, of_b);
    k->matmul(
            NULL, &(struct matmul){
                          .M = ROWS8,
                          .N = OUT8,
                          .K = COLUMNS8,
                          .a = {a->codes, DTYPE_E4M3, .scales = a->scales,
                                .layout = of_a},
                          .b = {b->codes, DTYPE_E4M3, true, .scales = b->scales,
                                .layout = of_b},
                          .out = {out, DTYPE_FP32}});
    for (int m = 0; m < ROWS8; m++)
        for (int n = 0; n < OUT8; n++) {
            double sum = 0;
            for (int c = 0; c < COLUMNS8; c++)
                sum += value8(a->codes, a->scales, of_a, ROWS8, COLUMNS8, m,
                              c) *
                       value8(b->codes, b->scales, of_b, OUT8, COLUMNS8, n, c);
            cr_assert_float_eq((double)out[m * OUT8 + n], sum, 4e-6);
        }
    free_kept();
}

Test(kernels_plain, fp8_matmul_multiplies_codes_with_their_scales)
{
    const struct kernels *chosen;
    MUST(kernels_cpu(DTYPE_BF16, &chosen));
    for (int i = 0; i < 2; i++) {
        const struct kernels *k = i ? chosen : &kernels_plain_bf16;
        check_matmul8(k, SCALES_TENSOR, SCALES_TENSOR);
        check_matmul8(k, SCALES_1X128, SCALES_128X128);
        check_matmul8(k, SCALES_1X128, SCALES_1X128);
        check_matmul8(k, SCALES_128X128, SCALES_1X128);
    }
}
