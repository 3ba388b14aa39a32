#include "model/quantized/row_norms.h"
#include "base/must.h"

#include "model/quantized/codes.h"

#include <math.h>

/* Lines are rows of the module, or pieces of its columns if the weight is
 * stored transposed. */
static enum zd_status add_values(
        const struct weight_source *source, const struct param *param, int id,
        size_t begin, size_t count, double *squares)
{
    size_t in = (size_t)param_in(param), out = (size_t)param_out(param);
    size_t lines = param->conv1d ? in : count;
    size_t length = param->conv1d ? count : in;
    ZD_FREED float *line = zd_array(length, sizeof *line);
    for (size_t i = 0; i < lines; i++) {
        size_t at = param->conv1d ? i * out + begin : (begin + i) * in;
        ZD_TRY(source->read(source->ctx, id, at, length, line));
        for (size_t j = 0; j < length; j++)
            squares[param->conv1d ? j : i] += (double)line[j] * line[j];
    }
    return ZD_OK;
}

/* Adds the norms of rows [begin, begin + count) of the dequantized weight. */
static enum zd_status add_held(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, size_t begin, size_t count,
        double *squares)
{
    ZD_SCOPED(codes_whole_fini) struct codes_whole held = {0};
    size_t columns = (size_t)matrix->columns;
    ZD_TRY(codes_make_whole(source, table, id, matrix, &held));
#pragma omp parallel for
    for (size_t o = 0; o < count; o++)
        for (size_t i = 0; i < columns; i++) {
            double value = quant_value(
                    held.codes, held.scales, matrix, (begin + o) * columns + i);
            squares[o] += value * value;
        }
    return ZD_OK;
}

enum zd_status weights_add_row_norms(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *held, size_t begin, size_t count,
        float times, float *values)
{
    ZD_FREED double *squares = zd_array(count, sizeof *squares);
    bool is_stored = source->stored && source->stored(source->ctx, id);
    if (held && !is_stored)
        ZD_TRY(add_held(source, table, id, held, begin, count, squares));
    else
        ZD_TRY(add_values(
                source, &table->params[id], id, begin, count, squares));
    for (size_t o = 0; o < count; o++)
        values[o] += times * (float)sqrt(squares[o]);
    return ZD_OK;
}
