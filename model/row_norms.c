#include "model/row_norms.h"

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

enum zd_status weights_row_norms(
        const struct weight_source *source, const struct model_config *config,
        const struct param *param, int id, size_t begin, size_t count,
        float *out)
{
    bool conv1d = param_is_conv1d(config, param);
    size_t columns = (size_t)param->shape[1];
    struct reading r = {
            source,
            id,
            begin,
            count,
            malloc((conv1d ? count : columns) * sizeof(float)),
            calloc(count, sizeof(double))};
    enum zd_status status = ZD_OK;
    if (!r.line || !r.squares)
        status =
                ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for norms of `%s`",
                        param->name);
    if (status == ZD_OK)
        status = conv1d ? add_columns(&r, (size_t)param->shape[0], columns)
                        : add_rows(&r, columns);
    for (size_t o = 0; status == ZD_OK && o < count; o++)
        out[o] = (float)sqrt(r.squares[o]);
    free(r.line);
    free(r.squares);
    return status;
}
