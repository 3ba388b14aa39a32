/* glm4.c - GLM-4-0414: norms before and after each branch; RoPE with
 * interleaved pairs on half of the channels; gate and up are one tensor. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        CONFIG_SIZE("num_hidden_layers", layers, 40, LAYERS_MAX),
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1.5625e-07},
        ROTARY_KEYS(151552, 13696, 2, 128, 131072, -1),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias), true},
        {0},
};

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    ZD_TRY(rotary_settle(r, c));
    c->out_bias = false;
    c->rope_interleaved = true;
    return ZD_OK;
}

static const struct tensor_row layer[] = {
        {"input_layernorm.weight", ROLE_NORM1, TENSOR_NORM, EXTENT_C},
        ROTARY_QKV_ROWS,
        ROTARY_O_ROWS,
        {"post_self_attn_layernorm.weight", ROLE_POST1, TENSOR_NORM, EXTENT_C},
        {"post_attention_layernorm.weight", ROLE_NORM2, TENSOR_NORM, EXTENT_C},
        ROTARY_FUSED_MLP_ROWS,
        {"post_mlp_layernorm.weight", ROLE_POST2, TENSOR_NORM, EXTENT_C},
        {0},
};

const struct model_family model_glm4 = {
        .name = "glm4",
        .architecture = "Glm4ForCausalLM",
        .keys = keys,
        .settle = settle,
        .partial_rotary = 0.5,
        .layer = layer,
        .fused = JOIN_GATE_UP,
        ROTARY_BASE,
};
