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

/* --- as the source has them ------------------------------------------------
 */

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

/* --- as they are held ------------------------------------------------------
 */

/* A weight in codes, which are of its rows as the module has them. */
struct held {
    const struct quant_matrix *matrix;
    uint8_t *codes;
    float *of_blocks; /* scales as they are made */
    void *scales;     /* what decodes it */
};

static enum zd_status keep_codes(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    const struct held *held = ctx;
    memcpy(held->codes + quant_code_bytes(held->matrix, begin), codes,
           quant_code_bytes(held->matrix, count));
    return ZD_OK;
}

static enum zd_status make_codes(
        const struct weight_source *source, const struct param_table *table,
        int id, struct held *held)
{
    struct codes_maker *maker;
    struct param_table one = *table; /* of which this alone is in codes */
    one.codes = zd_array((size_t)table->count, sizeof *one.codes);
    one.codes[id] = *held->matrix;
    enum zd_status status = codes_maker_create(&one, source, &maker);
    if (status == ZD_OK) {
        status = codes_make(
                maker, id, 0, quant_matrix_count(held->matrix), keep_codes,
                held, held->of_blocks);
        if (status == ZD_OK)
            status = codes_finish(maker, id, held->of_blocks, held->scales);
        codes_maker_destroy(maker);
    }
    free(one.codes);
    return status;
}

static void add_codes(
        const struct held *held, size_t begin, size_t count, double *squares)
{
    size_t columns = (size_t)held->matrix->columns;
#pragma omp parallel for
    for (size_t o = 0; o < count; o++)
        for (size_t i = 0; i < columns; i++) {
            double value = quant_value(
                    held->codes, held->scales, held->matrix,
                    (begin + o) * columns + i);
            squares[o] += value * value;
        }
}

static enum zd_status add_held(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, size_t begin, size_t count,
        double *squares)
{
    struct held held = {
            matrix,
            malloc(quant_code_bytes(matrix, quant_matrix_count(matrix))),
            calloc(quant_scale_count(matrix), sizeof(float)),
            malloc(quant_scale_bytes(matrix))};
    enum zd_status status = ZD_OK;
    if (!held.codes || !held.of_blocks || !held.scales)
        status =
                ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for norms of `%s`",
                        table->params[id].name);
    if (status == ZD_OK)
        status = make_codes(source, table, id, &held);
    if (status == ZD_OK)
        add_codes(&held, begin, count, squares);
    free(held.codes);
    free(held.of_blocks);
    free(held.scales);
    return status;
}

/* --- either ----------------------------------------------------------------
 */

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
