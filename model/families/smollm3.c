/* smollm3.c - SmolLM 3: Llama with some layers without RoPE. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        CONFIG_SIZE("hidden_size", hidden_size, 2048, WIDTH_MAX),
        CONFIG_SIZE("num_hidden_layers", layers, 36, LAYERS_MAX),
        CONFIG_SIZE("num_attention_heads", heads, 16, HEADS_MAX),
        CONFIG_TIED(true),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias)},
        {"no_rope_layers"},
        {"no_rope_layer_interval"},
        {"sliding_window"},
        {"use_sliding_window"},
        {"max_window_layers"}, /* in the released file; no class reads it */
        {"pretraining_tp"},
        ROTARY_KEYS(128256, 11008, 4, 0, 32768, 128000),
        {0},
};

const struct model_family model_smollm3 = {
        .name = "smollm3",
        .architecture = "SmolLM3ForCausalLM",
        .keys = keys,
        .window = WINDOW_NOPE,
        .layer_types = true,
        .rope_theta = 2000000,
        ROTARY_FAMILY,
};
