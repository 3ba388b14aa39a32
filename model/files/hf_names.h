/* hf_names.h - the names that Hugging Face's files give to our tensors, and
 * where they have a text model. */
#pragma once

#include "model/config.h"
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

/* A text model inside the files of a multimodal one, such as
 * Mistral3ForConditionalGeneration: its configuration is under `text_config`,
 * and the tensors of vision beside its own pass through untouched. */

/* What holds text models. */
struct text_wrapper {
    const char *name, *architecture; /* of the whole */
    const char *text_type; /* model_type where text_config names none */
};

extern const struct text_wrapper text_wrappers[]; /* {0} at the end */

/* By model_type, else by architectures; NULL: `json` is a text model's own. */
const struct text_wrapper *text_wrapper_of(const json_t *json);
/* The configuration of the text model, with what stands outside of it: the
 * type, tied embeddings, ids of tokens, the type of the weights, quantization.
 * New reference; NULL: there is no text_config. */
json_t *text_config_inner(
        const struct text_wrapper *wrapper, const json_t *json);
/* Where the keys of the text model are in `json`, as it was read or written. */
json_t *text_config_of(json_t *json, const struct model_config *config);
/* Is this tensor of a file none of the text model's? */
bool text_config_passes(const struct model_config *config, const char *name);
