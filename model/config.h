/* config.h - the shape of a model. files/config.h reads it. */
#ifndef ZD_MODEL_CONFIG_H
#define ZD_MODEL_CONFIG_H

#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"
#include "kernels/quant/quant.h"

#include <stdint.h>

struct model_family;

struct model_config {
    const struct model_family *family; /* family.h */
    int vocab_size;                    /* V */
    int stored_rows;       /* of V in the files; 0: all (vocab_resize.h) */
    int hidden_size;       /* C */
    int intermediate_size; /* F */
    int layers;            /* L */
    int heads;             /* H */
    int kv_heads;          /* KV */
    int head_dim;          /* D */
    int max_positions;     /* longest sequence */
    double norm_eps;
    bool tied; /* the head is the token embedding */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm; /* RMSNorm over each head of q and k */
    double rope_theta;
    bool rope_llama3; /* the frequencies are scaled, see model/rope.c */
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int rope_original_positions;
    double initializer_range; /* standard deviation of random weights */
    enum dtype storage_dtype; /* of the files: what "auto" exports */
    /* stored quantized (model_config_read_stored); the format as config.json
     * has it: the files know better */
    bool is_quantized;
    enum quant_format stored_format;
    bool stored_nested;
    bool has_dropout; /* stated in the file; not applied */
    int bos_token_id; /* -1: none */
    int eos_token_id; /* the first of a list; -1: none */
    json_t *json;     /* the keys as given, for export; owned */
};

#endif
