/* mistral.c - Mistral, with an optional window. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        ROTARY_KEYS(32000, 14336, 8, 0, 131072, 1),
        {"attention_bias", CONFIG_FALSE},
        {"mlp_bias", CONFIG_FALSE},
        {"sliding_window"},
        {0},
};

const struct model_family model_mistral = {
        .name = "mistral",
        .architecture = "MistralForCausalLM",
        .keys = keys,
        .window = WINDOW_ALL,
        .window_tokens = 4096,
        .layer_types = true,
        ROTARY_FAMILY,
};
