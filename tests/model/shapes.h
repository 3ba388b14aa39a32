/* shapes.h - configurations of small models, odd on purpose, and batches. */
#pragma once

#include "base/number/rng.h"
#include "model/model.h"

#define SHAPE_GPT2                                                             \
    "{\"model_type\":\"gpt2\",\"vocab_size\":29,\"n_embd\":12,\"n_layer\":5,"  \
    "\"n_head\":3,\"n_positions\":40,\"n_inner\":17,"                          \
    "\"initializer_range\":0.3}"
#define SHAPE_LLAMA                                                            \
    "{\"model_type\":\"llama\",\"vocab_size\":31,\"hidden_size\":12,"          \
    "\"intermediate_size\":19,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"head_dim\":4,"      \
    "\"attention_bias\":true,\"mlp_bias\":true,\"rope_theta\":50.0,"           \
    "\"tie_word_embeddings\":true,\"initializer_range\":0.3}"
#define SHAPE_QWEN3                                                            \
    "{\"model_type\":\"qwen3\",\"vocab_size\":23,\"hidden_size\":10,"          \
    "\"intermediate_size\":14,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"      \
    "\"initializer_range\":0.3}"
#define SHAPE_OLMO2                                                            \
    "{\"model_type\":\"olmo2\",\"vocab_size\":27,\"hidden_size\":20,"          \
    "\"intermediate_size\":13,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"                     \
    "\"initializer_range\":0.3}"
/* Norms on both sides, of 1 + w; caps that bend; a window in layers 1, 3, 5. */
#define SHAPE_GEMMA2                                                           \
    "{\"model_type\":\"gemma2\",\"vocab_size\":25,\"hidden_size\":10,"         \
    "\"intermediate_size\":13,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":6,"      \
    "\"query_pre_attn_scalar\":3,\"sliding_window\":3,"                        \
    "\"attn_logit_softcapping\":1.5,\"final_logit_softcapping\":2.5,"          \
    "\"initializer_range\":0.3}"
#define SHAPE_GRANITE                                                          \
    "{\"model_type\":\"granite\",\"vocab_size\":25,\"hidden_size\":12,"        \
    "\"intermediate_size\":13,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"                     \
    "\"embedding_multiplier\":3.3,\"residual_multiplier\":0.7,"                \
    "\"attention_multiplier\":0.3,\"logits_scaling\":1.7,"                     \
    "\"initializer_range\":0.3}"
#define SHAPE_PHI3                                                             \
    "{\"model_type\":\"phi3\",\"vocab_size\":29,\"hidden_size\":14,"           \
    "\"intermediate_size\":17,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"      \
    "\"partial_rotary_factor\":0.75,\"sliding_window\":5,"                     \
    "\"rope_theta\":50.0,\"initializer_range\":0.3}"
#define SHAPE_SMOLLM3                                                          \
    "{\"model_type\":\"smollm3\",\"vocab_size\":27,\"hidden_size\":12,"        \
    "\"intermediate_size\":19,\"num_hidden_layers\":5,"                        \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,"                     \
    "\"no_rope_layer_interval\":2,\"use_sliding_window\":true,"                \
    "\"sliding_window\":4,\"rope_theta\":50.0,\"initializer_range\":0.3}"

enum { BATCH_MAX = 256 };

struct tokens {
    int32_t tokens[BATCH_MAX], targets[BATCH_MAX], doc_start[BATCH_MAX];
    struct model_batch batch;
};

/* Random tokens; each sample has a second document, and some targets are
 * masked. */
static inline void tokens_fill(
        struct tokens *t, uint64_t seed, int B, int T, int vocab)
{
    for (int i = 0; i < B * T; i++) {
        int second = 1 + T / 3 + i / T;
        t->tokens[i] =
                (int32_t)(rng_u64(seed, 0, (uint64_t)i) % (uint64_t)vocab);
        t->targets[i] =
                (int32_t)(rng_u64(seed, 1, (uint64_t)i) % (uint64_t)vocab);
        t->doc_start[i] = i % T >= second ? second : 0;
        if (i % 5 == 2)
            t->targets[i] = -1;
    }
    t->batch = (struct model_batch){t->tokens, t->targets, t->doc_start, B, T};
}

/* The same rows without their last `cut` tokens; in `t` these lose their
 * targets, so that both have the same loss. */
static inline void tokens_narrow(
        struct tokens *narrow, struct tokens *t, int cut)
{
    int B = t->batch.B, T = t->batch.T, most = T - cut;
    for (int i = 0; i < B * T; i++) {
        int to = i / T * most + i % T;
        if (i % T >= most) {
            t->targets[i] = -1;
            continue;
        }
        narrow->tokens[to] = t->tokens[i];
        narrow->targets[to] = t->targets[i];
        narrow->doc_start[to] = t->doc_start[i];
    }
    narrow->batch = (struct model_batch){
            narrow->tokens, narrow->targets, narrow->doc_start, B, most};
}
