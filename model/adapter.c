#include "base/number/rng.h"
#include "model/internal.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* --- dropout -------------------------------------------------------------- */

static double dropout_p(const struct linear *l)
{
    return l->pass->drops ? l->model->shape.dropout : 0;
}

static struct dropout dropout_of(
        const struct linear *l, const struct adapter_view *view)
{
    uint64_t seed = rng_u64(l->model->shape.seed, (uint64_t)l->pass->step, 0);
    return (struct dropout){
            .first_sample = l->pass->first_sample,
            .first_row = l->first_row,
            .T = l->pass->T,
            .columns = view->columns,
            .before = view->before,
            .threshold = (uint32_t)(dropout_p(l) * 0x1p32),
            .key = rng_u64(seed, view->stream, 0)};
}

/* out(N, C), rows `stride` apart, = or += dropout of x. Each call covers
 * consecutive rows; with context parallelism, rows of one piece of a sample. */
static enum zd_status drop_rows(
        const struct linear *l, void *out, int stride, const void *x, int C,
        const struct dropout *dropout, bool add)
{
    const struct kernels *k = l->model->kernels;
    struct attention_queries own = l->pass->queries;
    size_t element = dtype_bytes(k->dtype);
    struct dropout part = *dropout;
    int tp = tp_size(l->model->config), each = l->N / tp;
    int T = own.rows ? own.rows : l->pass->T;
    for (int n = 0, count; n < l->N; n += count) {
        /* with tensor parallelism each share has the same rows of a part */
        int first = n / each * (l->pass->B * T / tp) + n % each;
        int row = first + (int)dropout->first_row, half = own.rows / 2;
        count = each - n % each;
        part.first_row = row;
        if (own.rows) {
            int r = row % own.rows, left = half - r % half;
            count = left < count ? left : count;
            part.first_sample = dropout->first_sample + row / own.rows;
            part.first_row = attention_token(own, r);
        }
        ZD_TRY(k->scale_rows(
                NULL, (char *)out + (size_t)n * (size_t)stride * element,
                stride, (const char *)x + (size_t)n * (size_t)C * element,
                count, C, 1, &part, add));
    }
    return ZD_OK;
}

/* x, or dropout of x. */
static enum zd_status kept_input(
        const struct linear *l, const struct adapter_view *view, const void *x,
        const void **kept_out)
{
    struct dropout dropout = dropout_of(l, view);
    void *dropped = l->pass->acts->adapters.dropped;
    *kept_out = dropout.threshold ? dropped : x;
    return dropout.threshold
                   ? drop_rows(l, dropped, l->in, x, l->in, &dropout, false)
                   : ZD_OK;
}

/* --- matmuls -------------------------------------------------------------- */

/* u(N, r) = scale a b; in two passes if the kernels' matmul has no scale. */
static enum zd_status low_product(
        const struct linear *l, const struct adapter_view *view, void *u,
        struct matmul_operand a, struct matmul_operand b, int K)
{
    const struct kernels *k = l->model->kernels;
    const struct dropout none = {.T = 1};
    float scale = (float)(view->scale / (1.0 - dropout_p(l)));
    scale = fmaxf(scale, FLT_MIN); /* 0 would mean 1 */
    struct matmul m = product(
            l->N, view->r, K, a, b, (struct matmul_result){u, k->dtype});
    m.scale = k->adds_narrow ? scale : 1;
    ZD_TRY(k->matmul(NULL, &m));
    return k->adds_narrow ? ZD_OK
                          : k->scale_rows(
                                    NULL, u, view->r, u, l->N, view->r, scale,
                                    &none, false);
}

/* to(N, columns), rows `stride` apart, += keep(low(N, r) factor); factor is (r,
 * columns), or with `trans` (columns, r). */
static enum zd_status add_product(
        const struct linear *l, void *to, enum dtype to_dtype, int stride,
        const void *low, const void *factor, bool trans, int r, int columns,
        const struct dropout *dropout)
{
    const struct kernels *k = l->model->kernels;
    void *wide = l->pass->acts->adapters.wide;
    struct matmul m =
            product(l->N, columns, r, (struct matmul_operand){low, k->dtype},
                    (struct matmul_operand){factor, k->dtype, trans},
                    (struct matmul_result){wide, k->dtype});
    bool adds = to_dtype == DTYPE_FP32 || k->adds_narrow;
    if (adds && !dropout->threshold) {
        m.out = (struct matmul_result){to, to_dtype, stride};
        m.accumulate = true;
        return k->matmul(NULL, &m);
    }
    ZD_TRY(k->matmul(NULL, &m));
    return drop_rows(l, to, stride, wide, columns, dropout, true);
}

/* y's columns of the view += u B^T. */
static enum zd_status add_to_columns(
        const struct linear *l, const struct adapter_view *view, void *mine,
        enum dtype type)
{
    const struct dropout none = {.T = 1};
    return add_product(
            l, mine, type, l->out, view->u, view->b, true, view->r, view->out,
            &none);
}

/* Skips `first` columns. */
static void *columns_at(const void *rows, int first, enum dtype type)
{
    return (char *)(uintptr_t)rows + (size_t)first * dtype_bytes(type);
}

/* --- DoRA ----------------------------------------------------------------- */

static enum zd_status find_gains(
        const struct linear *l, const struct adapter_view *view,
        const void *whole)
{
    const struct kernels *k = l->model->kernels;
    const struct adapter_scratch *scratch = &l->pass->acts->adapters;
    size_t before = (size_t)view->first * (size_t)l->in;
    if (!view->change || !whole)
        return ZD_OK;
    assert(!l->conv1d || view->out == l->out);
    const char *weight = (const char *)whole + before * dtype_bytes(k->dtype);
    struct matmul m =
            product(view->out, view->r, l->in,
                    (struct matmul_operand){weight, k->dtype, l->conv1d},
                    (struct matmul_operand){view->a, k->dtype, true},
                    (struct matmul_result){scratch->cross, DTYPE_FP32});
    ZD_TRY(k->matmul(NULL, &m));
    m.M = view->r;
    m.a = (struct matmul_operand){view->a, k->dtype};
    m.out.data = scratch->gram;
    ZD_TRY(k->matmul(NULL, &m));
    return k->row_gains(
            NULL, view->gain, view->inverse,
            &(struct adapted_rows){
                    .weight = weight,
                    .b = view->b,
                    .change = view->change,
                    .cross = scratch->cross,
                    .gram = scratch->gram,
                    .scale = view->scale,
                    .out = view->out,
                    .in = l->in,
                    .r = view->r,
                    .conv1d = l->conv1d});
}

enum zd_status adapter_magnitude_backward(
        const struct linear *l, const struct adapter_view *view, void *z,
        const void *dy)
{
    const struct kernels *k = l->model->kernels;
    void *mine = columns_at(z, view->first, k->dtype);
    const void *grads = columns_at(dy, view->first, k->dtype);
    ZD_TRY(add_to_columns(l, view, mine, k->dtype));
    if (view->dmagnitude)
        ZD_TRY(k->column_dots(
                NULL, view->dmagnitude, view->inverse, grads, l->out, mine,
                l->out, l->N, view->out, l->accumulate));
    return k->scale_columns(
            NULL, mine, l->out, grads, l->out, k->dtype, view->gain, NULL, l->N,
            view->out);
}

/* --- passes --------------------------------------------------------------- */

enum zd_status adapter_keep(
        const struct linear *l, const struct adapter_view *view,
        const void *weight, const void *x)
{
    const struct kernels *k = l->model->kernels;
    const void *kept;
    ZD_TRY(find_gains(l, view, weight));
    ZD_TRY(kept_input(l, view, x, &kept));
    return low_product(
            l, view, view->u, (struct matmul_operand){kept, k->dtype},
            (struct matmul_operand){view->a, k->dtype, true}, l->in);
}

enum zd_status adapter_forward(
        const struct linear *l, const struct adapter_view *view,
        const void *weight, void *y, const void *x)
{
    const struct kernels *k = l->model->kernels;
    void *mine = columns_at(y, view->first, l->y_dtype);
    const void *bias = l->bias;
    ZD_TRY(adapter_keep(l, view, weight, x));
    ZD_TRY(add_to_columns(l, view, mine, l->y_dtype));
    if (!view->change)
        return ZD_OK;
    if (bias)
        bias = columns_at(bias, view->first, k->dtype);
    return k->scale_columns(
            NULL, mine, l->out, mine, l->out, l->y_dtype, view->gain, bias,
            l->N, view->out);
}

enum zd_status adapter_backward(
        const struct linear *l, const struct adapter_view *view, void *dx,
        const void *dy, const void *x)
{
    const struct kernels *k = l->model->kernels;
    const void *mine = columns_at(dy, view->first, k->dtype), *kept;
    void *du = l->pass->acts->adapters.du;
    struct dropout dropout = dropout_of(l, view);
    struct matmul m =
            product(view->out, view->r, l->N,
                    (struct matmul_operand){mine, k->dtype, true, l->out},
                    (struct matmul_operand){view->u, k->dtype},
                    (struct matmul_result){view->db, DTYPE_FP32});
    m.accumulate = l->accumulate;
    ZD_TRY(k->matmul(NULL, &m));
    ZD_TRY(low_product(
            l, view, du, (struct matmul_operand){mine, k->dtype, false, l->out},
            (struct matmul_operand){view->b, k->dtype}, view->out));
    ZD_TRY(kept_input(l, view, x, &kept));
    m.M = view->r, m.N = l->in;
    m.a = (struct matmul_operand){du, k->dtype, true};
    m.b = (struct matmul_operand){kept, k->dtype};
    m.out.data = view->da;
    ZD_TRY(k->matmul(NULL, &m));
    if (!dx)
        return ZD_OK;
    return add_product(
            l, dx, k->dtype, l->in, du, view->a, false, view->r, l->in,
            &dropout);
}
