/* export_adapter.c - what becomes of a checkpoint of adapters: a PEFT adapter,
 * or the base with them merged into it. */
#include "base/log.h"
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/adapters/merge.h"
#include "model/quantized/codes.h"
#include "model/quantized/row_norms.h"
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

/* --- as PEFT has it ------------------------------------------------------- */

struct pieces {
    const struct checkpoint *checkpoint;
    const struct model_config *config;
    const struct param_table *table;
    const struct weight_source *base; /* asked for its norms, of DoRA */
};

/* How the run held weight `id`, if in codes that it made; of a model that is
 * stored in codes they are what its weights read as. */
static bool held_in_codes(
        const struct pieces *pieces, int id, struct quant_matrix *matrix_out)
{
    const struct param *param = &pieces->table->params[id];
    const json_t *codes =
            json_object_get(checkpoint_base(pieces->checkpoint), "codes");
    const char *name = json_string_at(codes, "format");
    enum quant_format format;
    if (!name || param->unit < 1 || param->unit > pieces->config->layers ||
        !quant_format_of_name(name, &format))
        return false;
    *matrix_out = codes_matrix(
            param, format, json_is_true(json_object_get(codes, "nested")));
    return true;
}

/* The norms of the base as it was held, and what was learned above them. */
static enum zd_status read_magnitude(
        const struct pieces *pieces, int id, const char *name, size_t begin,
        size_t count, float *out)
{
    struct quant_matrix matrix;
    bool is_held = held_in_codes(pieces, id, &matrix);
    const struct pieces_range range = {name, NULL, begin, count};
    float *change = zd_must(malloc(count * sizeof *change));
    enum zd_status status =
            pieces_read_weights(pieces->checkpoint, &range, change);
    if (status == ZD_OK)
        status = weights_row_norms(
                pieces->base, pieces->table, id, is_held ? &matrix : NULL,
                begin, count, out);
    for (size_t i = 0; status == ZD_OK && i < count; i++)
        out[i] += change[i];
    free(change);
    return status;
}

static enum zd_status read_kind(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    static const enum param_part parts[] = {
            [PEFT_A] = PARAM_LORA_A,
            [PEFT_B] = PARAM_LORA_B,
            [PEFT_MAGNITUDE] = PARAM_LORA_MAGNITUDE};
    const struct pieces *pieces = ctx;
    const struct param *weight = &pieces->table->params[id];
    char name[PARAM_NAME_MAX];
    struct pieces_range range = {weight->name, NULL, begin, count};
    if (kind == PEFT_SAVED)
        return pieces_read_weights(pieces->checkpoint, &range, out);
    lora_part_name(weight, parts[kind], name);
    if (kind == PEFT_MAGNITUDE)
        return read_magnitude(pieces, id, name, begin, count, out);
    range.name = name;
    return pieces_read_weights(pieces->checkpoint, &range, out);
}

static enum zd_status write_adapter(
        const struct pieces *pieces, const struct peft_config *adapter,
        const struct export_request *request, enum dtype dtype)
{
    struct peft_source source = {read_kind, pieces};
    char note[PEFT_NOTE_BYTES] = "";
    ZD_TRY(peft_write(
            request->out_dir, pieces->config, pieces->table, adapter,
            base_path(pieces->checkpoint), request->path, dtype, &source,
            note));
    if (note[0])
        zd_log_info("%s: %s", request->out_dir, note);
    return ZD_OK;
}

enum zd_status export_adapter(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        enum dtype dtype)
{
    struct peft_config adapter;
    struct weight_source base = {0};
    struct pieces pieces = {checkpoint, config, table, &base};
    ZD_TRY(config_of(checkpoint, &adapter));
    enum zd_status status =
            adapter.use_dora
                    ? base_open(checkpoint, config, table, request, &base)
                    : ZD_OK;
    if (status == ZD_OK)
        status = write_adapter(&pieces, &adapter, request, dtype);
    weights_close(&base);
    peft_config_fini(&adapter);
    return status;
}

/* --- merged --------------------------------------------------------------- */

struct merged {
    struct pieces pieces;
    struct param_table adapted;
    int *ids; /* (pieces.table->count) in `adapted`; owned */
    struct weight_source base, sum;
};

static void merged_close(void *ctx)
{
    struct merged *merged = ctx;
    weights_close(&merged->sum);
    weights_close(&merged->base);
    param_table_fini(&merged->adapted);
    free(merged->ids);
    free(merged);
}

static struct merge_what what_of(const void *ctx, int id)
{
    const struct merged *merged = ctx;
    const struct param *params = merged->adapted.params;
    int at = merged->ids[id];
    const struct adapter *adapter = &merged->adapted.adapters[at];
    struct merge_what what = {.is_saved = params[at].trainable};
    if (!adapter->r)
        return what;
    what.r = adapter->r;
    what.scale = adapter->scale;
    what.has_magnitude = adapter->magnitude >= 0;
    return what;
}

static enum zd_status merged_read_kind(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    const struct merged *merged = ctx;
    return read_kind(&merged->pieces, id, kind, begin, count, out);
}

static enum zd_status merged_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct merged *merged = ctx;
    return merged->sum.read(merged->sum.ctx, id, begin, count, out);
}

static enum zd_status adapt(struct merged *merged)
{
    struct peft_config adapter;
    const struct param_table *plain = merged->pieces.table;
    ZD_TRY(param_table_build(merged->pieces.config, NULL, 0, &merged->adapted));
    ZD_TRY(config_of(merged->pieces.checkpoint, &adapter));
    enum zd_status status = lora_extend(
            merged->pieces.config, &adapter, NULL, &merged->adapted);
    peft_config_fini(&adapter);
    ZD_TRY(status);
    merged->ids = zd_array((size_t)plain->count, sizeof *merged->ids);
    for (int id = 0; id < plain->count; id++)
        merged->ids[id] =
                param_table_find(&merged->adapted, plain->params[id].name);
    return checkpoint_match_model(merged->pieces.checkpoint, &merged->adapted);
}

static bool is_in_codes(
        const struct weight_source *base, const struct param_table *table)
{
    for (int id = 0; base->stored && id < table->count; id++)
        if (base->stored(base->ctx, id))
            return true;
    return false;
}

enum zd_status export_open_merged(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out)
{
    struct merged *merged = zd_array(1, sizeof *merged);
    merged->pieces = (struct pieces){checkpoint, config, table, &merged->base};
    struct merge_part part = {
            what_of, {merged_read_kind, merged}, 1, request->path};
    enum zd_status status = adapt(merged);
    if (status == ZD_OK)
        status = base_open(checkpoint, config, table, request, &merged->base);
    if (status == ZD_OK && !request->open_base &&
        is_in_codes(&merged->base, table))
        merge_tell_codes(
                request->base ? request->base
                              : base_path(merged->pieces.checkpoint));
    if (status == ZD_OK)
        status = weights_open_merged(
                &merged->base, table, &part, 1, &merged->sum);
    if (status != ZD_OK) {
        merged_close(merged);
        return status;
    }
    *source_out = (struct weight_source){merged_read, merged_close, merged};
    return ZD_OK;
}
