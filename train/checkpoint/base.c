#include "train/checkpoint/export.h"

#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/files/weights_hf.h"
#include "model/quantized/base_digest.h"
#include "train/checkpoint/pieces.h"

#include <stdlib.h>
#include <string.h>

const json_t *checkpoint_base(const struct checkpoint *checkpoint)
{
    const json_t *manifest = checkpoint_manifest(checkpoint);
    const json_t *base = json_object_get(manifest, "base");
    return json_is_object(base) ? base : NULL;
}

const char *base_path(const struct checkpoint *checkpoint)
{
    return json_string_at(checkpoint_base(checkpoint), "path");
}

/* --- is it the one? ------------------------------------------------------- */

/* `where` its digest is `now`. */
static enum zd_status match_digest(
        const struct checkpoint *checkpoint, uint64_t now, const char *where,
        const char *help)
{
    char digest[BASE_DIGEST_TEXT];
    const char *was = json_string_at(checkpoint_base(checkpoint), "digest");
    base_digest_text(now, digest);
    if (was && strcmp(was, digest) == 0)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0327",
            "%s was trained on another base: its digest was %s, that of %s is "
            "%s",
            checkpoint_path(checkpoint), was ? was : "nothing", where, digest);
    return zd_fail_help("%s", help);
}

enum zd_status checkpoint_match_base(
        const struct checkpoint *checkpoint, const struct param_table *table,
        const uint64_t *digests)
{
    uint64_t digest = 0;
    bool lacks = false;
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        if (!pieces_trained(checkpoint, param->name)) {
            lacks = true;
            digest += digests[id];
        }
        if (param->trainable || !pieces_trained(checkpoint, param->name))
            continue;
        ZD_FAIL(ZD_ERR_CONFIG, "E0812",
                "%s has trained %s, which is frozen now: later checkpoints "
                "would lose it",
                checkpoint_path(checkpoint), param->name);
        return zd_fail_help(
                "let it train, or export the checkpoint and begin with "
                "that model in another job.output_dir");
    }
    if (!lacks)
        return ZD_OK;
    return match_digest(
            checkpoint, digest, "model.path",
            "restore the base, or use a new job.output_dir");
}

/* The model's table as the run had it: what trained, and what lay in codes. */
static enum zd_status table_of_run(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct weight_source *source, struct param_table *table)
{
    const json_t *codes = json_object_get(checkpoint_base(checkpoint), "codes");
    const char *format = json_string_at(codes, "format");
    for (int id = 0; id < table->count; id++)
        table->params[id].trainable =
                pieces_trained(checkpoint, table->params[id].name);
    if (!format)
        return ZD_OK;
    return lora_quantize_as(
            source, format, json_is_true(json_object_get(codes, "nested")),
            table);
}

static enum zd_status match_source(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct weight_source *source, const char *where)
{
    struct param_table table;
    uint64_t digest = 0;
    ZD_TRY(param_table_build(config, NULL, 0, &table));
    enum zd_status status = table_of_run(checkpoint, config, source, &table);
    if (status == ZD_OK)
        status = base_digest_read(&table, source, &digest);
    param_table_fini(&table);
    ZD_TRY(status);
    return match_digest(checkpoint, digest, where, "name the base with --base");
}

/* --- opening it ----------------------------------------------------------- */

static enum zd_status open_known(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *out)
{
    const json_t *seed = json_object_get(checkpoint_base(checkpoint), "seed");
    const char *path = base_path(checkpoint);
    if (request->base)
        return weights_open_hf(request->base, config, table, NULL, out);
    if (request->open_base)
        return request->open_base(request->ctx, config, table, out);
    if (json_is_integer(seed))
        return weights_open_random(
                (uint64_t)json_integer_value(seed), table, out);
    if (!path)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0328",
                "%s was trained on a model without a folder", request->path);
    return weights_open_hf(path, config, table, NULL, out);
}

enum zd_status base_open(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out)
{
    const char *path = base_path(checkpoint);
    const char *where = request->base ? request->base
                        : path        ? path
                                      : "its random weights";
    ZD_TRY(open_known(checkpoint, config, table, request, source_out));
    if (request->check == CHECKPOINT_TRUSTED)
        return ZD_OK;
    enum zd_status status = match_source(checkpoint, config, source_out, where);
    if (status != ZD_OK)
        weights_close(source_out);
    return status;
}

/* --- all of a model ------------------------------------------------------- */

struct whole {
    const struct checkpoint *checkpoint;
    const struct param_table *table;
    struct weight_source base; /* read NULL: nothing is missing */
};

static enum zd_status whole_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct whole *whole = ctx;
    const char *name = whole->table->params[id].name;
    if (whole->base.read && !pieces_trained(whole->checkpoint, name))
        return whole->base.read(whole->base.ctx, id, begin, count, out);
    const struct pieces_range range = {name, NULL, begin, count};
    return pieces_read_weights(whole->checkpoint, &range, out);
}

static void whole_close(void *ctx)
{
    struct whole *whole = ctx;
    weights_close(&whole->base);
    free(whole);
}

enum zd_status base_open_whole(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out)
{
    struct whole *whole = zd_array(1, sizeof *whole);
    *whole = (struct whole){.checkpoint = checkpoint, .table = table};
    if (checkpoint_base(checkpoint)) {
        enum zd_status status =
                base_open(checkpoint, config, table, request, &whole->base);
        if (status != ZD_OK) {
            free(whole);
            return status;
        }
    }
    *source_out = (struct weight_source){
            .read = whole_read, .close = whole_close, .ctx = whole};
    return ZD_OK;
}
