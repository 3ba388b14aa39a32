/* config.h - a model's shape from Hugging Face's config.json (keys of v4 and
 * v5) or from [model.config] of the job file. A key that we do not support is
 * refused by name if its value is not the default. */
#ifndef ZD_MODEL_FILES_CONFIG_H
#define ZD_MODEL_FILES_CONFIG_H

#include "model/config.h"

/* `on_error` is ZD_ERR_DATA for a file, ZD_ERR_CONFIG for [model.config];
 * `name` says where ("models/x/config.json", "job.toml [model.config]"). Every
 * problem is one error; the first is reported. `json` is borrowed. */
enum zd_status model_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct model_config *config_out);
/* DIR/config.json. */
enum zd_status model_config_read(
        const char *dir, struct model_config *config_out);
/* The same of a model that may be stored quantized, for whoever reads it as
 * what it decodes to: `quantization_config` is bitsandbytes' or DeepSeek's fp8
 * in tiles of 128 x 128, and is left out of config->json. The others refuse any
 * (E0304). */
enum zd_status model_config_read_stored(
        const char *dir, struct model_config *config_out);
/* Let heads turn as `scaling` says, as rope_scaling in transformers (model.
 * rope_scaling of a job), and max_positions grow to original positions times
 * factor, also in config->json. ZD_ERR_CONFIG: E0302, E0304, E0305. */
enum zd_status model_config_scale_rope(
        const json_t *scaling, struct model_config *config);
/* Writes that into a copy of the model's config.json; nothing without it. */
void model_config_write_rope(json_t *json, const struct model_config *config);
/* A warning that names keys which transformers' class does not have, if there
 * are any. */
void model_config_warn(const struct model_config *config);
const char *model_config_stored_name(
        const struct model_config *config); /* "nf4" */
void model_config_fini(struct model_config *config);
/* Short text for the banner: "llama, 16 layers, 2048 wide, 32/8 heads". */
void model_config_describe(
        const struct model_config *config, char *out, size_t out_bytes);

#endif
