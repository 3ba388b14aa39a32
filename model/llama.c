#include "model/internal.h"

/* The three projections of attention's input. */
struct qkv {
    struct linear q, k, v;
};

static struct qkv qkv_of(const struct model *model, int layer)
{
    const struct model_config *c = model->config;
    int C = c->hidden_size, D = c->head_dim;
    return (struct qkv){
            layer_linear(model, layer, ROLE_Q, C, c->heads * D),
            layer_linear(model, layer, ROLE_K, C, c->kv_heads * D),
            layer_linear(model, layer, ROLE_V, C, c->kv_heads * D),
    };
}

/* Qwen3: each head of q and k is normed, with one weight for all heads. */
static enum zd_status head_norm_forward(
        const struct model *model, int layer, enum role role, void *out,
        float *rstd, const void *x, int rows)
{
    const struct model_config *c = model->config;
    int id = model->table->unit_first[layer] + model->role_offset[role];
    return model->kernels->rmsnorm_forward(
            NULL, out, rstd, x, model->params[id], c->norm_eps, rows,
            c->head_dim);
}

static enum zd_status head_norm_backward(
        const struct model *model, int layer, enum role role, void *d,
        const float *rstd, const void *x, int rows, bool accumulate)
{
    int id = model->table->unit_first[layer] + model->role_offset[role];
    return model->kernels->rmsnorm_backward(
            NULL, d, model->grads[id], d, NULL, x, model->params[id], rstd,
            rows, model->config->head_dim, accumulate);
}

static enum zd_status rotate(
        const struct model *model, const struct pass *pass, void *q, void *k,
        bool backward)
{
    const struct model_config *c = model->config;
    const struct kernels *kernels = model->kernels;
    int N = pass->N, H = c->heads, KV = c->kv_heads, D = c->head_dim;
    ZD_TRY(kernels->rope(
            NULL, q, model->cosine, model->sine, pass->positions, N, H, D,
            (int64_t)H * D, backward));
    return kernels->rope(
            NULL, k, model->cosine, model->sine, pass->positions, N, KV, D,
            (int64_t)KV * D, backward);
}

enum zd_status llama_qkv_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    const struct model_config *c = model->config;
    struct qkv p = qkv_of(model, layer);
    int N = pass->N;
    ZD_TRY(linear_forward(model, &p.q, acts->q_raw, acts->norm1, N));
    ZD_TRY(linear_forward(model, &p.k, acts->k_raw, acts->norm1, N));
    ZD_TRY(linear_forward(model, &p.v, acts->v, acts->norm1, N));
    if (c->qk_norm) {
        ZD_TRY(head_norm_forward(
                model, layer, ROLE_Q_NORM, acts->q, acts->q_rstd, acts->q_raw,
                N * c->heads));
        ZD_TRY(head_norm_forward(
                model, layer, ROLE_K_NORM, acts->k, acts->k_rstd, acts->k_raw,
                N * c->kv_heads));
    }
    return rotate(model, pass, acts->q, acts->k, false);
}

enum zd_status llama_qkv_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct model_config *c = model->config;
    const struct layer_grads *g = &pass->acts->grads;
    struct qkv p = qkv_of(model, layer);
    int N = pass->N;
    ZD_TRY(rotate(model, pass, g->q, g->k, true));
    if (c->qk_norm) {
        ZD_TRY(head_norm_backward(
                model, layer, ROLE_Q_NORM, g->q, acts->q_rstd, acts->q_raw,
                N * c->heads, accumulate));
        ZD_TRY(head_norm_backward(
                model, layer, ROLE_K_NORM, g->k, acts->k_rstd, acts->k_raw,
                N * c->kv_heads, accumulate));
    }
    ZD_TRY(linear_backward(
            model, &p.q, g->hidden, g->q, acts->norm1, N, accumulate));
    ZD_TRY(linear_backward_add(
            model, &p.k, g->hidden, g->sum, g->k, acts->norm1, N, accumulate));
    return linear_backward_add(
            model, &p.v, g->hidden, g->sum, g->v, acts->norm1, N, accumulate);
}

enum zd_status llama_mlp_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *out)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear gate = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, layer, ROLE_UP, C, F);
    struct linear down = layer_linear(model, layer, ROLE_DOWN, F, C);
    ZD_TRY(linear_forward(model, &gate, acts->gate, acts->norm2, pass->N));
    ZD_TRY(linear_forward(model, &up, acts->up, acts->norm2, pass->N));
    ZD_TRY(model->kernels->swiglu_forward(
            NULL, acts->act, acts->gate, acts->up, pass->N, F, F));
    if (!out)
        return ZD_OK;
    return linear_forward(model, &down, out, acts->act, pass->N);
}

enum zd_status llama_mlp_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear gate = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, layer, ROLE_UP, C, F);
    struct linear down = layer_linear(model, layer, ROLE_DOWN, F, C);
    int N = pass->N;
    ZD_TRY(linear_backward(
            model, &down, g->gate, pass->acts->dx, acts->act, N, accumulate));
    ZD_TRY(model->kernels->swiglu_backward(
            NULL, g->gate, g->up, g->gate, acts->gate, acts->up, N, F, F));
    ZD_TRY(linear_backward(
            model, &gate, g->hidden, g->gate, acts->norm2, N, accumulate));
    return linear_backward_add(
            model, &up, g->hidden, g->sum, g->up, acts->norm2, N, accumulate);
}
