/* weights_hf.h - reads weights from the folder of a Hugging Face model. */
#pragma once

#include "base/file/safetensors.h"
#include "model/weights.h"

/* model.safetensors, or model.safetensors.index.json and its shards (names must
 * stay inside the folder). Open checks that every tensor of the table exists
 * once, with the right shape and a float type. Other tensors are refused by
 * name, except known buffers (rotary inv_freq, causal masks, a tied lm_head of
 * equal shape). GPT-2 names may have "transformer." or not. NaN or infinity is
 * an error at reading: ZD_ERR_DATA naming tensor and index. `config` and
 * `table` are borrowed and must outlive the source. Adapters' factors in the
 * table are ignored. If the files have fewer vocabulary rows than `config`, the
 * rest are the mean of theirs. storage_out (may be NULL): the type of most
 * elements; for a quantized model (quantized.h), which is read dequantized, the
 * type before quantization. */
enum zd_status weights_open_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out);

/* Does the folder have weights, or only a config.json? */
bool weights_hf_are_there(const char *dir);

/* Do the folder's files have a tensor of exactly this name? False without
 * files. */
bool weights_hf_has(const char *dir, const char *name);

/* Do names in the files have the family's optional prefix? Export keeps it as
 * read. True if unknown: save_pretrained writes it, and loading will report
 * problems. */
bool weights_hf_has_prefix(const char *dir, const struct model_config *config);

/* The weight files of a Hugging Face model: model.safetensors, or the shards of
 * model.safetensors.index.json, whose names must stay inside the folder. */
struct hf_files {
    struct st_file **files; /* owned, each open */
    int count;
};

/* ZD_ERR_DATA naming folder, index or file. */
enum zd_status hf_files_open(const char *dir, struct hf_files *out);
void hf_files_close(struct hf_files *files);
