/* hf_names.h - the names that Hugging Face's files give to our tensors. */
#ifndef ZD_MODEL_HF_NAMES_H
#define ZD_MODEL_HF_NAMES_H

#include "model/params.h"

/* Names in files may have a prefix: GPT-2's, or what a text model has inside a
 * multimodal one, where `model.X` is `language_model.model.X` (transformers 4,
 * and what 5 writes) or `model.language_model.X` (its modules, and PEFT's).
 * The table has names without. */
enum { HF_NAME_BYTES = PARAM_NAME_MAX + 16 };
void hf_name_canonical(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES]);
/* The name in a file; `prefixed`: of GPT-2 with its prefix, which its head has
 * not, of a text model in transformers 4's way, else in that of 5. */
void hf_name_in_files(
        const struct model_config *config, const char *name, bool prefixed,
        char out[HF_NAME_BYTES]);
/* As PEFT has it: with GPT-2's prefix, and as modules are called. */
void hf_name_of_module(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES]);
/* Tensors that old files hold and that are computed, not trained: rotary
 * frequencies, GPT-2's causal masks. */
bool hf_name_is_buffer(const char *name);

#endif
