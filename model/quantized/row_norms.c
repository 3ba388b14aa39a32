#include "model/quantized/row_norms.h"
#include "base/must.h"

#include "model/quantized/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct weight_source *source;
    int id;
    size_t begin, count; /* rows of the module */
    float *line;         /* the longer of a row and `count` */
    double *squares;     /* (count) */
};

static enum zd_status read_line(
        const struct reading *r, size_t begin, size_t count)
{
    return r->source->read(r->source->ctx, r->id, begin, count, r->line);
}

static enum zd_status add_rows(const struct reading *r, size_t in)
{
    for (size_t o = 0; o < r->count; o++) {
        ZD_TRY(read_line(r, (r->begin + o) * in, in));
        for (size_t i = 0; i < in; i++)
            r->squares[o] += (double)r->line[i] * r->line[i];
    }
    return ZD_OK;
}

static enum zd_status add_columns(
        const struct reading *r, size_t in, size_t out)
{
    for (size_t i = 0; i < in; i++) {
        ZD_TRY(read_line(r, i * out + r->begin, r->count));
        for (size_t o = 0; o < r->count; o++)
            r->squares[o] += (double)r->line[o] * r->line[o];
    }
    return ZD_OK;
}

static enum zd_status add_values(
        const struct weight_source *source, const struct param *param, int id,
        size_t begin, size_t count, double *squares)
{
    size_t columns = (size_t)param->shape[1];
    struct reading r = {
            source,
            id,
            begin,
            count,
            zd_array(param->conv1d ? count : columns, sizeof(float)),
            squares};
    enum zd_status status =
            param->conv1d ? add_columns(&r, (size_t)param->shape[0], columns)
                          : add_rows(&r, columns);
    free(r.line);
    return status;
}

/* Of rows [begin, begin + count) of what the quantized weight decodes to. */
static enum zd_status add_held(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, size_t begin, size_t count,
        double *squares)
{
    struct codes_whole held;
    size_t columns = (size_t)matrix->columns;
    ZD_TRY(codes_make_whole(source, table, id, matrix, &held));
#pragma omp parallel for
    for (size_t o = 0; o < count; o++)
        for (size_t i = 0; i < columns; i++) {
            double value = quant_value(
                    held.codes, held.scales, matrix, (begin + o) * columns + i);
            squares[o] += value * value;
        }
    codes_whole_fini(&held);
    return ZD_OK;
}

static bool is_stored(const struct weight_source *source, int id)
{
    return source->stored && source->stored(source->ctx, id);
}

enum zd_status weights_row_norms(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *held, size_t begin, size_t count,
        float *out)
{
    double *squares = zd_array(count, sizeof *squares);
    enum zd_status status =
            held && !is_stored(source, id)
                    ? add_held(source, table, id, held, begin, count, squares)
                    : add_values(
                              source, &table->params[id], id, begin, count,
                              squares);
    for (size_t o = 0; status == ZD_OK && o < count; o++)
        out[o] = (float)sqrt(squares[o]);
    free(squares);
    return status;
}
