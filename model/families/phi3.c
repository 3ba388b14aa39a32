/* phi3.c - Phi 3, 3.5 and 4: q, k and v are one tensor, gate and up another;
 * partial rotation of heads, LongRoPE, a window. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        CONFIG_SIZE("hidden_size", hidden_size, 3072, WIDTH_MAX),
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-5},
        {"original_max_position_embeddings", CONFIG_INT,
         CONFIG_AT(original_positions), 4096, POSITIONS_MAX},
        {"resid_pdrop", CONFIG_DROPOUT},
        {"embd_pdrop", CONFIG_DROPOUT},
        {"sliding_window"},
        /* in released files; no class reads them */
        {"attention_bias", CONFIG_FALSE},
        {"mlp_bias", CONFIG_FALSE},
        {"lm_head_bias", CONFIG_FALSE},
        {"full_attn_mod", CONFIG_ONE},
        {"interpolate_factor", CONFIG_ONE},
        ROTARY_KEYS(32064, 8192, 0, 0, 4096, 1),
        {0},
};

static const struct tensor_row layer[] = {
        {"input_layernorm.weight", ROLE_NORM1, TENSOR_NORM, EXTENT_C},
        LINEAR("self_attn.qkv_proj", Q, QKV, C, .flags = TENSOR_BY_HEAD),
        LINEAR("self_attn.o_proj", O, C, Q),
        {"post_attention_layernorm.weight", ROLE_NORM2, TENSOR_NORM, EXTENT_C},
        ROTARY_FUSED_MLP_ROWS,
        {0},
};

const struct model_family model_phi3 = {
        .name = "phi3",
        .architecture = "Phi3ForCausalLM",
        .keys = keys,
        .settle = rotary_settle,
        .layer = layer,
        ROTARY_COMMON,
        .peft_targets = {"qkv_proj"},
        .fused = JOIN_QKV | JOIN_GATE_UP,
        .window = WINDOW_ALL,
        .partial_rotary = 1,
        .longrope = true,
};
