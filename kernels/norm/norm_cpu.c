#include "kernels/cpu/fast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/norm.h"

norm_forward_fn FAST(norm_forward);
norm_backward_fn FAST(norm_backward);
head_norm_rope_forward_fn FAST(head_norm_rope_forward);
head_norm_rope_backward_fn FAST(head_norm_rope_backward);
add_fn FAST(add);
rope_fn FAST(rope);

/* Columns whose gradients one task keeps in its first-level cache, at most, and
 * rows summed before they join the total: a long sum of small numbers loses
 * less when it is made of short ones, and dx of these rows finds them in the
 * second-level cache. */
enum { COLUMNS = 1024, ROWS = 128 };

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

static void layernorm_row(
        const struct norm_forward *p, int64_t n, elem *out, const elem *row)
{
    const elem *ew = p->weight, *eb = p->bias;
    int C = p->C, c = 0;
    float m = vf_sum(row_sum(row, C)) / (float)C, tail = 0.0f;
    vf squares = {0};
    for (; c + VL <= C; c += VL) {
        vf d = load(row + c) - m;
        squares += d * d;
    }
    for (; c < C; c++) {
        float d = elem_to_float(row[c]) - m;
        tail += d * d;
    }
    float r = 1.0f / sqrtf((vf_sum(squares) + tail) / (float)C + p->eps);
    for (c = 0; c < C; c += VL) {
        vf xhat = (load_some(row + c, C - c) - m) * r;
        vf v = xhat * load_some(ew + c, C - c) + load_some(eb + c, C - c);
        store_some(out + c, v, C - c);
    }
    p->mean[n] = m;
    p->rstd[n] = r;
}

/* Weights as they multiply; 0 past the last. */
ALWAYS_INLINE vf norm_factors(const elem *weight, int count, bool one_plus)
{
    vf w = load_some(weight, count);
    return one_plus ? 1.0f + w : w;
}

ALWAYS_INLINE void scaled_row(
        elem *out, const elem *row, const elem *weight, float r, int C,
        bool round_first, bool one_plus)
{
    for (int c = 0; c < C; c += VL) {
        vf xhat = load_some(row + c, C - c) * r;
        if (round_first)
            xhat = round_to_elem(xhat);
        store_some(
                out + c, xhat * norm_factors(weight + c, C - c, one_plus),
                C - c);
    }
}

static void rmsnorm_row(
        const struct norm_forward *p, int64_t n, elem *out, const elem *row)
{
    int C = p->C, width = norm_width(&p->parts, C);
    vf squares = {0};
    for (int c = 0; c < C; c += VL) {
        vf v = load_some(row + c, C - c);
        squares += v * v;
    }
    float sum = vf_sum(squares);
    if (!p->out) {
        p->parts.mine[n] = sum;
        return;
    }
    sum = norm_sum(&p->parts, n, sum);
    float r = 1.0f / sqrtf(sum / (float)width + p->eps);
    if (p->form == RMSNORM_ROUND_FIRST)
        scaled_row(out, row, p->weight, r, C, true, false);
    else
        scaled_row(
                out, row, p->weight, r, C, false, p->form == RMSNORM_ONE_PLUS);
    p->rstd[n] = r;
}

enum zd_status FAST(norm_forward)(
        struct stream *stream, const struct norm_forward *p)
{
    const elem *x = p->add ? p->sum : p->x;
    int64_t rows = norm_rows(p->N, p->heads);
    size_t count = (size_t)rows * (size_t)p->C;
    if (p->add)
        ZD_TRY(FAST(add)(stream, p->sum, p->x, p->add, count));
#pragma omp parallel for num_threads(threads_for(count))
    for (int64_t n = 0; n < rows; n++)
        (p->mean ? layernorm_row : rmsnorm_row)(
                p, n,
                p->out ? (elem *)p->out +
                                 norm_row(n, p->C, p->heads, p->out_stride)
                       : NULL,
                x + norm_row(n, p->C, p->heads, p->x_stride));
    return ZD_OK;
}

/* Adds over the rows first..last of one block of columns: of dout xhat to
 * dweight, of dout to dbias. */
static void column_sums(
        const struct norm_backward *p, int64_t first, int64_t last, int column,
        int columns)
{
    float dw[COLUMNS] = {0}, db[COLUMNS] = {0};
    for (int64_t n = first; n < last; n++) {
        const elem *g = (const elem *)p->dout + column +
                        norm_row(n, p->C, p->heads, p->out_stride);
        const elem *row = (const elem *)p->x + column +
                          norm_row(n, p->C, p->heads, p->x_stride);
        float m = p->mean ? p->mean[n] : 0.0f, r = p->rstd[n];
        for (int c = 0; c < columns; c += VL) {
            vf vg = load_some(g + c, columns - c);
            vf xhat = (load_some(row + c, columns - c) - m) * r;
            vf_store(dw + c, vf_load(dw + c) + vg * xhat);
            if (p->dbias)
                vf_store(db + c, vf_load(db + c) + vg);
        }
    }
    for (int c = 0; p->dweight && c < columns; c++)
        p->dweight[column + c] += dw[c];
    for (int c = 0; p->dbias && c < columns; c++)
        p->dbias[column + c] += db[c];
}

/* dx of one row; g = dout weight, xhat = (x - m) r. Without `center` (rmsnorm)
 * the mean of g is left out. */
ALWAYS_INLINE void row_gradient(
        const struct norm_backward *p, int64_t n, bool center, bool one_plus)
{
    int C = p->C;
    int64_t at = norm_row(n, C, p->heads, p->x_stride);
    const elem *x = (const elem *)p->x + at, *weight = p->weight;
    const elem *dout =
            (const elem *)p->dout + norm_row(n, C, p->heads, p->out_stride);
    const elem *res = p->dresidual ? (const elem *)p->dresidual + at : NULL;
    elem *dx = p->dx ? (elem *)p->dx + at : NULL;
    float m = center ? p->mean[n] : 0.0f, r = p->rstd[n];
    vf sum_g = {0}, sum_gx = {0};
    for (int c = 0; c < C; c += VL) { /* lanes past C have g = 0 */
        vf g = load_some(dout + c, C - c) *
               norm_factors(weight + c, C - c, one_plus);
        sum_g += g;
        sum_gx += g * (load_some(x + c, C - c) - m);
    }
    float mean_g = center ? vf_sum(sum_g) / (float)C : 0.0f;
    float gx = vf_sum(sum_gx) * r;
    if (!dx) {
        p->parts.mine[n] = gx;
        return;
    }
    gx = norm_sum(&p->parts, n, gx);
    float mean_gx = gx / (float)norm_width(&p->parts, C);
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

static void layernorm_gradient(const struct norm_backward *p, int64_t n)
{
    row_gradient(p, n, true, false);
}

/* Each form compiled by itself: what -ffp-contract fuses, and so the bits,
 * would depend on the other. */
static void rmsnorm_gradient(const struct norm_backward *p, int64_t n)
{
    row_gradient(p, n, false, false);
}

static void one_plus_gradient(const struct norm_backward *p, int64_t n)
{
    row_gradient(p, n, false, true);
}

/* Threads share out the columns of weight's and bias' gradients, so that each
 * sum runs over the rows in order, and then the same rows of dx, which may be
 * dout. */
enum zd_status FAST(norm_backward)(
        struct stream *stream, const struct norm_backward *p)
{
    int64_t rows = norm_rows(p->N, p->heads);
    int threads = threads_for((size_t)rows * (size_t)p->C), C = p->C;
    int share = (C + threads * VL - 1) / (threads * VL) * VL;
    int columns = share < COLUMNS ? share : COLUMNS;
    void (*gradient)(const struct norm_backward *, int64_t) =
            p->mean                       ? layernorm_gradient
            : p->form == RMSNORM_ONE_PLUS ? one_plus_gradient
                                          : rmsnorm_gradient;
    if (!p->accumulate && p->dweight)
        memset(p->dweight, 0, (size_t)C * sizeof *p->dweight);
    if (!p->accumulate && p->dbias)
        memset(p->dbias, 0, (size_t)C * sizeof *p->dbias);
#pragma omp parallel num_threads(threads)
    for (int64_t n = 0; n < rows; n += ROWS) {
        int64_t end = rows - n < ROWS ? rows : n + ROWS;
        if (p->dweight || p->dbias) {
#pragma omp for
            for (int c = 0; c < C; c += columns)
                column_sums(p, n, end, c, C - c < columns ? C - c : columns);
        }
#pragma omp for
        for (int64_t i = n; i < end; i++)
            gradient(p, i);
    }
    return ZD_OK;
}

enum zd_status FAST(head_norm_rope_forward)(
        struct stream *stream, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles)
{
    return head_norm_rope_forward_parts(
            FAST(norm_forward), FAST(rope), ELEM_DTYPE, stream, q, k, angles);
}

enum zd_status FAST(head_norm_rope_backward)(
        struct stream *stream, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles)
{
    return head_norm_rope_backward_parts(
            FAST(norm_backward), FAST(rope), ELEM_DTYPE, stream, q, k, angles);
}
