/* config.h - a model's shape from Hugging Face's config.json (keys of v4 and
 * v5) or from [model.config] of the job file. A key that we do not support is
 * refused by name if its value is not the default. */
#pragma once

#include "model/config.h"

/* `on_error` is ZD_ERR_DATA for a file, ZD_ERR_CONFIG for [model.config];
 * `name` is the source in messages ("models/x/config.json", "job.toml
 * [model.config]"). Reports the first error. `json` is borrowed. */
enum zd_status model_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct model_config *config_out);
/* Reads DIR/config.json. may_be_quantized: accepts a `quantization_config` of
 * bitsandbytes, or of DeepSeek's fp8 in tiles of 128 x 128, for callers that
 * read the dequantized model; config->json does not have it. Else any is
 * refused (E0304). */
enum zd_status model_config_read(
        const char *dir, bool may_be_quantized,
        struct model_config *config_out);
/* Applies `scaling`, as transformers' rope_scaling (model.rope_scaling of a
 * job), and extends max_positions to original positions times factor.
 * config->json does not change: a checkpoint keeps it, and its reader scales
 * again. `name` and `on_error` as above: E0302, E0304, E0305. */
enum zd_status model_config_scale_rope(
        const json_t *scaling, const char *name, enum zd_status on_error,
        struct model_config *config);
/* The RoPE table (of layers without a window); NULL: none. Borrowed. */
json_t *model_config_rope(const struct model_config *config);
/* Writes the scaling that model_config_scale_rope set into `json`, a copy of
 * config->json; without one does nothing. */
void model_config_write_rope(json_t *json, const struct model_config *config);
/* Extends the vocabulary to `rows`, also in config->json, for a tokenizer with
 * more tokens than the files have rows. In the embedding and an untied head,
 * new rows are the mean of the rows in the files. */
void model_config_resize_vocab(struct model_config *config, int rows);
/* Warns about keys that transformers' class does not have, if any. */
void model_config_warn(const struct model_config *config);
const char *model_config_stored_name(
        const struct model_config *config); /* "nf4" */
void model_config_fini(struct model_config *config);
/* Short text for the banner: "llama, 16 layers, 2048 wide, 32/8 heads". */
void model_config_describe(
        const struct model_config *config, char *out, size_t out_bytes);
