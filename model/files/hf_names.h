/* hf_names.h - the names that Hugging Face's files give to our tensors. */
#ifndef ZD_MODEL_HF_NAMES_H
#define ZD_MODEL_HF_NAMES_H

#include "model/params.h"

/* Without the prefix that a family's names may have in files; the table has
 * them without. Points into `name`. */
const char *hf_name_canonical(
        const struct model_config *config, const char *name);
/* The name of a tensor, with the prefix that the family's files may have; the
 * head's has none. */
enum { HF_NAME_BYTES = PARAM_NAME_MAX + 16 };
void hf_name_in_files(
        const struct model_config *config, const struct param *param,
        char out[HF_NAME_BYTES]);
/* Tensors that old files hold and that are computed, not trained: rotary
 * frequencies, GPT-2's causal masks. */
bool hf_name_is_buffer(const char *name);

#endif
