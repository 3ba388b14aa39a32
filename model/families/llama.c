/* llama.c - Llama 3.x, with rope_type default or llama3. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        ROTARY_KEYS(32000, 11008, 0, 0, 2048, 1),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias)},
        {"pretraining_tp"},
        {"sliding_window", CONFIG_NULL},
        {0},
};

const struct model_family model_llama = {
        .name = "llama",
        .architecture = "LlamaForCausalLM",
        .keys = keys,
        ROTARY_FAMILY,
};
