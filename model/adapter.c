#include "model/adapter.h"

#include "base/number/rng.h"
#include "kernels/fused.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- dropout -------------------------------------------------------------- */

static struct dropout dropout_of(
        const struct adapter_pass *pass, const struct adapter_view *view)
{
    struct dropout dropout = pass->dropout;
    dropout.threshold = (uint32_t)(pass->dropout_p * 0x1p32);
    dropout.key = rng_u64(pass->seed, view->stream, 0);
    return dropout;
}

static float scale_of(
        const struct adapter_pass *pass, const struct adapter_view *view)
{
    return (float)(view->scale / (1.0 - pass->dropout_p));
}

/* x, or what of it is kept. */
static enum zd_status kept_input(
        const struct adapter_pass *pass, const struct adapter_view *view,
        const void *x, const void **kept_out)
{
    struct dropout dropout = dropout_of(pass, view);
    *kept_out = x;
    if (!dropout.threshold)
        return ZD_OK;
    *kept_out = pass->scratch->dropped;
    return pass->kernels->scale_rows(
            NULL, pass->scratch->dropped, pass->in, x, pass->N, pass->in, 1,
            &dropout, false);
}

/* --- products ------------------------------------------------------------- */

static enum zd_status scale_in_place(
        const struct adapter_pass *pass, const struct adapter_view *view,
        void *u)
{
    const struct dropout none = {.T = 1};
    return pass->kernels->scale_rows(
            NULL, u, view->r, u, pass->N, view->r, scale_of(pass, view), &none,
            false);
}

/* to(N, columns), rows `stride` apart, += keep(low(N, r) factor), the factor
 * (r, columns) or with `trans` (columns, r). */
static enum zd_status add_product(
        const struct adapter_pass *pass, void *to, enum dtype to_dtype,
        int stride, const void *low, const void *factor, bool trans, int r,
        int columns, const struct dropout *dropout)
{
    const struct kernels *k = pass->kernels;
    struct matmul_strides strides = {
            .out = stride, .a = r, .b = trans ? r : columns};
    if (to_dtype == DTYPE_FP32 && !dropout->threshold)
        return fused_matmul_strided(
                k, NULL, to, DTYPE_FP32, low, factor, &strides, pass->N,
                columns, r, false, trans, true);
    void *wide = pass->scratch->wide;
    ZD_TRY(k->matmul(
            NULL, wide, k->dtype, low, factor, NULL, pass->N, columns, r, false,
            trans, false));
    return k->scale_rows(
            NULL, to, stride, wide, pass->N, columns, 1, dropout, true);
}

/* Columns of a row that begins `first` elements in. */
static void *columns_at(const void *rows, int first, enum dtype type)
{
    return (char *)(uintptr_t)rows + (size_t)first * dtype_bytes(type);
}

/* --- DoRA ----------------------------------------------------------------- */

static enum zd_status find_gains(
        const struct adapter_pass *pass, const struct adapter_view *view)
{
    const struct kernels *k = pass->kernels;
    const struct adapter_scratch *scratch = pass->scratch;
    size_t before = (size_t)view->first * (size_t)pass->in;
    if (!view->change || pass->has_gains)
        return ZD_OK;
    assert(!pass->conv1d || view->out == pass->columns);
    const char *weight =
            (const char *)pass->weight + before * dtype_bytes(k->dtype);
    ZD_TRY(k->matmul(
            NULL, scratch->cross, DTYPE_FP32, weight, view->a, NULL, view->out,
            view->r, pass->in, pass->conv1d, true, false));
    ZD_TRY(k->matmul(
            NULL, scratch->gram, DTYPE_FP32, view->a, view->a, NULL, view->r,
            view->r, pass->in, false, true, false));
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
                    .in = pass->in,
                    .r = view->r,
                    .conv1d = pass->conv1d});
}

enum zd_status adapter_magnitude_backward(
        const struct adapter_pass *pass, const struct adapter_view *view,
        void *z, const void *dy, bool accumulate)
{
    const struct dropout none = {.T = 1};
    const struct kernels *k = pass->kernels;
    void *mine = columns_at(z, view->first, k->dtype);
    const void *grads = columns_at(dy, view->first, k->dtype);
    ZD_TRY(add_product(
            pass, mine, k->dtype, pass->columns, view->u, view->b, true,
            view->r, view->out, &none));
    if (view->dmagnitude)
        ZD_TRY(k->column_dots(
                NULL, view->dmagnitude, view->inverse, grads, pass->columns,
                mine, pass->columns, pass->N, view->out, accumulate));
    return k->scale_columns(
            NULL, mine, pass->columns, grads, pass->columns, k->dtype,
            view->gain, NULL, pass->N, view->out);
}

/* --- passes --------------------------------------------------------------- */

enum zd_status adapter_keep(
        const struct adapter_pass *pass, const struct adapter_view *view,
        const void *x)
{
    const struct kernels *k = pass->kernels;
    const void *kept;
    ZD_TRY(find_gains(pass, view));
    ZD_TRY(kept_input(pass, view, x, &kept));
    ZD_TRY(k->matmul(
            NULL, view->u, k->dtype, kept, view->a, NULL, pass->N, view->r,
            pass->in, false, true, false));
    return scale_in_place(pass, view, view->u);
}

enum zd_status adapter_forward(
        const struct adapter_pass *pass, const struct adapter_view *view,
        void *y, const void *x)
{
    const struct dropout none = {.T = 1};
    void *mine = columns_at(y, view->first, pass->y_dtype);
    const void *bias = pass->bias;
    ZD_TRY(adapter_keep(pass, view, x));
    ZD_TRY(add_product(
            pass, mine, pass->y_dtype, pass->columns, view->u, view->b, true,
            view->r, view->out, &none));
    if (!view->change)
        return ZD_OK;
    if (bias)
        bias = columns_at(bias, view->first, pass->kernels->dtype);
    return pass->kernels->scale_columns(
            NULL, mine, pass->columns, mine, pass->columns, pass->y_dtype,
            view->gain, bias, pass->N, view->out);
}

enum zd_status adapter_backward(
        const struct adapter_pass *pass, const struct adapter_view *view,
        void *dx, const void *dy, const void *x, bool accumulate)
{
    const struct kernels *k = pass->kernels;
    const void *mine = columns_at(dy, view->first, k->dtype), *kept;
    void *du = pass->scratch->du;
    struct dropout dropout = dropout_of(pass, view);
    struct matmul_strides grads = {
            .out = view->r, .a = pass->columns, .b = view->r};
    ZD_TRY(fused_matmul_strided(
            k, NULL, view->db, DTYPE_FP32, mine, view->u, &grads, view->out,
            view->r, pass->N, true, false, accumulate));
    ZD_TRY(fused_matmul_strided(
            k, NULL, du, k->dtype, mine, view->b, &grads, pass->N, view->r,
            view->out, false, false, false));
    ZD_TRY(scale_in_place(pass, view, du));
    ZD_TRY(kept_input(pass, view, x, &kept));
    ZD_TRY(k->matmul(
            NULL, view->da, DTYPE_FP32, du, kept, NULL, view->r, pass->in,
            pass->N, true, false, accumulate));
    if (!dx)
        return ZD_OK;
    return add_product(
            pass, dx, k->dtype, pass->in, du, view->a, false, view->r, pass->in,
            &dropout);
}

/* --- merging -------------------------------------------------------------- */

/* sum_k B[o, k] A[k, :] */
static void product_row(const struct adapter_merge *m, size_t o, float *row)
{
    size_t in = (size_t)m->in, r = (size_t)m->r;
    memset(row, 0, in * sizeof *row);
    for (size_t k = 0; k < r; k++) {
        const float *a_row = m->a + k * in;
        float b = m->b[o * r + k];
        for (size_t i = 0; i < in; i++)
            row[i] += b * a_row[i];
    }
}

void adapter_merge(const struct adapter_merge *m, float *weight, float *row)
{
    size_t in = (size_t)m->in, out = (size_t)m->out;
    size_t stride = m->conv1d ? out : 1;
    for (size_t o = 0; o < out; o++) {
        float *w = weight + (m->conv1d ? o : o * in);
        double squares = 0;
        product_row(m, o, row);
        for (size_t i = 0; i < in; i++) {
            float *x = &w[i * stride];
            *x += (float)m->scale * row[i];
            squares += (double)*x * *x;
        }
        if (!m->magnitude)
            continue;
        float factor = m->magnitude[o] / (float)sqrt(squares);
        for (size_t i = 0; i < in; i++)
            w[i * stride] *= factor;
    }
}
