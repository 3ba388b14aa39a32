/* gemma2.c - Gemma 2: norms before and after each branch, soft caps of scores
 * and logits, and a window in every second layer. */
#include "model/config_keys.h"
#include "model/families/gemma.h"

#include <math.h>

static const struct config_key keys[] = {
        GEMMA_KEYS(2304, 9216, 26, 8, 4, 256000, 8192),
        GEMMA2_KEYS(50, 30),
        {0},
};

enum zd_status gemma2_settle(
        const struct config_reader *r, struct model_config *c)
{
    if (c->attention_scale <= 0)
        return config_wrong(r, "query_pre_attn_scalar", "a number above 0");
    c->attention_scale = 1 / sqrt(c->attention_scale);
    c->embedding_scale = sqrt(c->hidden_size);
    return rotary_settle_heads(r, c);
}

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    ZD_TRY(gemma2_settle(r, c));
    return config_read_ropes(r, 10000, c);
}

const struct tensor_row gemma2_layer[] = {
        {"input_layernorm.weight", ROLE_NORM1, TENSOR_NORM, EXTENT_C},
        ROTARY_QKV_ROWS,
        ROTARY_HEAD_NORM_ROWS,
        ROTARY_O_ROWS,
        {"post_attention_layernorm.weight", ROLE_POST1, TENSOR_NORM, EXTENT_C},
        {"pre_feedforward_layernorm.weight", ROLE_NORM2, TENSOR_NORM, EXTENT_C},
        ROTARY_MLP_ROWS,
        {"post_feedforward_layernorm.weight", ROLE_POST2, TENSOR_NORM,
         EXTENT_C},
        {0},
};

const struct model_family model_gemma2 = {
        .name = "gemma2",
        .architecture = "Gemma2ForCausalLM",
        .keys = keys,
        .settle = settle,
        .window = WINDOW_PATTERN,
        .window_tokens = 4096,
        .window_pattern = 2,
        .layer_types = true,
        .layer = gemma2_layer,
        GEMMA_BASE,
};
