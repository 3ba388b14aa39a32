#include "train/checkpoint/export.h"

#include "model/files/config.h"
#include "model/files/export_hf.h"

#include <assert.h>
#include <string.h>

static enum dtype dtype_of_name(const char *name)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    for (size_t i = 0; name && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(dtype_name(types[i]), name) == 0)
            return types[i];
    return DTYPE_FP32; /* loses nothing */
}

/* What a rank has open. */
struct export
{
    struct checkpoint *checkpoint;
    struct model_config config;
    struct param_table table;
    struct weight_source source;
    struct hf_export_job job;
};

static enum zd_status open_source(
        struct export *e, const struct export_request *request)
{
    if (checkpoint_is_adapter(e->checkpoint))
        return export_open_merged(
                e->checkpoint, &e->config, &e->table, request, &e->source);
    if (request->merges) {
        ZD_FAIL(ZD_ERR_DATA, "E0328",
                "%s holds a whole model, not an adapter to merge",
                request->path);
        return zd_fail_help("without --merge it is exported as it is");
    }
    ZD_TRY(checkpoint_match_model(e->checkpoint, &e->table));
    return base_open_whole(
            e->checkpoint, &e->config, &e->table, request, &e->source);
}

static enum zd_status export_open(
        struct export *e, const struct export_request *request)
{
    ZD_TRY(checkpoint_open(request->path, request->check, &e->checkpoint));
    ZD_TRY(model_config_read_stored(request->path, &e->config));
    const json_t *data =
            json_object_get(checkpoint_manifest(e->checkpoint), "data");
    const json_t *scaling = json_object_get(data, "rope_scaling");
    if (json_is_object(scaling))
        ZD_TRY(model_config_scale_rope(
                scaling, "model.rope_scaling", ZD_ERR_CONFIG, &e->config));
    ZD_TRY(param_table_build(&e->config, NULL, 0, &e->table));
    if (checkpoint_is_adapter(e->checkpoint) && !request->merges)
        return ZD_OK;
    ZD_TRY(open_source(e, request));
    const json_t *manifest = checkpoint_manifest(e->checkpoint);
    const char *type = json_string_at(manifest, "export_dtype");
    bool prefix = json_is_true(json_object_get(manifest, "gpt2_prefix"));
    const char *others = json_string_at(manifest, "others");
    e->job = (struct hf_export_job){
            .dir = request->out_dir,
            .config = &e->config,
            .table = &e->table,
            .options = {
                    .dtype = request->dtype ? *request->dtype
                                            : dtype_of_name(type),
                    .max_shard_bytes = request->max_shard_bytes,
                    .copy_from = request->path,
                    .file_prefix = prefix,
                    .others_from = request->base ? request->base : others,
            }};
    return ZD_OK;
}

static void export_close(struct export *e)
{
    weights_close(&e->source);
    param_table_fini(&e->table);
    model_config_fini(&e->config);
    checkpoint_close(e->checkpoint);
}

static enum zd_status settle(struct comm *comm, enum zd_status mine)
{
    return comm ? comm_agree(comm, mine) : mine;
}

/* An adapter is small: rank 0 writes it. */
static enum zd_status write_adapter(
        const struct export *e, const struct export_request *request, int rank)
{
    if (request->quantize) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101",
                "`%s` holds an adapter: there is nothing to quantize",
                request->path);
        return zd_fail_help(
                "--merge: the model with the adapter in it, quantized");
    }
    if (rank > 0)
        return ZD_OK;
    return export_adapter(
            e->checkpoint, &e->config, &e->table, request,
            request->dtype ? *request->dtype : DTYPE_FP32);
}

/* By all ranks, each a part. */
static enum zd_status write_model(struct comm *comm, const struct export *e)
{
    int rank = comm ? comm_rank(comm) : 0, size = comm ? comm_size(comm) : 1;
    ZD_TRY(settle(comm, rank == 0 ? weights_export_begin(&e->job) : ZD_OK));
    ZD_TRY(settle(comm, weights_export_part(&e->job, &e->source, rank, size)));
    return settle(comm, rank == 0 ? weights_export_end(&e->job) : ZD_OK);
}

enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request)
{
    struct export e = {.checkpoint = NULL};
    enum zd_status status = settle(comm, export_open(&e, request));
    if (status == ZD_OK && !e.source.read) {
        int rank = comm ? comm_rank(comm) : 0;
        status = settle(comm, write_adapter(&e, request, rank));
    } else if (status == ZD_OK && request->quantize) {
        assert(!comm);
        status = weights_export_quantized(
                request->out_dir, &e.config, &e.table, &e.source,
                &e.job.options, request->quantize);
    } else if (status == ZD_OK) {
        status = write_model(comm, &e);
    }
    export_close(&e);
    return status;
}
