#include "model/families/rotary.h"

/* --- config.json ---------------------------------------------------------- */

enum zd_status rotary_settle_heads(
        const struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        return config_bad(
                r,
                "`num_attention_heads` %d is not a multiple of "
                "`num_key_value_heads` %d%s",
                c->heads, c->kv_heads,
                config_get(r, "num_key_value_heads")
                        ? ""
                        : ", the default, as the key is not there");
    if (!c->head_dim && c->hidden_size % c->heads != 0)
        return config_bad(
                r,
                "`hidden_size` %d is not a multiple of `num_attention_heads` "
                "%d and there is no `head_dim`",
                c->hidden_size, c->heads);
    if (!c->head_dim)
        c->head_dim = c->hidden_size / c->heads;
    c->out_bias = c->qkv_bias;
    c->qkv_bias |= c->family->qkv_bias;
    c->qk_norm = c->family->qk_norm;
    return ZD_OK;
}

enum zd_status rotary_settle(
        const struct config_reader *r, struct model_config *c)
{
    ZD_TRY(rotary_settle_heads(r, c));
    double theta = c->family->rope_theta;
    return config_read_ropes(r, theta ? theta : 10000, c);
}

/* --- tensors -------------------------------------------------------------- */

const struct tensor_row rotary_embeddings[] = {
        {"model.embed_tokens.weight", ROLE_TOKENS, TENSOR_EMBEDDING, EXTENT_V,
         EXTENT_C},
        {0},
};

const struct tensor_row rotary_layer[] = {
        {"input_layernorm.weight", ROLE_NORM1, TENSOR_NORM, EXTENT_C},
        ROTARY_QKV_ROWS,
        ROTARY_HEAD_NORM_ROWS,
        ROTARY_O_ROWS,
        {"post_attention_layernorm.weight", ROLE_NORM2, TENSOR_NORM, EXTENT_C},
        ROTARY_MLP_ROWS,
        {0},
};

const struct tensor_row rotary_last[] = {
        {"model.norm.weight", ROLE_FINAL_NORM, TENSOR_NORM, EXTENT_C},
        {0},
};

/* --- arithmetic ----------------------------------------------------------- */
