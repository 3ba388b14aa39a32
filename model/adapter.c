#include "base/number/rng.h"
#include "kernels/fused.h"
#include "model/internal.h"

#include <assert.h>

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
            .threshold = (uint32_t)(dropout_p(l) * 0x1p32),
            .key = rng_u64(seed, view->stream, 0)};
}

/* x, or what dropout leaves of it. */
static enum zd_status kept_input(
        const struct linear *l, const struct adapter_view *view, const void *x,
        const void **kept_out)
{
    struct dropout dropout = dropout_of(l, view);
    void *dropped = l->pass->acts->adapters.dropped;
    *kept_out = dropout.threshold ? dropped : x;
    return dropout.threshold ? l->model->kernels->scale_rows(
                                       NULL, dropped, l->in, x, l->N, l->in, 1,
                                       &dropout, false)
                             : ZD_OK;
}

/* --- matmuls -------------------------------------------------------------- */

static enum zd_status scale_in_place(
        const struct linear *l, const struct adapter_view *view, void *u)
{
    const struct dropout none = {.T = 1};
    float scale = (float)(view->scale / (1.0 - dropout_p(l)));
    return l->model->kernels->scale_rows(
            NULL, u, view->r, u, l->N, view->r, scale, &none, false);
}

/* to(N, columns), rows `stride` apart, += keep(low(N, r) factor), the factor
 * (r, columns) or with `trans` (columns, r). */
static enum zd_status add_product(
        const struct linear *l, void *to, enum dtype to_dtype, int stride,
        const void *low, const void *factor, bool trans, int r, int columns,
        const struct dropout *dropout)
{
    const struct kernels *k = l->model->kernels;
    struct matmul_strides strides = {
            .out = stride, .a = r, .b = trans ? r : columns};
    if (to_dtype == DTYPE_FP32 && !dropout->threshold)
        return fused_matmul_strided(
                k, NULL, to, DTYPE_FP32, low, factor, &strides, l->N, columns,
                r, false, trans, true);
    void *wide = l->pass->acts->adapters.wide;
    ZD_TRY(k->matmul(
            NULL, wide, k->dtype, low, factor, NULL, l->N, columns, r, false,
            trans, false));
    return k->scale_rows(
            NULL, to, stride, wide, l->N, columns, 1, dropout, true);
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

/* Columns of a row that begins `first` elements in. */
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
    ZD_TRY(k->matmul(
            NULL, scratch->cross, DTYPE_FP32, weight, view->a, NULL, view->out,
            view->r, l->in, l->conv1d, true, false));
    ZD_TRY(k->matmul(
            NULL, scratch->gram, DTYPE_FP32, view->a, view->a, NULL, view->r,
            view->r, l->in, false, true, false));
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
    ZD_TRY(k->matmul(
            NULL, view->u, k->dtype, kept, view->a, NULL, l->N, view->r, l->in,
            false, true, false));
    return scale_in_place(l, view, view->u);
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
    struct matmul_strides grads = {.out = view->r, .a = l->out, .b = view->r};
    ZD_TRY(fused_matmul_strided(
            k, NULL, view->db, DTYPE_FP32, mine, view->u, &grads, view->out,
            view->r, l->N, true, false, l->accumulate));
    ZD_TRY(fused_matmul_strided(
            k, NULL, du, k->dtype, mine, view->b, &grads, l->N, view->r,
            view->out, false, false, false));
    ZD_TRY(scale_in_place(l, view, du));
    ZD_TRY(kept_input(l, view, x, &kept));
    ZD_TRY(k->matmul(
            NULL, view->da, DTYPE_FP32, du, kept, NULL, view->r, l->in, l->N,
            true, false, l->accumulate));
    if (!dx)
        return ZD_OK;
    return add_product(
            l, dx, k->dtype, l->in, du, view->a, false, view->r, l->in,
            &dropout);
}
