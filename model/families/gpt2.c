/* gpt2.c - GPT-2: layer norms, learned positions, a fused projection of q, k
 * and v, GELU; weights of layers are stored (in, out), as in Conv1D. */
#include "model/config_keys.h"
#include "model/families/families.h"
#include "model/params.h"

/* --- config.json ---------------------------------------------------------- */

static const struct config_key keys[] = {
        CONFIG_SIZE("vocab_size", vocab_size, 50257, VOCAB_MAX),
        CONFIG_SIZE("n_embd", hidden_size, 768, WIDTH_MAX),
        CONFIG_SIZE("n_layer", layers, 12, LAYERS_MAX),
        CONFIG_SIZE("n_head", heads, 12, HEADS_MAX),
        CONFIG_SIZE("n_positions", max_positions, 1024, POSITIONS_MAX),
        CONFIG_SIZE("n_inner", intermediate_size, 0, 4 * WIDTH_MAX),
        {"layer_norm_epsilon", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-5},
        CONFIG_TIED(true),
        {"bos_token_id", CONFIG_TOKEN, CONFIG_AT(bos_token_id), 50256},
        {"eos_token_id", CONFIG_TOKEN, CONFIG_AT(eos_token_id), -1},
        {"resid_pdrop", CONFIG_DROPOUT, 0, 0.1},
        {"embd_pdrop", CONFIG_DROPOUT, 0, 0.1},
        {"attn_pdrop", CONFIG_DROPOUT, 0, 0.1},
        {"activation_function", CONFIG_GELU_TANH},
        {"scale_attn_weights", CONFIG_ONE},
        {"scale_attn_by_inverse_layer_idx", CONFIG_FALSE},
        {"reorder_and_upcast_attn", CONFIG_FALSE},
        {"n_ctx"},
        {"summary_type"},
        {"summary_use_proj"},
        {"summary_activation"},
        {"summary_proj_to_labels"},
        {"summary_first_dropout"},
        {0},
};

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    if (!c->intermediate_size)
        c->intermediate_size = 4 * c->hidden_size;
    c->kv_heads = c->heads;
    c->qkv_bias = c->out_bias = c->mlp_bias = true;
    if (c->hidden_size % c->heads != 0)
        return config_bad(
                r, "`n_embd` %d is not a multiple of `n_head` %d",
                c->hidden_size, c->heads);
    c->head_dim = c->hidden_size / c->heads;
    return ZD_OK;
}

/* --- tensors -------------------------------------------------------------- */

static const struct tensor_row table_rows[] = {
        {"wte.weight", ROLE_TOKENS, TENSOR_EMBEDDING, EXTENT_V, EXTENT_C},
        {"wpe.weight", ROLE_POSITIONS, TENSOR_EMBEDDING, EXTENT_POSITIONS,
         EXTENT_C},
        {0},
};

static const struct tensor_row layer_rows[] = {
        {"ln_1.weight", ROLE_NORM1, TENSOR_NORM, EXTENT_C},
        {"ln_1.bias", ROLE_NORM1_BIAS, TENSOR_BIAS, EXTENT_C},
        {"attn.c_attn.weight", ROLE_Q, TENSOR_LINEAR, EXTENT_QKV, EXTENT_C,
         .flags = TENSOR_BY_HEAD},
        {"attn.c_attn.bias", ROLE_Q_BIAS, TENSOR_BIAS, EXTENT_QKV},
        {"attn.c_proj.weight", ROLE_O, TENSOR_LINEAR, EXTENT_C, EXTENT_Q,
         .flags = TENSOR_RESIDUAL},
        {"attn.c_proj.bias", ROLE_O_BIAS, TENSOR_BIAS, EXTENT_C},
        {"ln_2.weight", ROLE_NORM2, TENSOR_NORM, EXTENT_C},
        {"ln_2.bias", ROLE_NORM2_BIAS, TENSOR_BIAS, EXTENT_C},
        {"mlp.c_fc.weight", ROLE_GATE, TENSOR_LINEAR, EXTENT_F, EXTENT_C},
        {"mlp.c_fc.bias", ROLE_GATE_BIAS, TENSOR_BIAS, EXTENT_F},
        {"mlp.c_proj.weight", ROLE_DOWN, TENSOR_LINEAR, EXTENT_C, EXTENT_F,
         .flags = TENSOR_RESIDUAL},
        {"mlp.c_proj.bias", ROLE_DOWN_BIAS, TENSOR_BIAS, EXTENT_C},
        {0},
};

static const struct tensor_row last_rows[] = {
        {"ln_f.weight", ROLE_FINAL_NORM, TENSOR_NORM, EXTENT_C},
        {"ln_f.bias", ROLE_FINAL_NORM_BIAS, TENSOR_BIAS, EXTENT_C},
        {0},
};

const struct model_family model_gpt2 = {
        .name = "gpt2",
        .architecture = "GPT2LMHeadModel",
        .keys = keys,
        .settle = settle,
        .head_dim_keys = "`n_embd` / `n_head`",
        .embeddings = table_rows,
        .layer = layer_rows,
        .last = last_rows,
        .layer_prefix = "h.",
        .file_prefix = "transformer.",
        .conv1d = true,
        .peft_targets = {"c_attn"},
        .layer_norm = true,
        .fused = JOIN_QKV,
};
