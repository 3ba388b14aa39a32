/* hf_names.h - the names that Hugging Face's files give to our tensors. */
#ifndef ZD_MODEL_HF_NAMES_H
#define ZD_MODEL_HF_NAMES_H

#include "model/config.h"

#define HF_GPT2_PREFIX "transformer."

/* GPT-2's names come with and without a prefix; the table has them without.
 * Points into `name`. */
const char *hf_name_canonical(
        const struct model_config *config, const char *name);
/* Tensors that old files hold and that are computed, not trained: rotary
 * frequencies, GPT-2's causal masks. */
bool hf_name_is_buffer(const char *name);

#endif
