/* rotary.h - shared by Llama and its descendants: RMSNorm, RoPE, grouped heads,
 * a gated MLP with SiLU. Such a family only defines its differences. */
#pragma once

#include "model/config_keys.h"
#include "model/families/families.h"
#include "model/params.h"

/* Keys of all of them, with the defaults of transformers' class, except
 * eos_token_id: with a default, data would be ended by a token that the model
 * does not name. KV or HEAD_DIM 0, like null: as many as heads, and hidden_size
 * / heads. */
#define ROTARY_KEYS(VOCAB, INTERMEDIATE, KV, HEAD_DIM, POSITIONS, BOS)         \
    CONFIG_SIZE("vocab_size", vocab_size, VOCAB, VOCAB_MAX),                   \
            CONFIG_SIZE("hidden_size", hidden_size, 4096, WIDTH_MAX),          \
            CONFIG_SIZE(                                                       \
                    "intermediate_size", intermediate_size, INTERMEDIATE,      \
                    4 * WIDTH_MAX),                                            \
            CONFIG_SIZE("num_hidden_layers", layers, 32, LAYERS_MAX),          \
            CONFIG_SIZE("num_attention_heads", heads, 32, HEADS_MAX),          \
            CONFIG_SIZE_OR_NULL(                                               \
                    "num_key_value_heads", kv_heads, KV, HEADS_MAX),           \
            CONFIG_SIZE_OR_NULL("head_dim", head_dim, HEAD_DIM, HEAD_DIM_MAX), \
            CONFIG_SIZE(                                                       \
                    "max_position_embeddings", max_positions, POSITIONS,       \
                    POSITIONS_MAX),                                            \
            {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-6},          \
            {"attention_dropout", CONFIG_DROPOUT}, CONFIG_TIED(false),         \
            {"bos_token_id", CONFIG_TOKEN, CONFIG_AT(bos_token_id), BOS},      \
            {"eos_token_id", CONFIG_TOKEN, CONFIG_AT(eos_token_id), -1},       \
            {"rope_theta"}, {"rope_scaling"}, {"rope_parameters"},             \
            {"original_max_position_embeddings", CONFIG_INT,                   \
             CONFIG_AT(original_positions), 0, POSITIONS_MAX},                 \
            {"hidden_act", CONFIG_SILU}, {"partial_rotary_factor"},            \
            {"clip_qkv", CONFIG_NULL}, {"use_mrope", CONFIG_FALSE},            \
    {                                                                          \
        "layer_types"                                                          \
    }

/* Settles heads, biases and norms of heads; then RoPE. */
enum zd_status rotary_settle(
        const struct config_reader *reader, struct model_config *config);
enum zd_status rotary_settle_heads(
        const struct config_reader *reader, struct model_config *config);

/* Rows of a layer without its norms. Joined weights are adjacent, and so are
 * their biases. */
#define LINEAR(NAME, ROLE, ROWS, COLUMNS, ...)                                 \
    {                                                                          \
        NAME ".weight", ROLE_##ROLE, TENSOR_LINEAR, EXTENT_##ROWS,             \
                EXTENT_##COLUMNS, __VA_ARGS__                                  \
    }
#define BIAS(NAME, ROLE, ROWS, WHEN, ...)                                      \
    {                                                                          \
        NAME ".bias", ROLE_##ROLE##_BIAS, TENSOR_BIAS, EXTENT_##ROWS,          \
                .when = CONFIG_AT(WHEN), __VA_ARGS__                           \
    }
#define NORM(NAME, ROLE, ...)                                                  \
    {                                                                          \
        NAME ".weight", ROLE_##ROLE, TENSOR_NORM, __VA_ARGS__                  \
    }
#define ROTARY_QKV_ROWS                                                        \
    LINEAR("self_attn.q_proj", Q, Q, C, .flags = TENSOR_BY_HEAD),              \
            LINEAR("self_attn.k_proj", K, KV, C, .joins = JOIN_QKV,            \
                   .flags = TENSOR_BY_HEAD),                                   \
            LINEAR("self_attn.v_proj", V, KV, C, .joins = JOIN_QKV),           \
            BIAS("self_attn.q_proj", Q, Q, qkv_bias),                          \
            BIAS("self_attn.k_proj", K, KV, qkv_bias, .joins = JOIN_QKV),      \
            BIAS("self_attn.v_proj", V, KV, qkv_bias, .joins = JOIN_QKV)
#define ROTARY_HEAD_NORM_ROWS                                                  \
    NORM("self_attn.q_norm", Q_NORM, EXTENT_D, .when = CONFIG_AT(qk_norm)),    \
            NORM("self_attn.k_norm", K_NORM, EXTENT_D,                         \
                 .when = CONFIG_AT(qk_norm))
#define ROTARY_O_ROWS                                                          \
    LINEAR("self_attn.o_proj", O, C, Q),                                       \
            BIAS("self_attn.o_proj", O, C, out_bias)
#define ROTARY_MLP_ROWS                                                        \
    LINEAR("mlp.gate_proj", GATE, F, C),                                       \
            LINEAR("mlp.up_proj", UP, F, C, .joins = JOIN_GATE_UP),            \
            BIAS("mlp.gate_proj", GATE, F, mlp_bias),                          \
            BIAS("mlp.up_proj", UP, F, mlp_bias, .joins = JOIN_GATE_UP),       \
            LINEAR("mlp.down_proj", DOWN, C, F),                               \
            BIAS("mlp.down_proj", DOWN, C, mlp_bias)
/* gate and up as one tensor */
#define ROTARY_FUSED_MLP_ROWS                                                  \
    LINEAR("mlp.gate_up_proj", GATE, 2F, C), LINEAR("mlp.down_proj", DOWN, C, F)

extern const struct tensor_row rotary_embeddings[], rotary_layer[],
        rotary_last[];

/* All of the above, for a family's designated initializers. ROTARY_BASE: for a
 * family with its own settle and tensors; ROTARY_COMMON: also with its own
 * names. */
#define ROTARY_FAMILY                                                          \
    .settle = rotary_settle, .layer = rotary_layer, ROTARY_BASE
#define ROTARY_BASE .peft_targets = {"q_proj", "v_proj"}, ROTARY_COMMON
#define ROTARY_COMMON                                                          \
    .head_dim_keys = "`hidden_size` / `num_attention_heads`",                  \
    .embeddings = rotary_embeddings, .last = rotary_last,                      \
    .layer_prefix = "model.layers.", .rotary = true, .gated_mlp = true
