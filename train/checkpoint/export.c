#include "train/checkpoint/export.h"

#include <string.h>

static enum dtype dtype_of_name(const char *name)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    for (size_t i = 0; name && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(dtype_name(types[i]), name) == 0)
            return types[i];
    return DTYPE_FP32; /* loses nothing */
}

static enum zd_status export_with(
        const struct checkpoint *checkpoint, const char *path,
        const char *out_dir, const enum dtype *dtype, uint64_t max_shard_bytes,
        const struct model_config *config, const struct param_table *table)
{
    struct weight_source source;
    const json_t *manifest = checkpoint_manifest(checkpoint);
    const char *name =
            json_string_value(json_object_get(manifest, "export_dtype"));
    struct hf_export_options options = {
            .dtype = dtype ? *dtype : dtype_of_name(name),
            .max_shard_bytes = max_shard_bytes,
            .copy_from = path,
            .gpt2_prefix =
                    json_is_true(json_object_get(manifest, "gpt2_prefix")),
    };
    ZD_TRY(checkpoint_match_model(checkpoint, table));
    ZD_TRY(checkpoint_source(checkpoint, table, &source));
    enum zd_status status =
            weights_export_hf(out_dir, config, table, &source, &options);
    weights_close(&source);
    return status;
}

enum zd_status export_checkpoint(
        const struct checkpoint *checkpoint, const char *path,
        const char *out_dir, const enum dtype *dtype, uint64_t max_shard_bytes)
{
    struct model_config config;
    struct param_table table;
    ZD_TRY(model_config_read(path, &config));
    enum zd_status status = param_table_build(&config, NULL, 0, &table);
    if (status == ZD_OK) {
        status = export_with(
                checkpoint, path, out_dir, dtype, max_shard_bytes, &config,
                &table);
        param_table_fini(&table);
    }
    model_config_fini(&config);
    return status;
}
