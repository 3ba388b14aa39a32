#include "model/weights.h"

#include "base/number/rng.h"

#include <stdlib.h>
#include <string.h>

struct random_source {
    uint64_t seed;
    const struct param_table *table;
};

static enum zd_status random_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct random_source *source = ctx;
    const struct param *param = &source->table->params[id];
    if (param->init == PARAM_INIT_UNIFORM) {
        uint64_t stream = rng_stream(param->name);
        for (size_t i = 0; i < count; i++)
            out[i] = param->init_std *
                     (float)(2 * rng_uniform(source->seed, stream, begin + i) -
                             1);
        return ZD_OK;
    }
    if (param->init != PARAM_INIT_NORMAL) {
        float value = param->init == PARAM_INIT_ONES ? 1.0f : 0.0f;
        for (size_t i = 0; i < count; i++)
            out[i] = value;
        return ZD_OK;
    }
    rng_normal(source->seed, rng_stream(param->name), begin, count, out);
    for (size_t i = 0; i < count; i++)
        out[i] *= param->init_std;
    return ZD_OK;
}

enum zd_status weights_open_random(
        uint64_t seed, const struct param_table *table,
        struct weight_source *source_out)
{
    struct random_source *source = malloc(sizeof *source);
    if (!source)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    *source = (struct random_source){seed, table};
    *source_out = (struct weight_source){random_read, free, source};
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
