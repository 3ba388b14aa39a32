/* gemma.h - what the families of Gemma share: norms times 1 + weight,
 * embeddings times sqrt(hidden_size), a gated GELU; with Gemma 2 four norms in
 * a layer. */
#ifndef ZD_MODEL_GEMMA_H
#define ZD_MODEL_GEMMA_H

#include "model/families/rotary.h"

#define GEMMA_KEYS(HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV, VOCAB, POSITIONS)  \
    {"hidden_size", CONFIG_INT, CONFIG_AT(hidden_size),                        \
     HIDDEN,        WIDTH_MAX,  CONFIG_WRITTEN},                               \
            {"num_hidden_layers", CONFIG_INT,    CONFIG_AT(layers), LAYERS,    \
             LAYERS_MAX,          CONFIG_WRITTEN},                             \
            {"num_attention_heads",                                            \
             CONFIG_INT,                                                       \
             CONFIG_AT(heads),                                                 \
             HEADS,                                                            \
             HEADS_MAX,                                                        \
             CONFIG_WRITTEN},                                                  \
            {"tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), true, 0,     \
             CONFIG_WRITTEN},                                                  \
            {"hidden_act"}, {"hidden_activation", CONFIG_GELU_TANH},           \
            {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},              \
            {"use_bidirectional_attention", CONFIG_FALSE},                     \
            {"cache_implementation"},                                          \
            ROTARY_KEYS(VOCAB, INTERMEDIATE, KV, 256, POSITIONS, 2)
/* Null is no cap; CAP_SCORES and CAP_LOGITS where the key is absent. */
#define GEMMA2_KEYS(CAP_SCORES, CAP_LOGITS)                                    \
    {"query_pre_attn_scalar", CONFIG_REAL, CONFIG_AT(attention_scale), 256},   \
            {"attn_logit_softcapping",                                         \
             CONFIG_REAL,                                                      \
             CONFIG_AT(score_softcap),                                         \
             CAP_SCORES,                                                       \
             0,                                                                \
             CONFIG_NULL_DERIVES},                                             \
            {"final_logit_softcapping",                                        \
             CONFIG_REAL,                                                      \
             CONFIG_AT(logit_softcap),                                         \
             CAP_LOGITS,                                                       \
             0,                                                                \
             CONFIG_NULL_DERIVES},                                             \
    {                                                                          \
        "sliding_window"                                                       \
    }

/* All but how heads turn. */
enum zd_status gemma2_settle(
        const struct config_reader *reader, struct model_config *config);
/* Of Gemma 2, and of Gemma 3 with norms of heads. */
extern const struct tensor_row gemma2_layer[];

#define GEMMA_BASE                                                             \
    .norm_form = RMSNORM_ONE_PLUS, .gate = GATE_GELU,                          \
    .embedding_scale_rounded = true, ROTARY_BASE

#endif
