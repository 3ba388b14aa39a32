/* qwen2.c - Qwen 2 and 2.5: biases of q, k and v. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        ROTARY_KEYS(151936, 22016, 32, 0, 32768, -1),
        {"mlp_bias", CONFIG_FALSE},
        {"sliding_window"},
        {"use_sliding_window"},
        {"max_window_layers"},
        {0},
};

const struct model_family model_qwen2 = {
        .name = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        .keys = keys,
        .window = WINDOW_LAST,
        .window_tokens = 4096,
        .layer_types = true,
        .qkv_bias = true,
        ROTARY_FAMILY,
};
