/* weight.c - weights in the compute type; decodes quantized ones. */
#include "model/internal.h"

#include <assert.h>

enum zd_status tensor_values(
        const struct model *model, int id, const void **values_out)
{
    const struct param_table *table = model->table;
    *values_out = model->params[id];
    if (!param_is_quantized(table, id))
        return ZD_OK;
    *values_out = model->decoded;
    return model->kernels->dequantize(
            NULL, model->decoded, model->params[id],
            model->params[param_scales(table, id)], &table->codes[id]);
}

enum zd_status linear_weight(
        const struct linear *linear, const void **values_out)
{
    const struct weight_view *weight = &linear->weight;
    const struct kernels *k = linear->model->kernels;
    char *out = linear->model->decoded;
    assert(weight->values || (weight->part_count && out));
    *values_out = weight->values ? weight->values : out;
    ZD_EACH(part, weight->parts, weight->part_count) {
        ZD_TRY(k->dequantize(
                NULL, out, part->codes, part->scales, part->matrix));
        out += quant_matrix_count(part->matrix) * dtype_bytes(k->dtype);
    }
    return ZD_OK;
}
