/* config.h - a model's shape from Hugging Face's config.json (keys of v4 and
 * v5) or from [model.config] of the job file. A key that we do not support is
 * refused by name if its value is not the default. */
#pragma once

#include "model/config.h"

/* `on_error` is ZD_ERR_DATA for a file, ZD_ERR_CONFIG for [model.config];
 * `name` says where ("models/x/config.json", "job.toml [model.config]"). Every
 * problem is one error; the first is reported. `json` is borrowed. */
enum zd_status model_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct model_config *config_out);
/* DIR/config.json. may_be_quantized: for whoever reads the model as what it
 * decodes to: `quantization_config` is bitsandbytes' or DeepSeek's fp8 in tiles
 * of 128 x 128, and is left out of config->json. Else any is refused (E0304).
 */
enum zd_status model_config_read(
        const char *dir, bool may_be_quantized,
        struct model_config *config_out);
/* Let heads turn as `scaling` says, as rope_scaling in transformers (model.
 * rope_scaling of a job), and max_positions grow to original positions times
 * factor. config->json stays as it was: a checkpoint keeps it, and its reader
 * scales it again. `name` and `on_error` as above: E0302, E0304, E0305. */
enum zd_status model_config_scale_rope(
        const json_t *scaling, const char *name, enum zd_status on_error,
        struct model_config *config);
/* The table that says how heads turn (of layers that do not slide); NULL: none.
 * Borrowed. */
json_t *model_config_rope(const struct model_config *config);
/* Writes what model_config_scale_rope has set into a copy of config->json;
 * nothing without it. */
void model_config_write_rope(json_t *json, const struct model_config *config);
/* `rows` of the vocabulary from here on, also in config->json: tokens that a
 * tokenizer has beyond the rows of the files. Rows that the files do not have
 * are the mean of those that they have, of the embedding and of a head that is
 * not tied to it. */
void model_config_resize_vocab(struct model_config *config, int rows);
/* A warning that names keys which transformers' class does not have, if there
 * are any. */
void model_config_warn(const struct model_config *config);
const char *model_config_stored_name(
        const struct model_config *config); /* "nf4" */
void model_config_fini(struct model_config *config);
/* Short text for the banner: "llama, 16 layers, 2048 wide, 32/8 heads". */
void model_config_describe(
        const struct model_config *config, char *out, size_t out_bytes);
