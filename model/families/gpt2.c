/* gpt2.c - GPT-2: layer norms, learned positions, a fused projection of q, k
 * and v, GELU; weights of layers are stored (in, out), as Conv1D has them. */
#include "model/config_keys.h"
#include "model/families/families.h"
#include "model/internal.h"

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

/* --- arithmetic ----------------------------------------------------------- */

static enum zd_status embed(
        const struct model *model, const struct pass *pass, void *out)
{
    ZD_TRY(embedding_rows(model, pass, ROLE_TOKENS, pass->tokens, out, false));
    return embedding_rows(
            model, pass, ROLE_POSITIONS, pass->own_positions, out, true);
}

static enum zd_status embed_backward(
        const struct model *model, const struct pass *pass, bool tokens_add,
        bool accumulate)
{
    ZD_TRY(embedding_scatter(
            model, ROLE_TOKENS, pass->tokens, pass->token_order, pass,
            tokens_add));
    return embedding_scatter(
            model, ROLE_POSITIONS, pass->own_positions, pass->position_order,
            pass, accumulate);
}

static enum zd_status qkv_forward(const struct layer_run *run)
{
    struct linear qkv = layer_linear(run, ROLE_Q, ROLE_Q);
    return linear_forward(
            &qkv, run->acts->qkv.q_raw, run->acts->attention.norm);
}

static enum zd_status qkv_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    struct linear qkv = layer_linear(run, ROLE_Q, ROLE_Q);
    return linear_backward(
            &qkv, layer_needs_input_grad(run) ? g->hidden : NULL, g->qkv.q_raw,
            run->acts->attention.norm);
}

/* gate = x fc, act = gelu(gate): in one pass where no adapter comes between,
 * and no codes are multiplied. */
static enum zd_status fc_gelu(
        const struct linear *fc, const struct layer_acts *acts)
{
    const struct kernels *k = fc->model->kernels;
    const void *weight;
    if (!fc->is_fp8 && !fc->adapter_count && !linear_has_few_rows(fc)) {
        ZD_TRY(linear_weight(fc, &weight));
        struct matmul m =
                product(fc->N, fc->out, fc->in,
                        (struct matmul_operand){acts->mlp.norm, k->dtype},
                        (struct matmul_operand){weight, k->dtype, !fc->conv1d},
                        (struct matmul_result){acts->act, k->dtype});
        m.bias = fc->bias;
        m.epilogue = MATMUL_GELU;
        m.aux = acts->gate;
        return k->matmul(NULL, &m);
    }
    ZD_TRY(linear_forward(fc, acts->gate, acts->mlp.norm));
    return k->gelu_forward(
            NULL, acts->act, acts->gate, (size_t)fc->N * (size_t)fc->out);
}

/* dgate = (dy proj) gelu'(gate), and the gradients of proj. */
static enum zd_status proj_dgelu(
        const struct linear *proj, void *dgate, const void *dy,
        const struct layer_acts *acts)
{
    const struct kernels *k = proj->model->kernels;
    size_t count = (size_t)proj->N * (size_t)proj->in;
    const void *weight;
    if (proj->is_fp8 || proj->adapter_count) {
        ZD_TRY(linear_backward(proj, dgate, dy, acts->act));
        return k->gelu_backward(NULL, dgate, dgate, acts->gate, count);
    }
    ZD_TRY(linear_backward_params(proj, dy, acts->act));
    ZD_TRY(linear_weight(proj, &weight));
    struct matmul m = product(
            proj->N, proj->in, proj->out, (struct matmul_operand){dy, k->dtype},
            (struct matmul_operand){weight, k->dtype, proj->conv1d},
            (struct matmul_result){dgate, k->dtype});
    m.epilogue = MATMUL_DGELU;
    m.aux = acts->gate;
    return k->matmul(NULL, &m);
}

static enum zd_status mlp_forward(const struct layer_run *run, void *out)
{
    struct linear fc = layer_linear(run, ROLE_GATE, ROLE_GATE);
    struct linear proj = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(fc_gelu(&fc, run->acts));
    return linear_forward(&proj, out, run->acts->act);
}

static enum zd_status mlp_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    struct linear fc = layer_linear(run, ROLE_GATE, ROLE_GATE);
    struct linear proj = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(proj_dgelu(&proj, g->act, g->mlp_out, run->acts));
    return linear_backward(&fc, g->hidden, g->act, run->acts->mlp.norm);
}

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
        .embed = embed,
        .embed_backward = embed_backward,
        .qkv_forward = qkv_forward,
        .qkv_backward = qkv_backward,
        .mlp_forward = mlp_forward,
        .mlp_backward = mlp_backward,
};
