/* qwen3.c - Qwen 3: norms of the heads of q and k, its own head_dim. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        ROTARY_KEYS(151936, 22016, 32, 128, 32768, -1),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {"mlp_bias", CONFIG_FALSE},
        {"sliding_window"},
        {"use_sliding_window"},
        {"max_window_layers"},
        {0},
};

const struct model_family model_qwen3 = {
        .name = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .keys = keys,
        .window = WINDOW_LAST,
        .window_tokens = 4096,
        .layer_types = true,
        .qk_norm = true,
        ROTARY_FAMILY,
};
