#include "model/weights.h"

#include "base/must.h"
#include "base/number/rng.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 13 }; /* elements that one thread computes at a time */

struct random_source {
    uint64_t seed;
    const struct param_table *table;
};

static void fill(
        const struct param *param, uint64_t seed, size_t begin, size_t count,
        float *out)
{
    uint64_t stream = rng_stream(param->name);
    switch (param->init) {
    case PARAM_INIT_UNIFORM:
        for (size_t i = 0; i < count; i++)
            out[i] = param->init_std *
                     (float)(2 * rng_uniform(seed, stream, begin + i) - 1);
        break;
    case PARAM_INIT_NORMAL:
        rng_normal(seed, stream, begin, count, out);
        for (size_t i = 0; i < count; i++)
            out[i] *= param->init_std;
        break;
    default:
        for (size_t i = 0; i < count; i++)
            out[i] = param->init == PARAM_INIT_ONES ? 1.0f : 0.0f;
    }
}

static enum zd_status random_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct random_source *source = ctx;
    const struct param *param = &source->table->params[id];
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        fill(param, source->seed, begin + at, n, out + at);
    }
    return ZD_OK;
}

enum zd_status weights_open_random(
        uint64_t seed, const struct param_table *table,
        struct weight_source *source_out)
{
    struct random_source *source = zd_array(1, sizeof *source);
    *source = (struct random_source){seed, table};
    *source_out = (struct weight_source){random_read, free, source};
    return ZD_OK;
}

static enum zd_status read_piece(
        const struct weight_source *source, int id, size_t begin, size_t at,
        size_t count, float *out)
{
    size_t n = count - at < PIECE ? count - at : PIECE;
    return source->read(source->ctx, id, begin + at, n, out + at);
}

enum zd_status weights_read_parallel(
        const struct weight_source *source, int id, size_t begin, size_t count,
        float *out)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : failed)
    for (size_t at = 0; at < count; at += PIECE)
        failed += read_piece(source, id, begin, at, count, out) != ZD_OK;
    /* error messages are per thread: repeats the failed read on this one */
    for (size_t at = 0; failed && at < count; at += PIECE)
        ZD_TRY(read_piece(source, id, begin, at, count, out));
    return ZD_OK;
}

void weights_close(struct weight_source *source)
{
    if (!source)
        return;
    if (source->close)
        source->close(source->ctx);
    memset(source, 0, sizeof *source);
}
