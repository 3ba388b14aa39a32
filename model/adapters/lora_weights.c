/* lora_weights.c - the initial weights of an adapted model: its base from any
 * source, its adapters random or from PEFT's files. */
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/adapters/peft.h"
#include "model/quantized/row_norms.h"
#include "model/weights.h"

#include <stdlib.h>

struct lora_source {
    const struct param_table *table;
    struct weight_source base, random;
    struct peft_adapter adapter; /* parts NULL: random */
};

static void lora_close(void *ctx)
{
    struct lora_source *source = ctx;
    weights_close(&source->base);
    weights_close(&source->random);
    peft_close(&source->adapter);
    free(source);
}

/* A tensor in the adapter's files; NULL: not found. */
static const struct st_tensor *stored(const struct lora_source *source, int id)
{
    const struct param *param = &source->table->params[id];
    if (!source->adapter.parts)
        return NULL;
    int at = param->part == PARAM_BASE ? id : param->adapts;
    static const enum peft_kind kinds[] = {
            [PARAM_BASE] = PEFT_SAVED,
            [PARAM_LORA_A] = PEFT_A,
            [PARAM_LORA_B] = PEFT_B,
            [PARAM_LORA_MAGNITUDE] = PEFT_MAGNITUDE};
    const struct st_tensor *const *tensors = source->adapter.parts[at].tensors;
    const struct st_tensor *tensor = tensors[kinds[param->part]];
    return !tensor && param->part == PARAM_BASE ? tensors[PEFT_UNDER] : tensor;
}

/* Ours are PEFT's minus the norms of the base as it is held in memory. */
static enum zd_status read_magnitude(
        const struct lora_source *source, const struct st_tensor *tensor,
        int weight, size_t begin, size_t count, float *out)
{
    const struct param_table *table = source->table;
    ZD_TRY(peft_read(&source->adapter, tensor, begin, count, out));
    return weights_add_row_norms(
            &source->base, table, weight,
            param_is_quantized(table, weight) ? &table->codes[weight] : NULL,
            begin, count, -1, out);
}

static enum zd_status lora_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct lora_source *source = ctx;
    const struct st_tensor *tensor = stored(source, id);
    const struct param *param = &source->table->params[id];
    const struct weight_source *from =
            param->part == PARAM_BASE ? &source->base : &source->random;
    if (tensor && param->part == PARAM_LORA_MAGNITUDE)
        return read_magnitude(source, tensor, param->adapts, begin, count, out);
    if (tensor)
        return peft_read(&source->adapter, tensor, begin, count, out);
    return from->read(from->ctx, id, begin, count, out);
}

static const struct quantized *lora_stored(void *ctx, int id)
{
    const struct lora_source *source = ctx;
    return source->base.stored ? source->base.stored(source->base.ctx, id)
                               : NULL;
}

enum zd_status weights_open_lora(
        const struct model_config *config, const struct param_table *table,
        struct weight_source *base, uint64_t seed, const char *path,
        struct weight_source *source_out)
{
    struct lora_source *source = zd_array(1, sizeof *source);
    ZD_SCOPED(weights_close)
    struct weight_source opened = {lora_read, lora_close, source, lora_stored};
    source->table = table;
    source->base = *base;
    ZD_TRY(weights_open_random(seed, table, &source->random));
    if (path)
        ZD_TRY(peft_open(path, config, table, &source->adapter));
    *source_out = ZD_TAKE(opened);
    return ZD_OK;
}
