/* config.h - the shape of a model, from Hugging Face's config.json (v4 and v5
 * keys) or from [model.config] of the job file. A key that we do not support
 * and that has a value other than its default is refused by name.
 *
 * Families: gpt2; llama (Llama 3.x, rope_type default and llama3), mistral
 * (without window), qwen2 (q, k, v bias), qwen3 (q/k norm, own head_dim). */
#ifndef ZD_MODEL_CONFIG_H
#define ZD_MODEL_CONFIG_H

#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"
#include "kernels/quant/quant.h"

#include <stdint.h>

enum model_family {
    MODEL_GPT2,
    MODEL_LLAMA,
    MODEL_MISTRAL,
    MODEL_QWEN2,
    MODEL_QWEN3
};

struct model_config {
    enum model_family family;
    int vocab_size;        /* V */
    int stored_rows;       /* of V in the files; 0: all (vocab_resize.h) */
    int hidden_size;       /* C */
    int intermediate_size; /* F */
    int layers;            /* L */
    int heads;             /* H */
    int kv_heads;          /* KV; = H for gpt2 */
    int head_dim;          /* D */
    int max_positions;     /* longest sequence */
    float norm_eps;
    bool tied; /* the head is the token embedding */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm; /* RMSNorm over each head of q and k (Qwen3) */
    double rope_theta;
    bool rope_llama3; /* the frequencies are scaled, see model/rope.c */
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int rope_original_positions;
    double initializer_range; /* standard deviation of random weights */
    enum dtype storage_dtype; /* of the files: what "auto" exports */
    bool is_quantized; /* stored in codes: model_config_read_stored; then .. */
    enum quant_format
            stored_format; /* .. as config.json has it: the files .. */
    bool stored_nested;    /* .. know better */
    bool has_dropout;      /* stated in the file; not applied */
    int bos_token_id;      /* -1: none */
    int eos_token_id;      /* the first of a list; -1: none */
    json_t *json;          /* the keys as given, for export; owned */
};

const char *model_family_name(enum model_family family); /* "llama" */

#endif
