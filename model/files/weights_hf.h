/* weights_hf.h - the weights in the folder of a Hugging Face model. */
#pragma once

#include "base/file/safetensors.h"
#include "model/weights.h"

/* model.safetensors, or model.safetensors.index.json and its shards (names must
 * stay inside the folder). Checks at open: every tensor of the table is there
 * once with the right shape and a float type; tensors that are not ours are
 * refused by name but for known buffers (rotary inv_freq, causal masks, a tied
 * lm_head equal in shape). GPT-2 names with or without "transformer.". A value
 * that is NaN or infinite is found when it is read: ZD_ERR_DATA naming tensor
 * and index. `config` and `table` are borrowed and must outlive the source.
 * Factors of adapters in the table are not looked for, and not read.
 * The files may have fewer rows of the vocabulary than `config`: those beyond
 * are the mean of those that are there. storage_out (may be NULL): the type
 * most elements are stored in; of a quantized model (quantized.h), which is
 * read dequantized, the type before it was quantized. */
enum zd_status weights_open_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out);

/* Are there weights in the folder, or only a config.json? */
bool weights_hf_are_there(const char *dir);

/* Do the folder's files hold a tensor of this name, as they write it? False
 * where there are none. */
bool weights_hf_has(const char *dir, const char *name);

/* Files name the tensors of some families with or without a prefix; export
 * keeps what was read. True where it cannot be known: save_pretrained writes
 * it, and loading will say what is wrong. */
bool weights_hf_has_prefix(const char *dir, const struct model_config *config);

/* The weight files in the folder of a Hugging Face model: model.safetensors, or
 * model.safetensors.index.json and its shards, whose names must stay inside the
 * folder. */
struct hf_files {
    struct st_file **files; /* owned, each open */
    int count;
};

/* ZD_ERR_DATA naming folder, index or file. */
enum zd_status hf_files_open(const char *dir, struct hf_files *out);
void hf_files_close(struct hf_files *files);
