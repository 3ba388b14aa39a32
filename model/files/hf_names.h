/* hf_names.h - names of tensors in Hugging Face's files, and text models inside
 * multimodal ones. */
#pragma once

#include "model/config.h"
#include "model/params.h"

/* Names in files may have a prefix: GPT-2's, or that of a text model inside a
 * multimodal one, where `model.X` is `language_model.model.X` (files of
 * transformers 4 and 5) or `model.language_model.X` (modules of transformers 5,
 * and PEFT). Names in the table have no prefix. */
enum { HF_NAME_BYTES = PARAM_NAME_MAX + 16 };
void hf_name_canonical(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES]);
/* The name in a file. `prefixed`: for GPT-2 with its prefix (except the head);
 * for a text model as in transformers 4, else as in 5. */
void hf_name_in_files(
        const struct model_config *config, const char *name, bool prefixed,
        char out[HF_NAME_BYTES]);
/* The name of a module for PEFT, with GPT-2's prefix. */
void hf_name_of_module(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES]);
/* Computed tensors in old files: rotary frequencies, GPT-2's causal masks. */
bool hf_name_is_buffer(const char *name);

/* A text model inside the files of a multimodal one, such as
 * Mistral3ForConditionalGeneration: its configuration is `text_config`, and
 * vision tensors are copied unchanged. */

/* The multimodal models that we know. */
struct text_wrapper {
    const char *name, *architecture; /* of the whole model */
    const char *text_type;           /* default model_type of text_config */
};

extern const struct text_wrapper text_wrappers[]; /* {0} at the end */

/* Finds the wrapper by model_type, else by architectures; NULL: `json` is a
 * plain text model's. */
const struct text_wrapper *text_wrapper_of(const json_t *json);
/* The text model's configuration, with keys from outside of it: model_type,
 * tied embeddings, ids of tokens, the type of the weights, quantization. New
 * reference; NULL: no text_config. */
json_t *text_config_inner(
        const struct text_wrapper *wrapper, const json_t *json);
/* The object in `json` that has the text model's keys. */
json_t *text_config_of(json_t *json, const struct model_config *config);
/* Is this tensor of a file outside the text model? */
bool text_config_passes(const struct model_config *config, const char *name);
