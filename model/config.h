/* config.h - the shape of a model. files/config.h reads it. */
#pragma once

#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"
#include "kernels/quant/quant.h"

#include <stdint.h>

struct model_family;
struct text_wrapper;

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LONGROPE,
    ROPE_LLAMA3,
    ROPE_TYPES
};
/* One way to rotate heads (model/rope.h has the formulas). */
struct rope_set {
    enum rope_type type;
    double theta;
    int dims;      /* d: the first channels of a head rotate, in (d + 1) / 2
                      pairs */
    int positions; /* M: max_position_embeddings */
    int original_positions;                   /* O; 0: not used by the type */
    double factor;                            /* f */
    double attention_factor;                  /* a: of cosine and sine */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;                            /* yarn: round to whole pairs */
    double *factors; /* longrope: short, then long, one per pair; owned */
    double q_beta;   /* q of position p times 1 + q_beta ln(1 + floor(p / O)) */
};
enum { ROPE_SETS = 2 };

/* What one layer's attention sees, and how its heads rotate. */
struct layer_attention {
    int window; /* tokens, with itself; 0: no limit */
    int rope;   /* index into model_config.ropes; -1: no rotation */
};

/* Tensor parallelism: one of `size` places (model/slice.h). */
struct tp {
    int size, place; /* size 0 or 1: the whole model */
};

struct model_config {
    const struct model_family *family;  /* family.h */
    const struct text_wrapper *wrapper; /* the multimodal model around it
                                           (files/hf_names.h); NULL: none */
    int vocab_size;                     /* V */
    int stored_rows;        /* rows in the files; 0: V (files/config.h) */
    int hidden_size;        /* C */
    int intermediate_size;  /* F */
    int layers;             /* L */
    int heads;              /* H */
    int kv_heads;           /* KV */
    int head_dim;           /* D */
    int max_positions;      /* longest sequence */
    int original_positions; /* beside rope_scaling; 0: absent */
    struct tp tp;           /* of a slice: heads, kv_heads, intermediate_size
                               and vocab_size are then its own. Its attention
                               reads these kv_heads: */
    int kv_used, first_kv;  /* kv_used 0: all */
    double norm_eps;
    bool tied; /* the head is the token embedding */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm; /* RMSNorm over each head of q and k */
    struct rope_set ropes[ROPE_SETS];
    int rope_count;        /* 0: positions are learned */
    bool rope_interleaved; /* channels 2j and 2j + 1 are a pair; else j and
                              j + pairs */
    struct layer_attention *layer_attention; /* (layers); owned */
    /* Factors of the embedding's rows, of what a branch adds to the residual
     * stream, of attention's scores and of logits; 0: 1, for scores
     * head_dim^-0.5 */
    double embedding_scale, residual_scale, attention_scale, logits_scale;
    double score_softcap, logit_softcap; /* 0: none */
    double initializer_range; /* standard deviation of random weights */
    enum dtype storage_dtype; /* type in the files: "auto" exports it */
    /* stored quantized (model_config_read); format according to config.json,
     * but the weight files decide */
    bool is_quantized;
    enum quant_format stored_format;
    bool stored_nested;
    bool has_dropout;  /* set in the file; not applied */
    char unknown[256]; /* keys of a file that transformers' class does not have,
                          for a warning */
    int bos_token_id;  /* -1: none */
    int eos_token_id;  /* the first of a list; -1: none */
    json_t *rope_scaling; /* the job's, which replaces the file's; NULL: none */
    json_t *json; /* the keys as given, for export; with a wrapper the whole;
                     owned */
};

/* The number of key-value heads that attention reads. */
static inline int kv_heads_used(const struct model_config *config)
{
    return config->kv_used ? config->kv_used : config->kv_heads;
}

static inline int tp_size(const struct model_config *config)
{
    return config->tp.size > 1 ? config->tp.size : 1;
}
