/* smollm3.c - SmolLM 3: Llama with layers whose heads do not rotate. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        {"hidden_size", CONFIG_INT, CONFIG_AT(hidden_size), 2048, WIDTH_MAX,
         CONFIG_WRITTEN},
        {"num_hidden_layers", CONFIG_INT, CONFIG_AT(layers), 36, LAYERS_MAX,
         CONFIG_WRITTEN},
        {"num_attention_heads", CONFIG_INT, CONFIG_AT(heads), 16, HEADS_MAX,
         CONFIG_WRITTEN},
        {"tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), true, 0,
         CONFIG_WRITTEN},
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias)},
        {"no_rope_layers"},
        {"no_rope_layer_interval"},
        {"sliding_window"},
        {"use_sliding_window"},
        {"max_window_layers"}, /* of the released file; no class reads it */
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
