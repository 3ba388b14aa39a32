/* export_adapter.c - what becomes of a checkpoint of adapters: a PEFT adapter,
 * or the base with them merged into it. */
#include "base/log.h"
#include "model/adapter.h"
#include "model/lora.h"
#include "model/peft.h"
#include "train/checkpoint/export.h"
#include "train/checkpoint/pieces.h"

#include <stdlib.h>
#include <string.h>

bool checkpoint_is_adapter(const struct checkpoint *checkpoint)
{
    return json_is_object(
            json_object_get(checkpoint_manifest(checkpoint), "adapter"));
}

static enum zd_status config_of(
        const struct checkpoint *checkpoint, struct peft_config *config)
{
    const json_t *adapter =
            json_object_get(checkpoint_manifest(checkpoint), "adapter");
    return peft_config_parse(
            json_object_get(adapter, "config"), CHECKPOINT_MANIFEST,
            ZD_ERR_DATA, config);
}

static const char *base_of(const struct checkpoint *checkpoint)
{
    const json_t *adapter =
            json_object_get(checkpoint_manifest(checkpoint), "adapter");
    return json_string_value(
            json_object_get(json_object_get(adapter, "base"), "path"));
}

/* "..q_proj.lora_A.weight" of "..q_proj.weight". */
static void factor_name(
        const struct param *weight, char factor, char out[PARAM_NAME_MAX])
{
    int stem = (int)(strlen(weight->name) - strlen(".weight"));
    snprintf(
            out, PARAM_NAME_MAX, "%.*s.lora_%c.weight", stem, weight->name,
            factor);
}

/* --- as PEFT has it ------------------------------------------------------- */

struct pieces {
    const struct checkpoint *checkpoint;
    const struct param_table *table;
};

static enum zd_status read_kind(
        void *ctx, int id, enum peft_kind kind, size_t begin, size_t count,
        float *out)
{
    const struct pieces *pieces = ctx;
    const struct param *weight = &pieces->table->params[id];
    char name[PARAM_NAME_MAX];
    if (kind == PEFT_SAVED)
        snprintf(name, sizeof name, "%s", weight->name);
    else
        factor_name(weight, kind == PEFT_A ? 'A' : 'B', name);
    return pieces_read_weights(pieces->checkpoint, name, begin, count, out);
}

enum zd_status export_adapter(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const char *out_dir, enum dtype dtype)
{
    struct param_table table;
    struct peft_config adapter;
    char note[PEFT_NOTE_BYTES] = "";
    ZD_TRY(param_table_build(config, NULL, 0, &table));
    enum zd_status status = config_of(checkpoint, &adapter);
    if (status == ZD_OK) {
        struct pieces pieces = {checkpoint, &table};
        struct peft_source source = {read_kind, &pieces};
        status = peft_write(
                out_dir, config, &table, &adapter, base_of(checkpoint), dtype,
                &source, note);
        peft_config_fini(&adapter);
    }
    param_table_fini(&table);
    if (status == ZD_OK && note[0])
        zd_log_info("%s: %s", out_dir, note);
    return status;
}

/* --- merged --------------------------------------------------------------- */

/* The adapter of one weight at a time. */
struct merged {
    const struct checkpoint *checkpoint;
    const struct model_config *config;
    const struct param_table *plain; /* of the model that is written */
    struct param_table adapted;
    struct weight_source base;
    int id; /* whose factors these are; -1: nobody's */
    float *a, *b;
};

static void merged_close(void *ctx)
{
    struct merged *merged = ctx;
    weights_close(&merged->base);
    param_table_fini(&merged->adapted);
    free(merged->a);
    free(merged->b);
    free(merged);
}

static enum zd_status read_factor(
        const struct merged *merged, int id, float **out)
{
    const struct param *param = &merged->adapted.params[id];
    free(*out);
    *out = malloc(param->count * sizeof **out);
    if (!*out)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an adapter");
    return pieces_read_weights(
            merged->checkpoint, param->name, 0, param->count, *out);
}

static enum zd_status merged_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    struct merged *merged = ctx;
    const struct param *weight = &merged->plain->params[id];
    const struct param_table *adapted = &merged->adapted;
    int at = param_table_find(adapted, weight->name);
    const struct adapter *adapter = &adapted->adapters[at];
    if (adapted->params[at].trainable)
        return pieces_read_weights(
                merged->checkpoint, weight->name, begin, count, out);
    ZD_TRY(merged->base.read(merged->base.ctx, id, begin, count, out));
    if (!adapter->r)
        return ZD_OK;
    if (merged->id != id) {
        ZD_TRY(read_factor(merged, adapter->a, &merged->a));
        ZD_TRY(read_factor(merged, adapter->b, &merged->b));
        merged->id = id;
    }
    adapter_merge(
            &(struct adapter_merge){
                    .in = (int)adapted->params[adapter->a].shape[1],
                    .out = (int)adapted->params[adapter->b].shape[0],
                    .r = adapter->r,
                    .conv1d = param_is_conv1d(merged->config, weight),
                    .scale = adapter->scale,
                    .a = merged->a,
                    .b = merged->b},
            begin, count, out);
    return ZD_OK;
}

static enum zd_status open_base(
        const struct merged *merged, const struct export_request *request,
        struct weight_source *out)
{
    const char *path = base_of(merged->checkpoint);
    if (request->open_base)
        return request->open_base(
                request->ctx, merged->config, merged->plain, out);
    if (!path)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0328",
                "%s holds an adapter of a model that came from no folder",
                request->path);
    return weights_open_hf(path, merged->config, merged->plain, NULL, out);
}

static enum zd_status adapt(struct merged *merged)
{
    struct peft_config adapter;
    ZD_TRY(param_table_build(merged->config, NULL, 0, &merged->adapted));
    ZD_TRY(config_of(merged->checkpoint, &adapter));
    enum zd_status status =
            lora_extend(merged->config, &adapter, NULL, &merged->adapted);
    peft_config_fini(&adapter);
    return status;
}

enum zd_status export_open_merged(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out)
{
    struct merged *merged = calloc(1, sizeof *merged);
    if (!merged)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an adapter");
    merged->checkpoint = checkpoint;
    merged->config = config;
    merged->plain = table;
    merged->id = -1;
    enum zd_status status = adapt(merged);
    if (status == ZD_OK)
        status = open_base(merged, request, &merged->base);
    if (status == ZD_OK)
        status = checkpoint_match_model(checkpoint, &merged->adapted);
    if (status != ZD_OK) {
        merged_close(merged);
        return status;
    }
    *source_out = (struct weight_source){merged_read, merged_close, merged};
    return ZD_OK;
}
