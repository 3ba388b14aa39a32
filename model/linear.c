#include "base/number/rng.h"
#include "kernels/fused.h"
#include "model/internal.h"

#include <assert.h>

/* Adapters of a unit keep their arrays one behind the other, in the order of
 * the table. */
static size_t before_in_unit(
        const struct param_table *table, int unit, int id, size_t *gains_before)
{
    size_t low = 0;
    *gains_before = 0;
    for (int i = table->unit_first[unit]; i < id; i++) {
        const struct adapter *adapter = &table->adapters[i];
        low += (size_t)adapter->r;
        if (adapter->r && adapter->magnitude >= 0)
            *gains_before += 2 * table->params[adapter->magnitude].count;
    }
    return low;
}

/* Of weight `id`, whose output begins in column `first`. */
static void add_adapter(
        const struct model *model, const struct pass *pass, int unit, int id,
        int first, void *low, float *gains, struct linear *linear)
{
    const struct param_table *table = model->table;
    size_t gains_before, low_before;
    if (!param_has_adapter(table, id))
        return;
    const struct adapter *adapter = &table->adapters[id];
    assert(linear->adapter_count < LINEAR_PARTS);
    low_before = before_in_unit(table, unit, id, &gains_before);
    struct adapter_view *view = &linear->adapters[linear->adapter_count++];
    *view = (struct adapter_view){
            .a = model->params[adapter->a],
            .b = model->params[adapter->b],
            .da = model->grads[adapter->a],
            .db = model->grads[adapter->b],
            .r = adapter->r,
            .first = first,
            .out = (int)table->params[adapter->b].shape[0],
            .scale = adapter->scale,
            .u = (char *)low + low_before * (size_t)pass->N *
                                       dtype_bytes(model->kernels->dtype),
            .stream = rng_stream(table->params[id].name)};
    if (adapter->magnitude < 0)
        return;
    view->change = model->params[adapter->magnitude];
    view->dmagnitude = model->grads[adapter->magnitude];
    view->gain = gains + gains_before;
    view->inverse = view->gain + view->out;
    linear->is_dora = true;
}

/* Weight `id` behind what the view has. */
static void add_weight(
        const struct model *model, int id, struct weight_view *view)
{
    const struct param_table *table = model->table;
    if (!param_in_codes(table, id)) {
        view->values = view->values ? view->values : model->params[id];
        return;
    }
    assert(view->part_count < LINEAR_PARTS);
    view->parts[view->part_count++] = (struct codes_view){
            .codes = model->params[id],
            .scales = model->params[param_scales(table, id)],
            .matrix = &table->codes[id]};
}

static enum dtype grad_type(const struct model *model, int id)
{
    return model->table->params[id].is_product ? model->product_grads
                                               : DTYPE_FP32;
}

struct linear layer_linear(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, enum role weight, int in, int out)
{
    int id = role_id(model, layer, weight);
    int bias = role_id(model, layer, weight + 1);
    struct linear linear = {
            .bias = bias < 0 ? NULL : model->params[bias],
            .dweight = model->grads[id],
            .dbias = bias < 0 ? NULL : model->grads[bias],
            .grad_type = grad_type(model, id),
            .in = in,
            .out = out,
            .conv1d = model->table->params[id].conv1d &&
                      !param_in_codes(model->table, id),
            .pass = pass,
    };
    add_weight(model, id, &linear.weight);
    add_adapter(model, pass, layer, id, 0, acts->low, acts->gains, &linear);
    return linear;
}

/* Tensor `id` begins where the one before it ends, and so do their gradients;
 * in codes, it will once decoded. */
static bool goes_on(const struct model *model, int id)
{
    size_t count = model->table->params[id - 1].count;
    const char *before = model->params[id - 1];
    const char *grad = model->grads[id - 1];
    size_t wide = dtype_bytes(grad_type(model, id - 1));
    if (param_in_codes(model->table, id))
        return param_in_codes(model->table, id - 1);
    return model->params[id] ==
                   before + count * dtype_bytes(model->kernels->dtype) &&
           model->grads[id] == (grad ? grad + count * wide : NULL);
}

struct linear layer_joined(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, enum role first, enum role last, int in)
{
    int id = role_id(model, layer, first), out = 0;
    int bias = role_id(model, layer, first + 1);
    int others = role_id(model, layer, last) - id;
    struct linear joined = layer_linear(model, pass, layer, acts, first, in, 0);
    for (int i = 0; i <= others; i++) {
        if (i > 0) {
            add_weight(model, id + i, &joined.weight);
            add_adapter(
                    model, pass, layer, id + i, out, acts->low, acts->gains,
                    &joined);
        }
        out += (int)model->table->params[id + i].shape[0];
        assert(i == 0 || goes_on(model, id + i));
        assert(i == 0 || bias < 0 || goes_on(model, bias + i));
    }
    joined.out = out;
    return joined;
}

/* --- adapters ------------------------------------------------------------- */

static struct adapter_pass adapter_pass_of(
        const struct model *model, const struct linear *linear, int first_row,
        int N, enum dtype y_dtype)
{
    const struct pass *pass = linear->pass;
    return (struct adapter_pass){
            .kernels = model->kernels,
            .scratch = &pass->acts->adapters,
            .dropout_p = pass->drops ? model->shape.dropout : 0,
            .seed = rng_u64(model->shape.seed, (uint64_t)pass->step, 0),
            .dropout =
                    {.first_sample = pass->first_sample,
                     .first_row = first_row,
                     .T = pass->T},
            .N = N,
            .in = linear->in,
            .columns = linear->out,
            .y_dtype = y_dtype,
            .bias = linear->bias,
            .conv1d = linear->conv1d,
            .has_gains = pass->decode && pass->runs[0].past > 0};
}

/* The base's weight, for those who scale the rows of the sum. */
static enum zd_status fetch_weight(
        const struct model *model, const struct linear *linear,
        struct adapter_pass *pass)
{
    return linear->is_dora && !pass->has_gains
                   ? linear_weight(model, linear, &pass->weight)
                   : ZD_OK;
}

static enum zd_status adapters_forward(
        const struct model *model, const struct linear *linear, void *y,
        const void *x, int N)
{
    struct adapter_pass pass =
            adapter_pass_of(model, linear, 0, N, model->kernels->dtype);
    ZD_TRY(fetch_weight(model, linear, &pass));
    for (int i = 0; i < linear->adapter_count; i++)
        ZD_TRY(adapter_forward(&pass, &linear->adapters[i], y, x));
    return ZD_OK;
}

enum zd_status linear_adapters_keep(
        const struct model *model, const struct linear *linear, const void *x,
        int N)
{
    struct adapter_pass pass =
            adapter_pass_of(model, linear, 0, N, model->kernels->dtype);
    ZD_TRY(fetch_weight(model, linear, &pass));
    for (int i = 0; i < linear->adapter_count; i++)
        ZD_TRY(adapter_keep(&pass, &linear->adapters[i], x));
    return ZD_OK;
}

/* Columns of dy that no adapter covers, as they are. */
static enum zd_status copy_others(
        const struct linear *linear, const struct adapter_pass *pass,
        int columns, void *z, const void *dy)
{
    const struct kernels *k = pass->kernels;
    size_t element = dtype_bytes(k->dtype);
    int done = 0;
    for (int i = 0; i <= linear->adapter_count; i++) {
        bool is_end = i == linear->adapter_count;
        const struct adapter_view *view = &linear->adapters[i];
        int next = is_end ? columns : view->first;
        if (next > done)
            ZD_TRY(k->scale_columns(
                    NULL, (char *)z + (size_t)done * element, linear->out,
                    (const char *)dy + (size_t)done * element, linear->out,
                    k->dtype, NULL, NULL, pass->N, next - done));
        if (!is_end)
            done = view->first + view->out;
    }
    return ZD_OK;
}

/* What products of backward read in place of dy: with DoRA it is another array,
 * and the magnitudes have their gradient. `columns` of dy are products. */
static enum zd_status adapters_enter(
        const struct model *model, const struct linear *linear,
        const struct adapter_pass *pass, int columns, const void *dy,
        const void *x, bool accumulate, const void **dz_out)
{
    const struct kernels *k = model->kernels;
    void *z = pass->scratch->scaled;
    struct matmul_strides strides = {
            .out = linear->out,
            .a = linear->in,
            .b = linear->conv1d ? linear->out : linear->in};
    const void *weight;
    int covered = 0;
    *dz_out = dy;
    if (!linear->is_dora)
        return ZD_OK;
    ZD_TRY(linear_weight(model, linear, &weight));
    ZD_TRY(fused_matmul_strided(
            k, NULL, z, k->dtype, x, weight, &strides, pass->N, columns,
            linear->in, false, !linear->conv1d, false));
    for (int i = 0; i < linear->adapter_count; i++) {
        const struct adapter_view *view = &linear->adapters[i];
        ZD_TRY(adapter_magnitude_backward(pass, view, z, dy, accumulate));
        covered += view->out;
    }
    *dz_out = z;
    return covered == columns ? ZD_OK
                              : copy_others(linear, pass, columns, z, dy);
}

static enum zd_status adapters_backward(
        const struct model *model, const struct linear *linear, void *dx,
        const void *dz, const void *x, int N, bool accumulate)
{
    struct adapter_pass pass =
            adapter_pass_of(model, linear, 0, N, model->kernels->dtype);
    for (int i = 0; i < linear->adapter_count; i++)
        ZD_TRY(adapter_backward(
                &pass, &linear->adapters[i], dx, dz, x, accumulate));
    return ZD_OK;
}

struct linear head_linear(
        const struct model *model, const struct pass *pass,
        const struct head_acts *acts)
{
    struct linear linear = {
            .weight = {.values = model->params[model->head]},
            .dweight = model->grads[model->head],
            .in = model->config->hidden_size,
            .out = pass->acts->head.stride,
            .pass = pass};
    if (!model->config->tied)
        add_adapter(
                model, pass, model->config->layers + 1, model->head, 0,
                acts->low, acts->gains, &linear);
    return linear;
}

enum zd_status head_adapters_forward(
        const struct model *model, const struct linear *head, void *logits,
        const void *x, int first_row, int N)
{
    struct adapter_pass pass = adapter_pass_of(
            model, head, first_row, N, head->pass->acts->head.logits_dtype);
    ZD_TRY(fetch_weight(model, head, &pass));
    for (int i = 0; i < head->adapter_count; i++)
        ZD_TRY(adapter_forward(&pass, &head->adapters[i], logits, x));
    return ZD_OK;
}

enum zd_status head_adapters_enter(
        const struct model *model, const struct linear *head,
        const void *dlogits, const void *x, int first_row, int N,
        bool accumulate, const void **dz_out)
{
    struct adapter_pass pass =
            adapter_pass_of(model, head, first_row, N, model->kernels->dtype);
    return adapters_enter(
            model, head, &pass, model->config->vocab_size, dlogits, x,
            accumulate, dz_out);
}

enum zd_status head_adapters_backward(
        const struct model *model, const struct linear *head, void *dx,
        const void *dlogits, const void *x, int first_row, int N,
        bool accumulate)
{
    struct adapter_pass pass =
            adapter_pass_of(model, head, first_row, N, model->kernels->dtype);
    for (int i = 0; i < head->adapter_count; i++)
        ZD_TRY(adapter_backward(
                &pass, &head->adapters[i], dx, dlogits, x, accumulate));
    return ZD_OK;
}

/* --- products ------------------------------------------------------------- */

enum zd_status linear_weight(
        const struct model *model, const struct linear *linear,
        const void **values_out)
{
    const struct weight_view *weight = &linear->weight;
    const struct kernels *k = model->kernels;
    char *out = model->decoded;
    assert(weight->values || (weight->part_count && out));
    *values_out = weight->values ? weight->values : out;
    for (int i = 0; i < weight->part_count; i++) {
        const struct codes_view *part = &weight->parts[i];
        ZD_TRY(k->dequantise(
                NULL, out, part->codes, part->scales, part->matrix));
        out += quant_matrix_count(part->matrix) * dtype_bytes(k->dtype);
    }
    return ZD_OK;
}

bool linear_in_strips(const struct model *model, const struct linear *linear)
{
    return linear->weight.part_count > 0 && !model->decoded;
}

/* out (M, N) [+]= a (M, K) W, or its transpose's. */
static enum zd_status multiply(
        const struct model *model, const struct linear *linear, void *out,
        const void *a, const void *bias, int M, int N, int K, bool trans_b,
        bool add)
{
    const struct kernels *k = model->kernels;
    const void *weight;
    if (linear_in_strips(model, linear))
        return k->matmul_codes(
                NULL, out, k->dtype, a, linear->weight.parts,
                linear->weight.part_count, bias, M, N, K, trans_b, add);
    ZD_TRY(linear_weight(model, linear, &weight));
    return k->matmul(
            NULL, out, k->dtype, a, weight, bias, M, N, K, false, trans_b, add);
}

/* dx = dy W, with `add` dx += dy W. */
static enum zd_status input_grads(
        const struct model *model, const struct linear *linear, void *dx,
        const void *dy, int N, bool add)
{
    return multiply(
            model, linear, dx, dy, NULL, N, linear->in, linear->out,
            linear->conv1d, add);
}

/* A decode step's product: nothing of a weight in codes is written out. */
static enum zd_status rows_forward(
        const struct model *model, const struct linear *linear, void *y,
        const void *x, int N)
{
    const struct kernels *k = model->kernels;
    size_t element = dtype_bytes(k->dtype), first = 0;
    for (int i = 0; i < linear->weight.part_count; i++) {
        const struct codes_view *part = &linear->weight.parts[i];
        const char *bias = linear->bias;
        ZD_TRY(k->codes_rows(
                NULL, (char *)y + first * element, linear->out, x, part->codes,
                part->scales, part->matrix,
                bias ? bias + first * element : NULL, N));
        first += (size_t)part->matrix->rows;
    }
    return ZD_OK;
}

bool linear_has_few_rows(const struct linear *linear, int N)
{
    return linear->weight.part_count > 0 && linear->pass->decode &&
           N <= ROWS_TOGETHER;
}

enum zd_status linear_forward(
        const struct model *model, const struct linear *linear, void *y,
        const void *x, int N)
{
    if (linear_has_few_rows(linear, N))
        ZD_TRY(rows_forward(model, linear, y, x, N));
    else
        ZD_TRY(multiply(
                model, linear, y, x, linear->bias, N, linear->out, linear->in,
                !linear->conv1d, false));
    return adapters_forward(model, linear, y, x, N);
}

/* x^T dy, or dy^T x: as the weight is stored. */
enum zd_status linear_backward_params(
        const struct model *model, const struct linear *linear, const void *dy,
        const void *x, int N, bool accumulate)
{
    bool first = !linear->conv1d;
    if (linear->dweight && linear->grad_type != DTYPE_FP32) {
        assert(first && !linear->dbias && !accumulate);
        return model->kernels->matmul(
                NULL, linear->dweight, linear->grad_type, dy, x, NULL,
                linear->out, linear->in, N, true, false, false);
    }
    return fused_weight_grads(
            model->kernels, NULL, linear->dweight, linear->dbias,
            first ? dy : x, first ? x : dy, first ? linear->out : linear->in,
            first ? linear->in : linear->out, N, first, accumulate);
}

/* The gradients of the layer's own tensors and of magnitudes, and what the rest
 * reads in place of dy. */
static enum zd_status backward_enter(
        const struct model *model, const struct linear *linear, const void *dy,
        const void *x, int N, bool accumulate, const void **dz_out)
{
    struct adapter_pass pass =
            adapter_pass_of(model, linear, 0, N, model->kernels->dtype);
    ZD_TRY(linear_backward_params(model, linear, dy, x, N, accumulate));
    return adapters_enter(
            model, linear, &pass, linear->out, dy, x, accumulate, dz_out);
}

enum zd_status linear_backward(
        const struct model *model, const struct linear *linear, void *dx,
        const void *dy, const void *x, int N, bool accumulate)
{
    const void *dz;
    ZD_TRY(backward_enter(model, linear, dy, x, N, accumulate, &dz));
    if (dx)
        ZD_TRY(input_grads(model, linear, dx, dz, N, false));
    return adapters_backward(model, linear, dx, dz, x, N, accumulate);
}

enum zd_status linear_backward_add(
        const struct model *model, const struct linear *linear, void *dx,
        void *sum, const void *dy, const void *x, int N, bool accumulate)
{
    const struct kernels *k = model->kernels;
    const void *dz;
    if (k->dtype != DTYPE_FP32 || !dx) {
        ZD_TRY(linear_backward(
                model, linear, dx ? sum : NULL, dy, x, N, accumulate));
        if (!dx)
            return ZD_OK;
        return k->add(NULL, dx, dx, sum, (size_t)N * (size_t)linear->in);
    }
    ZD_TRY(backward_enter(model, linear, dy, x, N, accumulate, &dz));
    ZD_TRY(input_grads(model, linear, dx, dz, N, true));
    return adapters_backward(model, linear, dx, dz, x, N, accumulate);
}
