/* olmo2.c - OLMo 2: norms after attention and MLP, none before them; q and k
 * are normed over all their heads. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-5},
        ROTARY_KEYS(50304, 11008, 0, 0, 2048, -1),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {0},
};

static const struct tensor_row layer[] = {
        ROTARY_QKV_ROWS,
        {"self_attn.q_norm.weight", ROLE_Q_NORM, TENSOR_NORM, EXTENT_Q},
        {"self_attn.k_norm.weight", ROLE_K_NORM, TENSOR_NORM, EXTENT_KV},
        ROTARY_O_ROWS,
        {"post_attention_layernorm.weight", ROLE_POST1, TENSOR_NORM, EXTENT_C},
        ROTARY_MLP_ROWS,
        {"post_feedforward_layernorm.weight", ROLE_POST2, TENSOR_NORM,
         EXTENT_C},
        {0},
};

const struct model_family model_olmo2 = {
        .name = "olmo2",
        .architecture = "Olmo2ForCausalLM",
        .keys = keys,
        .qk_norm = true,
        .qk_norm_whole = true,
        .norm_form = RMSNORM_ROUND_LAST,
        .settle = rotary_settle,
        .layer = layer,
        ROTARY_BASE,
};
