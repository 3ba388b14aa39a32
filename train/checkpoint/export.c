/* export.c - exports a checkpoint: the whole model as a Hugging Face folder, or
 * its adapter as a PEFT folder. */
#include "train/checkpoint/export.h"

#include "base/log.h"
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/adapters/merge.h"
#include "model/files/config.h"
#include "model/files/export_hf.h"
#include "model/files/weights_hf.h"
#include "model/quantized/base_digest.h"
#include "model/quantized/codes.h"
#include "model/quantized/row_norms.h"
#include "train/checkpoint/pieces.h"

#include <assert.h>
#include <stdlib.h>

/* A rank's open files. */
struct export
{
    const struct export_request *request;
    int rank;
    struct checkpoint *checkpoint;
    const json_t *manifest;
    struct model_config config;
    struct param_table table;  /* without adapters */
    struct peft_part *parts;   /* (table.count) the adapter's; owned */
    struct weight_source base; /* for tensors that the checkpoint does not
                                  hold */
    struct weight_source source;
    struct hf_export_job job;
};

static bool is_adapter(const struct export *e)
{
    return json_is_object(json_object_get(e->manifest, "adapter"));
}

/* --- the base ------------------------------------------------------------- */

/* The base's folder in the run; NULL: none. */
static const char *base_path(const struct export *e)
{
    return json_string_at(checkpoint_base(e->checkpoint), "path");
}

/* The format in which the run quantized the base; NULL: none. */
static const char *codes_of(const struct export *e, bool *nested_out)
{
    const json_t *codes =
            json_object_get(checkpoint_base(e->checkpoint), "codes");
    *nested_out = json_is_true(json_object_get(codes, "nested"));
    return json_string_at(codes, "format");
}

/* The digest of the base, with the run's table: what trained, and what was
 * quantized. */
static enum zd_status digest_base(
        const struct export *e, struct param_table *table, uint64_t *digest)
{
    bool nested;
    const char *format = codes_of(e, &nested);
    for (int id = 0; id < table->count; id++)
        table->params[id].trainable =
                pieces_trained(e->checkpoint, table->params[id].name);
    if (format)
        ZD_TRY(lora_quantize_as(&e->base, format, nested, table));
    return base_digest_read(table, &e->base, digest);
}

static enum zd_status check_base(const struct export *e)
{
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
    uint64_t digest = 0;
    const char *path = base_path(e), *given = e->request->base;
    if (e->request->check == CHECKPOINT_TRUSTED)
        return ZD_OK;
    ZD_TRY(param_table_build(&e->config, NULL, 0, &table));
    ZD_TRY(digest_base(e, &table, &digest));
    return checkpoint_match_digest(
            e->checkpoint, digest,
            given  ? given
            : path ? path
                   : "its random weights",
            "name the base with --base");
}

/* Opens the base from the request's folder, else from the run's. E0327: it is a
 * different base; not checked for a trusted checkpoint. */
static enum zd_status open_base(struct export *e)
{
    const struct export_request *request = e->request;
    const json_t *seed =
            json_object_get(checkpoint_base(e->checkpoint), "seed");
    const char *path = request->base ? request->base : base_path(e);
    if (!request->base && json_is_integer(seed))
        ZD_TRY(weights_open_random(
                (uint64_t)json_integer_value(seed), &e->table, &e->base));
    else if (path)
        ZD_TRY(weights_open_hf(path, &e->config, &e->table, NULL, &e->base));
    else
        return ZD_BAD(
                "E0328", "%s was trained on a model without a folder",
                request->path);
    return check_base(e);
}

/* Reads the whole model: from the checkpoint, and the rest from its base. */
static enum zd_status read_whole(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct export *e = ctx;
    const char *name = e->table.params[id].name;
    const struct pieces_range range = {name, NULL, begin, count};
    if (e->base.read && !pieces_trained(e->checkpoint, name))
        return e->base.read(e->base.ctx, id, begin, count, out);
    return pieces_read_weights(e->checkpoint, &range, out);
}

/* --- an adapter as PEFT has it -------------------------------------------- */

static enum zd_status config_of(
        const struct export *e, struct peft_config *config)
{
    const json_t *adapter = json_object_get(e->manifest, "adapter");
    return peft_config_parse(
            json_object_get(adapter, "config"), CHECKPOINT_MANIFEST,
            ZD_ERR_DATA, config);
}

/* The quantization of weight `id` in the run, if the run quantized it. A model
 * that is stored quantized already reads as dequantized. */
static bool held_in_codes(
        const struct export *e, int id, struct quant_matrix *matrix_out)
{
    bool nested;
    const struct param *param = &e->table.params[id];
    const char *name = codes_of(e, &nested);
    enum quant_format format;
    if (!name || param->unit < 1 || param->unit > e->config.layers ||
        !quant_format_of_name(name, &format))
        return false;
    *matrix_out = codes_matrix(param, format, nested);
    return true;
}

/* Adds the learned change to the norms of the base as the run held it. */
static enum zd_status read_magnitude(
        const struct export *e, int id, const struct pieces_range *range,
        float *out)
{
    struct quant_matrix matrix;
    bool is_held = held_in_codes(e, id, &matrix);
    ZD_TRY(pieces_read_weights(e->checkpoint, range, out));
    return weights_add_row_norms(
            &e->base, &e->table, id, is_held ? &matrix : NULL, range->begin,
            range->count, 1, out);
}

static enum zd_status read_kind(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    static const enum param_part parts[] = {
            [PEFT_A] = PARAM_LORA_A,
            [PEFT_B] = PARAM_LORA_B,
            [PEFT_MAGNITUDE] = PARAM_LORA_MAGNITUDE};
    const struct export *e = ctx;
    const struct param *weight = &e->table.params[id];
    char name[PARAM_NAME_MAX];
    struct pieces_range range = {weight->name, NULL, begin, count};
    if (kind != PEFT_SAVED) {
        lora_part_name(weight, parts[kind], name);
        range.name = name;
    }
    return kind == PEFT_MAGNITUDE
                   ? read_magnitude(e, id, &range, out)
                   : pieces_read_weights(e->checkpoint, &range, out);
}

/* Writes the adapter, and logs which programs cannot read it. */
static enum zd_status write_adapter(
        struct export *e, const struct peft_config *adapter)
{
    const struct export_request *request = e->request;
    struct peft_source source = {read_kind, e};
    char note[PEFT_NOTE_BYTES] = "";
    if (adapter->use_dora)
        ZD_TRY(open_base(e));
    ZD_TRY(peft_write(
            request->out_dir, &e->config, &e->table, adapter, base_path(e),
            request->path, request->dtype ? *request->dtype : DTYPE_FP32,
            &source, note));
    if (note[0])
        zd_log_info("%s: %s", request->out_dir, note);
    return ZD_OK;
}

/* An adapter is small: rank 0 writes it. */
static enum zd_status export_adapter(struct export *e)
{
    ZD_SCOPED(peft_config_fini) struct peft_config adapter = {0};
    if (e->request->quantize) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101",
                "`%s` holds an adapter: there is nothing to quantize",
                e->request->path);
        return zd_fail_help(
                "--merge: the model with the adapter in it, quantized");
    }
    if (e->rank > 0)
        return ZD_OK;
    ZD_TRY(config_of(e, &adapter));
    return write_adapter(e, &adapter);
}

/* --- an adapter merged into its base -------------------------------------- */

/* Sets what the adapter has for each tensor. */
static enum zd_status adapt(struct export *e)
{
    ZD_SCOPED(peft_config_fini) struct peft_config config = {0};
    ZD_SCOPED(param_table_fini) struct param_table adapted = {0};
    ZD_TRY(param_table_build(&e->config, NULL, 0, &adapted));
    ZD_TRY(config_of(e, &config));
    ZD_TRY(lora_extend(&e->config, &config, NULL, &adapted));
    e->parts = zd_array((size_t)e->table.count, sizeof *e->parts);
    for (int id = 0; id < e->table.count; id++) {
        int at = param_table_find(&adapted, e->table.params[id].name);
        const struct adapter *adapter = &adapted.adapters[at];
        struct peft_part *part = &e->parts[id];
        part->r = adapter->r;
        part->scale = adapter->scale;
        part->has[PEFT_MAGNITUDE] = adapter->magnitude >= 0;
        part->has[PEFT_SAVED] = adapted.params[at].trainable;
    }
    return checkpoint_match_model(e->checkpoint, &adapted);
}

static bool base_is_in_codes(const struct export *e)
{
    for (int id = 0; e->base.stored && id < e->table.count; id++)
        if (e->base.stored(e->base.ctx, id))
            return true;
    return false;
}

static enum zd_status open_merged(struct export *e)
{
    const struct export_request *request = e->request;
    ZD_TRY(adapt(e));
    ZD_TRY(open_base(e));
    struct merge_part part = {e->parts, {read_kind, e}, 1, request->path};
    if (e->rank == 0 && base_is_in_codes(e))
        merge_tell_codes(request->base ? request->base : base_path(e));
    return weights_open_merged(&e->base, &e->table, &part, 1, &e->source);
}

/* --- a model -------------------------------------------------------------- */

static enum zd_status open_source(struct export *e)
{
    if (is_adapter(e))
        return open_merged(e);
    if (e->request->merges) {
        ZD_BAD("E0328", "%s holds a whole model, not an adapter to merge",
               e->request->path);
        return zd_fail_help("without --merge it is exported as it is");
    }
    ZD_TRY(checkpoint_match_model(e->checkpoint, &e->table));
    e->source = (struct weight_source){.read = read_whole, .ctx = e};
    return checkpoint_base(e->checkpoint) ? open_base(e) : ZD_OK;
}

static enum zd_status export_open(struct export *e)
{
    const struct export_request *request = e->request;
    ZD_TRY(checkpoint_open(request->path, request->check, &e->checkpoint));
    ZD_TRY(model_config_read(request->path, true, &e->config));
    e->manifest = e->checkpoint->manifest;
    const json_t *scaling = json_object_get(
            json_object_get(e->manifest, "data"), "rope_scaling");
    if (json_is_object(scaling))
        ZD_TRY(model_config_scale_rope(
                scaling, "model.rope_scaling", ZD_ERR_CONFIG, &e->config));
    ZD_TRY(param_table_build(&e->config, NULL, 0, &e->table));
    if (is_adapter(e) && !request->merges)
        return ZD_OK;
    ZD_TRY(open_source(e));
    const char *type = json_string_at(e->manifest, "export_dtype");
    enum dtype dtype = DTYPE_FP32; /* lossless */
    dtype_find(dtype_name, type, &dtype);
    e->job = (struct hf_export_job){
            .dir = request->out_dir,
            .config = &e->config,
            .table = &e->table,
            .dtype = request->dtype ? *request->dtype : dtype,
            .max_shard_bytes = request->max_shard_bytes,
            .copy_from = request->path,
            .file_prefix =
                    json_is_true(json_object_get(e->manifest, "gpt2_prefix")),
            .others_from = request->base
                                   ? request->base
                                   : json_string_at(e->manifest, "others"),
    };
    return ZD_OK;
}

static void export_close(struct export *e)
{
    weights_close(&e->source);
    weights_close(&e->base);
    free(e->parts);
    param_table_fini(&e->table);
    model_config_fini(&e->config);
    checkpoint_close(e->checkpoint);
}

static enum zd_status settle(struct comm *comm, enum zd_status mine)
{
    return comm ? comm_agree(comm, mine) : mine;
}

/* Every rank writes a part. */
static enum zd_status write_model(struct comm *comm, const struct export *e)
{
    int size = comm ? comm_size(comm) : 1;
    for (unsigned step = EXPORT_BEGIN; step <= EXPORT_END; step *= 2) {
        bool is_mine = step == EXPORT_PART || e->rank == 0;
        ZD_TRY(
                settle(comm, is_mine ? weights_export(
                                               &e->job, (enum export_step)step,
                                               &e->source, e->rank, size)
                                     : ZD_OK));
    }
    return ZD_OK;
}

enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request)
{
    ZD_SCOPED(export_close)
    struct export e = {.request = request, .rank = comm ? comm_rank(comm) : 0};
    ZD_TRY(settle(comm, export_open(&e)));
    if (!e.source.read)
        return settle(comm, export_adapter(&e));
    if (!request->quantize)
        return write_model(comm, &e);
    assert(!comm);
    return weights_export_quantized(&e.job, &e.source, request->quantize);
}
