/* fp8_linear.c - the operands of a linear's matmuls in FP8 (fp8.h): each is
 * cast before it is multiplied. Codes stay in the scratch of model->fp8 from
 * one call to the next; only inputs that backward reads are stored elsewhere.
 */
#include "model/internal.h"

#include <assert.h>

/* --- types and scales ----------------------------------------------------- */

static bool is_tensorwise(const struct model *model)
{
    return model->fp8_use.mode == FP8_TENSORWISE;
}

static enum dtype grad_codes(const struct model *model)
{
    return is_tensorwise(model) ? DTYPE_E5M2 : DTYPE_E4M3;
}

static enum scale_layout token_layout(const struct model *model)
{
    return is_tensorwise(model) ? SCALES_TENSOR : SCALES_1X128;
}

static enum scale_layout weight_layout(const struct model *model)
{
    return is_tensorwise(model) ? SCALES_TENSOR : SCALES_128X128;
}

/* An operand whose rows are those of the codes; with `columns` they are the
 * columns of the product. */
static struct matmul_operand operand(
        const struct fp8_codes *codes, enum dtype type,
        enum scale_layout layout, bool columns)
{
    return (struct matmul_operand){codes->codes,  type,  columns, 0,
                                   codes->scales, layout};
}

/* --- maxima --------------------------------------------------------------- */

/* Takes the maximum over all places of (count) amax values. */
static enum zd_status settle_amax(
        const struct model *model, float *amax, int count)
{
    const struct kernels *k = model->kernels;
    float *all = model->fp8.all;
    int tp = tp_size(model->config);
    if (tp == 1)
        return ZD_OK;
    ZD_TRY(places_call(model, PLACES_SCORES_GATHER, all, amax, (size_t)count));
    for (int i = 0; i < count; i++)
        ZD_TRY(k->fp8_amax(
                NULL, amax + i, all + i, DTYPE_FP32, tp, 1, count, false));
    return ZD_OK;
}

static float *weight_amax(
        const struct model *model, int layer, enum fp8_group group)
{
    return model->fp8.weights + (size_t)layer * FP8_GROUPS + group;
}

enum zd_status fp8_weights(
        const struct model *model, const struct pass *pass, int layer)
{
    const struct param_table *table = model->table;
    bool has_one[FP8_GROUPS] = {false};
    const void *values;
    if (!is_tensorwise(model) || pass->decode)
        return ZD_OK;
    for (int id = table->unit_first[layer]; id < table->unit_first[layer + 1];
         id++) {
        const struct param *param = &table->params[id];
        enum fp8_group g = fp8_group_of(param->role);
        if (!fp8_has(&model->fp8_use, param))
            continue;
        ZD_TRY(tensor_values(model, id, &values));
        int columns = (int)param->shape[1];
        ZD_TRY(model->kernels->fp8_amax(
                NULL, weight_amax(model, layer, g), values,
                model->kernels->dtype, (int)param->shape[0], columns, columns,
                has_one[g]));
        has_one[g] = true;
    }
    return settle_amax(model, weight_amax(model, layer, FP8_QKV), FP8_GROUPS);
}

enum zd_status fp8_grads(
        const struct linear *linears, void *const *dy, int count)
{
    const struct model *model = linears->model;
    bool is_cut = linears->group == FP8_QKV || linears->group == FP8_GATE_UP;
    float *amax = model->fp8.grads;
    if (!is_tensorwise(model))
        return ZD_OK;
    for (int i = 0; i < count; i++)
        ZD_TRY(model->kernels->fp8_amax(
                NULL, amax, dy[i], model->kernels->dtype, linears[i].N,
                linears[i].out, linears[i].out, i > 0));
    return is_cut ? settle_amax(model, amax, 1) : ZD_OK;
}

/* --- casts ---------------------------------------------------------------- */

/* Casts x(N, columns) and its transpose; either may be omitted (NULL codes). */
static enum zd_status cast_tokens(
        const struct linear *l, const void *x, int columns, enum dtype to,
        const float *amax, const struct fp8_codes *codes,
        const struct fp8_codes *transposed)
{
    static const struct fp8_codes none = {NULL, NULL};
    codes = codes ? codes : &none;
    transposed = transposed ? transposed : &none;
    if (!codes->codes && !transposed->codes)
        return ZD_OK;
    return l->model->kernels->fp8_cast(
            NULL, &(struct fp8_cast){
                          .x = x,
                          .from = l->model->kernels->dtype,
                          .rows = l->N,
                          .columns = columns,
                          .stride = columns,
                          .to = to,
                          .layout = token_layout(l->model),
                          .amax = is_tensorwise(l->model) ? amax : NULL,
                          .codes = codes->codes,
                          .scales = codes->scales,
                          .transposed = transposed->codes,
                          .transposed_scales = transposed->scales,
                          .padded = fp8_padded(l->N)});
}

/* Returns the weight in the scratch or as stored, with scales in a matmul's
 * layout. */
enum zd_status fp8_weight(
        const struct linear *l, bool turned, struct matmul_operand *weight_out)
{
    const struct model *model = l->model;
    /* a base in blocks of FP8: blockwise matmuls read it in place */
    const struct codes_view *part = l->weight.parts, *stored = NULL;
    if (!is_tensorwise(model) && l->weight.part_count == 1 &&
        part->matrix->format == QUANT_FP8)
        stored = part;
    struct fp8_codes to = model->fp8.weight;
    int rows = l->conv1d ? l->in : l->out;
    int columns = l->conv1d ? l->out : l->in;
    struct fp8_cast cast = {
            .x = stored ? stored->codes : NULL,
            .from = stored ? DTYPE_E4M3 : model->kernels->dtype,
            .rows = rows,
            .columns = columns,
            .stride = columns,
            .to = DTYPE_E4M3,
            .layout = weight_layout(model),
            .from_scales = stored ? stored->scales : NULL,
            .padded = rows};
    if (!stored)
        ZD_TRY(linear_weight(l, &cast.x));
    if (is_tensorwise(model))
        cast.amax = weight_amax(model, l->layer, l->group);
    if (l->conv1d != turned) {
        cast.transposed = to.codes;
        cast.transposed_scales = to.scales;
    } else {
        cast.scales = to.scales;
        if (stored) /* in place */
            to.codes = (uint8_t *)(uintptr_t)stored->codes;
        else
            cast.codes = to.codes;
    }
    *weight_out = operand(&to, DTYPE_E4M3, weight_layout(model), true);
    return model->kernels->fp8_cast(NULL, &cast);
}

/* --- operands ------------------------------------------------------------- */

static struct matmul_operand tokens_of(const struct linear *l, enum dtype type)
{
    return operand(&l->model->fp8.tokens, type, token_layout(l->model), false);
}

enum zd_status fp8_input(
        const struct linear *l, const void *x, bool is_first, bool is_kept_only,
        struct matmul_operand *x_out)
{
    const struct fp8_scratch *s = &l->model->fp8;
    *x_out = tokens_of(l, DTYPE_E4M3);
    if (!is_first)
        return ZD_OK;
    if (is_tensorwise(l->model))
        ZD_TRY(l->model->kernels->fp8_amax(
                NULL, l->x_amax, x, l->model->kernels->dtype, l->N, l->in,
                l->in, false));
    /* each place has its own channels of the inputs of o and down */
    if (is_tensorwise(l->model) && (l->group == FP8_O || l->group == FP8_DOWN))
        ZD_TRY(settle_amax(l->model, l->x_amax, 1));
    return cast_tokens(
            l, x, l->in, DTYPE_E4M3, l->x_amax,
            is_kept_only ? NULL : &s->tokens, &l->xt);
}

enum zd_status fp8_input_again(
        const struct linear *l, const void *x, struct matmul_operand *x_out)
{
    *x_out = tokens_of(l, DTYPE_E4M3);
    return cast_tokens(
            l, x, l->in, DTYPE_E4M3, l->x_amax, &l->model->fp8.tokens, NULL);
}

enum zd_status fp8_transposed(
        const struct linear *l, const void *dy, const void *x, bool is_first,
        struct matmul_operand *dy_out, struct matmul_operand *x_out)
{
    const struct fp8_scratch *s = &l->model->fp8;
    enum scale_layout layout = token_layout(l->model);
    enum dtype type = grad_codes(l->model);
    *dy_out = operand(&s->dy, type, layout, false);
    *x_out = operand(l->xt.codes ? &l->xt : &s->x, DTYPE_E4M3, layout, false);
    assert(l->grad_type == DTYPE_FP32 || !l->accumulate);
    ZD_TRY(cast_tokens(
            l, dy, l->out, type, s->grads, l->is_dora ? NULL : &s->tokens,
            l->dweight ? &s->dy : NULL));
    if (is_first && !l->xt.codes && l->model->fp8_use.trains[l->group])
        return cast_tokens(l, x, l->in, DTYPE_E4M3, l->x_amax, NULL, &s->x);
    return ZD_OK;
}

enum zd_status fp8_output_grads(
        const struct linear *l, const void *dy, bool is_other,
        struct matmul_operand *dy_out)
{
    const struct fp8_scratch *s = &l->model->fp8;
    void *other[] = {(void *)(uintptr_t)dy};
    enum dtype type = grad_codes(l->model);
    *dy_out = tokens_of(l, type);
    if (!is_other)
        return ZD_OK;
    ZD_TRY(fp8_grads(l, other, 1));
    return cast_tokens(l, dy, l->out, type, s->grads, &s->tokens, NULL);
}
