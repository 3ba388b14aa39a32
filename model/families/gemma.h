/* gemma.h - shared by the Gemma families: norms times 1 + weight, embeddings
 * times sqrt(hidden_size), a gated GELU; from Gemma 2 on four norms per layer.
 */
#pragma once

#include "model/families/rotary.h"

#define GEMMA_KEYS(HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV, VOCAB, POSITIONS)  \
    CONFIG_SIZE("hidden_size", hidden_size, HIDDEN, WIDTH_MAX),                \
            CONFIG_SIZE("num_hidden_layers", layers, LAYERS, LAYERS_MAX),      \
            CONFIG_SIZE("num_attention_heads", heads, HEADS, HEADS_MAX),       \
            CONFIG_TIED(true), {"hidden_act"},                                 \
            {"hidden_activation", CONFIG_GELU_TANH},                           \
            {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},              \
            {"use_bidirectional_attention", CONFIG_FALSE},                     \
            {"cache_implementation"},                                          \
            ROTARY_KEYS(VOCAB, INTERMEDIATE, KV, 256, POSITIONS, 2)
/* null: no cap; absent: CAP_SCORES and CAP_LOGITS. */
#define GEMMA2_CAP(NAME, FIELD, ABSENT)                                        \
    {                                                                          \
        NAME, CONFIG_REAL, CONFIG_AT(FIELD), ABSENT, 0, CONFIG_NULL_DERIVES    \
    }
#define GEMMA2_KEYS(CAP_SCORES, CAP_LOGITS)                                    \
    {"query_pre_attn_scalar", CONFIG_REAL, CONFIG_AT(attention_scale), 256},   \
            GEMMA2_CAP("attn_logit_softcapping", score_softcap, CAP_SCORES),   \
            GEMMA2_CAP("final_logit_softcapping", logit_softcap, CAP_LOGITS),  \
    {                                                                          \
        "sliding_window"                                                       \
    }

/* Settles everything except RoPE. */
enum zd_status gemma2_settle(
        const struct config_reader *reader, struct model_config *config);
/* For Gemma 2, and Gemma 3 with norms of heads. */
extern const struct tensor_row gemma2_layer[];

#define GEMMA_BASE                                                             \
    .norm_form = RMSNORM_ONE_PLUS, .gate = GATE_GELU,                          \
    .embedding_scale_rounded = true, ROTARY_BASE
