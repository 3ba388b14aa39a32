#include "kernels/cpu/fast.h"
#include "kernels/norm/norm.h"

layernorm_forward_fn FAST(layernorm_forward);
layernorm_backward_fn FAST(layernorm_backward);
rmsnorm_forward_fn FAST(rmsnorm_forward);
rmsnorm_backward_fn FAST(rmsnorm_backward);
head_norm_forward_fn FAST(head_norm_forward);
head_norm_backward_fn FAST(head_norm_backward);

/* Columns whose gradients one task keeps in its first-level cache, and rows
 * summed before they join the total (a long sum of small numbers loses less
 * when it is made of short ones). */
enum { COLUMNS = 256, ROWS = 128 };

/* A row of C elements as `vectors` vectors; the last may be part of one. */
ALWAYS_INLINE vf row_sum(const elem *x, int C)
{
    vf even = {0}, odd = {0};
    int c = 0;
    for (; c + 2 * VL <= C; c += 2 * VL) {
        even += load(x + c);
        odd += load(x + c + VL);
    }
    for (; c < C; c += VL)
        even += load_some(x + c, C - c);
    return even + odd;
}

enum zd_status FAST(layernorm_forward)(
        struct stream *stream, void *out, float *mean, float *rstd,
        const void *x, const void *weight, const void *bias, float eps, int N,
        int C)
{
    const elem *ew = weight, *eb = bias;
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        const elem *row = (const elem *)x + (size_t)n * C;
        elem *o = (elem *)out + (size_t)n * C;
        float m = vf_sum(row_sum(row, C)) / (float)C;
        vf squares = {0};
        int c = 0;
        for (; c + VL <= C; c += VL) {
            vf d = load(row + c) - m;
            squares += d * d;
        }
        float tail = 0.0f;
        for (; c < C; c++) {
            float d = elem_to_float(row[c]) - m;
            tail += d * d;
        }
        float r = 1.0f / sqrtf((vf_sum(squares) + tail) / (float)C + eps);
        for (c = 0; c < C; c += VL) {
            vf xhat = (load_some(row + c, C - c) - m) * r;
            vf v = xhat * load_some(ew + c, C - c) + load_some(eb + c, C - c);
            store_some(o + c, v, C - c);
        }
        mean[n] = m;
        rstd[n] = r;
    }
    return ZD_OK;
}

/* Sums over the rows first..last of one block of columns: of dout xhat into
 * dw, of dout into db. mean is NULL for rmsnorm. */
ALWAYS_INLINE void column_sums(
        float *dw, float *db, const elem *dout, const elem *x,
        const float *mean, const float *rstd, int first, int last, int columns,
        int C)
{
    memset(dw, 0, COLUMNS * sizeof *dw);
    memset(db, 0, COLUMNS * sizeof *db);
    for (int n = first; n < last; n++) {
        const elem *g = dout + (size_t)n * C, *row = x + (size_t)n * C;
        float m = mean ? mean[n] : 0.0f, r = rstd[n];
        for (int c = 0; c < columns; c += VL) {
            vf vg = load_some(g + c, columns - c);
            vf xhat = (load_some(row + c, columns - c) - m) * r;
            vf_store(dw + c, vf_load(dw + c) + vg * xhat);
            if (mean)
                vf_store(db + c, vf_load(db + c) + vg);
        }
    }
}

ALWAYS_INLINE void add_columns(float *out, const float *sum, int columns)
{
    for (int c = 0; c < columns; c++)
        out[c] += sum[c];
}

/* Gradients of weight and bias. Threads share out the columns, so each sum
 * runs over the rows in order. */
ALWAYS_INLINE void parameter_gradients(
        float *dweight, float *dbias, const elem *dout, const elem *x,
        const float *mean, const float *rstd, int N, int C, bool accumulate)
{
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int first = 0; first < C; first += COLUMNS) {
        int columns = C - first < COLUMNS ? C - first : COLUMNS;
        float dw[COLUMNS], db[COLUMNS];
        if (!accumulate && dweight)
            memset(dweight + first, 0, (size_t)columns * sizeof *dweight);
        if (!accumulate && dbias)
            memset(dbias + first, 0, (size_t)columns * sizeof *dbias);
        for (int n = 0; n < N; n += ROWS) {
            column_sums(
                    dw, db, dout + first, x + first, mean, rstd, n,
                    N - n < ROWS ? N : n + ROWS, columns, C);
            if (dweight)
                add_columns(dweight + first, dw, columns);
            if (dbias)
                add_columns(dbias + first, db, columns);
        }
    }
}

/* Weights as they multiply; 0 past the last. */
ALWAYS_INLINE vf norm_factors(const elem *weight, int count, bool one_plus)
{
    vf w = load_some(weight, count);
    return one_plus ? 1.0f + w : w;
}

/* dx of one row; g = dout weight, xhat = (x - m) r. Without `center` (rmsnorm)
 * the mean of g is left out. */
ALWAYS_INLINE void row_gradient(
        elem *dx, const elem *dout, const elem *res, const elem *x,
        const elem *weight, float m, float r, int C, bool center, bool one_plus)
{
    vf sum_g = {0}, sum_gx = {0};
    for (int c = 0; c < C; c += VL) { /* lanes past C have g = 0 */
        vf g = load_some(dout + c, C - c) *
               norm_factors(weight + c, C - c, one_plus);
        sum_g += g;
        sum_gx += g * (load_some(x + c, C - c) - m);
    }
    float mean_g = center ? vf_sum(sum_g) / (float)C : 0.0f;
    float mean_gx = vf_sum(sum_gx) * r / (float)C;
    for (int c = 0; c < C; c += VL) {
        vf g = load_some(dout + c, C - c) *
               norm_factors(weight + c, C - c, one_plus);
        vf xhat = (load_some(x + c, C - c) - m) * r;
        vf d = r * (g - mean_g - xhat * mean_gx);
        if (res)
            d += load_some(res + c, C - c);
        store_some(dx + c, d, C - c);
    }
}

enum zd_status FAST(layernorm_backward)(
        struct stream *stream, void *dx, float *dweight, float *dbias,
        const void *dout, const void *dresidual, const void *x,
        const void *weight, const float *mean, const float *rstd, int N, int C,
        bool accumulate)
{
    const elem *res = dresidual;
    if (dweight || dbias) /* before dx, which may be dout */
        parameter_gradients(
                dweight, dbias, dout, x, mean, rstd, N, C, accumulate);
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        size_t at = (size_t)n * C;
        row_gradient(
                (elem *)dx + at, (const elem *)dout + at, res ? res + at : NULL,
                (const elem *)x + at, weight, mean[n], rstd[n], C, true, false);
    }
    return ZD_OK;
}

enum zd_status FAST(rmsnorm_forward)(
        struct stream *stream, void *out, float *rstd, const void *x,
        const void *weight, float eps, enum rmsnorm_form form, int N, int C)
{
    const elem *ew = weight;
    bool round_first = form == RMSNORM_ROUND_FIRST;
    bool one_plus = form == RMSNORM_ONE_PLUS;
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        const elem *row = (const elem *)x + (size_t)n * C;
        elem *o = (elem *)out + (size_t)n * C;
        vf squares = {0};
        for (int c = 0; c < C; c += VL) {
            vf v = load_some(row + c, C - c);
            squares += v * v;
        }
        float r = 1.0f / sqrtf(vf_sum(squares) / (float)C + eps);
        for (int c = 0; c < C; c += VL) {
            vf xhat = load_some(row + c, C - c) * r;
            if (round_first)
                xhat = round_to_elem(xhat);
            store_some(
                    o + c, xhat * norm_factors(ew + c, C - c, one_plus), C - c);
        }
        rstd[n] = r;
    }
    return ZD_OK;
}

enum zd_status FAST(rmsnorm_backward)(
        struct stream *stream, void *dx, float *dweight, const void *dout,
        const void *dresidual, const void *x, const void *weight,
        const float *rstd, enum rmsnorm_form form, int N, int C,
        bool accumulate)
{
    const elem *res = dresidual;
    if (dweight) /* before dx, which may be dout */
        parameter_gradients(
                dweight, NULL, dout, x, NULL, rstd, N, C, accumulate);
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        size_t at = (size_t)n * C;
        elem *d = (elem *)dx + at;
        const elem *o = (const elem *)dout + at, *in = (const elem *)x + at;
        const elem *r = res ? res + at : NULL;
        /* each form compiled by itself: what -ffp-contract fuses, and so the
         * bits, would depend on the other */
        if (form == RMSNORM_ONE_PLUS)
            row_gradient(d, o, r, in, weight, 0.0f, rstd[n], C, false, true);
        else
            row_gradient(d, o, r, in, weight, 0.0f, rstd[n], C, false, false);
    }
    return ZD_OK;
}

/* Dense heads are rows; else each token's are. */
enum zd_status FAST(head_norm_forward)(
        struct stream *stream, void *out, float *rstd, const void *x,
        const void *weight, float eps, enum rmsnorm_form form, int N, int H,
        int D, int64_t out_stride, int64_t x_stride)
{
    if (out_stride == (int64_t)H * D && x_stride == out_stride)
        return FAST(rmsnorm_forward)(
                stream, out, rstd, x, weight, eps, form, N * H, D);
    for (int n = 0; n < N; n++)
        ZD_TRY(FAST(rmsnorm_forward)(
                stream, (elem *)out + n * out_stride, rstd + (size_t)n * H,
                (const elem *)x + n * x_stride, weight, eps, form, H, D));
    return ZD_OK;
}

enum zd_status FAST(head_norm_backward)(
        struct stream *stream, void *dx, float *dweight, const void *dout,
        const void *x, const void *weight, const float *rstd,
        enum rmsnorm_form form, int N, int H, int D, int64_t out_stride,
        int64_t x_stride, bool accumulate)
{
    if (out_stride == (int64_t)H * D && x_stride == out_stride)
        return FAST(rmsnorm_backward)(
                stream, dx, dweight, dout, NULL, x, weight, rstd, form, N * H,
                D, accumulate);
    for (int n = 0; n < N; n++)
        ZD_TRY(FAST(rmsnorm_backward)(
                stream, (elem *)dx + n * x_stride, dweight,
                (const elem *)dout + n * out_stride, NULL,
                (const elem *)x + n * x_stride, weight, rstd + (size_t)n * H,
                form, H, D, accumulate || n > 0));
    return ZD_OK;
}
