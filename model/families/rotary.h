/* rotary.h - what Llama and its descendants share: RMSNorm, rotary positions,
 * grouped heads, a gated MLP with SiLU. A family of these is its defaults. */
#ifndef ZD_MODEL_ROTARY_H
#define ZD_MODEL_ROTARY_H

#include "model/config_keys.h"
#include "model/families/families.h"
#include "model/params.h"

/* Keys of all of them, with the defaults of transformers' class. Its
 * eos_token_id is left out: data would be cut and ended at a token that no one
 * named, where "no end of text" is the truth. KV and HEAD_DIM of 0, like a key
 * that is null: as many as heads, and hidden_size over heads. */
#define ROTARY_KEYS(VOCAB, INTERMEDIATE, KV, HEAD_DIM, POSITIONS, BOS)           \
    {"vocab_size", CONFIG_INT, CONFIG_AT(vocab_size),                            \
     VOCAB,        VOCAB_MAX,  CONFIG_WRITTEN},                                  \
            {"hidden_size", CONFIG_INT, CONFIG_AT(hidden_size),                  \
             4096,          WIDTH_MAX,  CONFIG_WRITTEN},                         \
            {"intermediate_size", CONFIG_INT,    CONFIG_AT(intermediate_size),   \
             INTERMEDIATE,        4 * WIDTH_MAX, CONFIG_WRITTEN},                \
            {"num_hidden_layers", CONFIG_INT,    CONFIG_AT(layers), 32,          \
             LAYERS_MAX,          CONFIG_WRITTEN},                               \
            {"num_attention_heads", CONFIG_INT, CONFIG_AT(heads), 32, HEADS_MAX, \
             CONFIG_WRITTEN},                                                    \
            {"num_key_value_heads",                                              \
             CONFIG_INT,                                                         \
             CONFIG_AT(kv_heads),                                                \
             KV,                                                                 \
             HEADS_MAX,                                                          \
             CONFIG_WRITTEN | CONFIG_NULL_DERIVES},                              \
            {"head_dim", CONFIG_INT,   CONFIG_AT(head_dim),                      \
             HEAD_DIM,   HEAD_DIM_MAX, CONFIG_WRITTEN | CONFIG_NULL_DERIVES},    \
            {"max_position_embeddings",                                          \
             CONFIG_INT,                                                         \
             CONFIG_AT(max_positions),                                           \
             POSITIONS,                                                          \
             POSITIONS_MAX,                                                      \
             CONFIG_WRITTEN},                                                    \
            {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-6},            \
            {"attention_dropout", CONFIG_DROPOUT},                               \
            {"tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), false, 0,      \
             CONFIG_WRITTEN},                                                    \
            {"bos_token_id", CONFIG_TOKEN, CONFIG_AT(bos_token_id), BOS},        \
            {"eos_token_id", CONFIG_TOKEN, CONFIG_AT(eos_token_id), -1},         \
            {"rope_theta"}, {"rope_scaling"}, {"rope_parameters"},               \
            {"original_max_position_embeddings", CONFIG_INT,                     \
             CONFIG_AT(original_positions), 0, POSITIONS_MAX},                   \
            {"hidden_act", CONFIG_SILU}, {"partial_rotary_factor"},              \
            {"clip_qkv", CONFIG_NULL}, {"use_mrope", CONFIG_FALSE},              \
    {                                                                            \
        "layer_types"                                                            \
    }

/* Heads, biases, norms of heads; then how heads turn. */
enum zd_status rotary_settle(
        const struct config_reader *reader, struct model_config *config);
enum zd_status rotary_settle_heads(
        const struct config_reader *reader, struct model_config *config);

/* Rows of a layer without its norms. Weights that are joined follow each other,
 * and so do their biases. */
#define ROTARY_QKV_ROWS                                                        \
    {"self_attn.q_proj.weight", ROLE_Q, TENSOR_LINEAR, EXTENT_Q, EXTENT_C,     \
     .flags = TENSOR_BY_HEAD},                                                 \
            {"self_attn.k_proj.weight",                                        \
             ROLE_K,                                                           \
             TENSOR_LINEAR,                                                    \
             EXTENT_KV,                                                        \
             EXTENT_C,                                                         \
             .joins = JOIN_QKV,                                                \
             .flags = TENSOR_BY_HEAD},                                         \
            {"self_attn.v_proj.weight",                                        \
             ROLE_V,                                                           \
             TENSOR_LINEAR,                                                    \
             EXTENT_KV,                                                        \
             EXTENT_C,                                                         \
             .joins = JOIN_QKV},                                               \
            {"self_attn.q_proj.bias", ROLE_Q_BIAS, TENSOR_BIAS, EXTENT_Q,      \
             .when = CONFIG_AT(qkv_bias)},                                     \
            {"self_attn.k_proj.bias",                                          \
             ROLE_K_BIAS,                                                      \
             TENSOR_BIAS,                                                      \
             EXTENT_KV,                                                        \
             .when = CONFIG_AT(qkv_bias),                                      \
             .joins = JOIN_QKV},                                               \
    {                                                                          \
        "self_attn.v_proj.bias", ROLE_V_BIAS, TENSOR_BIAS, EXTENT_KV,          \
                .when = CONFIG_AT(qkv_bias), .joins = JOIN_QKV                 \
    }
#define ROTARY_O_ROWS                                                          \
    {"self_attn.o_proj.weight", ROLE_O, TENSOR_LINEAR, EXTENT_C, EXTENT_Q},    \
    {                                                                          \
        "self_attn.o_proj.bias", ROLE_O_BIAS, TENSOR_BIAS, EXTENT_C,           \
                .when = CONFIG_AT(out_bias)                                    \
    }
#define ROTARY_MLP_ROWS                                                        \
    {"mlp.gate_proj.weight", ROLE_GATE, TENSOR_LINEAR, EXTENT_F, EXTENT_C},    \
            {"mlp.up_proj.weight", ROLE_UP, TENSOR_LINEAR, EXTENT_F, EXTENT_C, \
             .joins = JOIN_GATE_UP},                                           \
            {"mlp.gate_proj.bias", ROLE_GATE_BIAS, TENSOR_BIAS, EXTENT_F,      \
             .when = CONFIG_AT(mlp_bias)},                                     \
            {"mlp.up_proj.bias",                                               \
             ROLE_UP_BIAS,                                                     \
             TENSOR_BIAS,                                                      \
             EXTENT_F,                                                         \
             .when = CONFIG_AT(mlp_bias),                                      \
             .joins = JOIN_GATE_UP},                                           \
            {"mlp.down_proj.weight", ROLE_DOWN, TENSOR_LINEAR, EXTENT_C,       \
             EXTENT_F},                                                        \
    {                                                                          \
        "mlp.down_proj.bias", ROLE_DOWN_BIAS, TENSOR_BIAS, EXTENT_C,           \
                .when = CONFIG_AT(mlp_bias)                                    \
    }

extern const struct tensor_row rotary_embeddings[], rotary_layer[],
        rotary_last[];

enum zd_status rotary_embed(
        const struct model *model, const struct pass *pass, void *out);
enum zd_status rotary_embed_backward(
        const struct model *model, const struct pass *pass, bool tokens_add,
        bool accumulate);
layer_part_fn rotary_qkv_forward, rotary_qkv_backward, rotary_mlp_backward,
        rotary_recompute_act;
enum zd_status rotary_mlp_forward(const struct layer_run *run, void *out);
/* Norms of heads, where the model has them, and rotation. */
layer_part_fn rotary_norm_heads;

/* All of the above, for a family's designated initializers; ROTARY_BASE: with
 * its own settle and tensors; ROTARY_COMMON: with its own names too. */
#define ROTARY_FAMILY                                                          \
    .settle = rotary_settle, .layer = rotary_layer, ROTARY_BASE
#define ROTARY_BASE .peft_targets = {"q_proj", "v_proj"}, ROTARY_COMMON
#define ROTARY_COMMON                                                          \
    .head_dim_keys = "`hidden_size` / `num_attention_heads`",                  \
    .embeddings = rotary_embeddings, .last = rotary_last,                      \
    .layer_prefix = "model.layers.", .rotary = true, .gated_mlp = true,        \
    .embed = rotary_embed, .embed_backward = rotary_embed_backward,            \
    .qkv_forward = rotary_qkv_forward, .qkv_backward = rotary_qkv_backward,    \
    .mlp_forward = rotary_mlp_forward, .mlp_backward = rotary_mlp_backward,    \
    .recompute_act = rotary_recompute_act,                                     \
    .recompute_heads = rotary_norm_heads

#endif
