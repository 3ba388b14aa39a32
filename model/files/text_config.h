/* text_config.h - a text model inside the files of a multimodal one, such as
 * Mistral3ForConditionalGeneration: its configuration is under `text_config`,
 * and the tensors of vision beside its own pass through untouched. */
#ifndef ZD_MODEL_TEXT_CONFIG_H
#define ZD_MODEL_TEXT_CONFIG_H

#include "model/config.h"

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

#endif
