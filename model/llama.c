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

static bool joins(const struct model *model, enum param_join join)
{
    return model->shape.joined & join;
}

static struct linear joined_qkv(const struct model *model, int layer)
{
    return layer_joined(
            model, layer, ROLE_Q, ROLE_V, model->config->hidden_size);
}

static struct linear joined_gate_up(const struct model *model, int layer)
{
    return layer_joined(
            model, layer, ROLE_GATE, ROLE_UP, model->config->hidden_size);
}

/* Qwen3: each head of q and k is normed, with one weight for all heads. */
static enum zd_status head_norms_forward(
        const struct model *model, int layer, const struct layer_acts *acts,
        int N)
{
    const struct model_config *c = model->config;
    const struct kernels *k = model->kernels;
    const struct row_strides *s = &model->strides;
    const void **params = model->params + model->table->unit_first[layer];
    if (!c->qk_norm)
        return ZD_OK;
    ZD_TRY(k->head_norm_forward(
            NULL, acts->q, acts->q_rstd, acts->q_raw,
            params[model->role_offset[ROLE_Q_NORM]], c->norm_eps, N, c->heads,
            c->head_dim, s->q, s->q_raw));
    return k->head_norm_forward(
            NULL, acts->k, acts->k_rstd, acts->k_raw,
            params[model->role_offset[ROLE_K_NORM]], c->norm_eps, N,
            c->kv_heads, c->head_dim, s->k, s->k_raw);
}

static enum zd_status head_norms_backward(
        const struct model *model, int layer, const struct layer_acts *acts,
        const struct layer_grads *g, int N, bool accumulate)
{
    const struct model_config *c = model->config;
    const struct kernels *k = model->kernels;
    const struct row_strides *s = &model->strides;
    int unit = model->table->unit_first[layer];
    int q = unit + model->role_offset[ROLE_Q_NORM];
    int kn = unit + model->role_offset[ROLE_K_NORM];
    if (!c->qk_norm)
        return ZD_OK;
    ZD_TRY(k->head_norm_backward(
            NULL, g->q_raw, model->grads[q], g->q, acts->q_raw,
            model->params[q], acts->q_rstd, N, c->heads, c->head_dim, s->q,
            s->q_raw, accumulate));
    return k->head_norm_backward(
            NULL, g->k_raw, model->grads[kn], g->k, acts->k_raw,
            model->params[kn], acts->k_rstd, N, c->kv_heads, c->head_dim, s->k,
            s->k_raw, accumulate);
}

/* Heads of k that lie behind those of q turn with them. */
static enum zd_status rotate(
        const struct model *model, const struct pass *pass, void *q, void *k,
        bool backward)
{
    const struct model_config *c = model->config;
    const struct row_strides *s = &model->strides;
    rope_fn *rope = model->kernels->rope;
    bool one = joins(model, JOIN_QKV);
    int heads = one ? c->heads + c->kv_heads : c->heads;
    ZD_TRY(
            rope(NULL, q, model->cosine, model->sine, pass->positions, pass->N,
                 heads, c->head_dim, s->q, backward));
    if (one)
        return ZD_OK;
    return rope(
            NULL, k, model->cosine, model->sine, pass->positions, pass->N,
            c->kv_heads, c->head_dim, s->k, backward);
}

static enum zd_status project_qkv(
        const struct model *model, int layer, const struct layer_acts *acts,
        int N)
{
    struct qkv p = qkv_of(model, layer);
    if (joins(model, JOIN_QKV)) {
        struct linear all = joined_qkv(model, layer);
        return linear_forward(model, &all, acts->q_raw, acts->norm1, N);
    }
    ZD_TRY(linear_forward(model, &p.q, acts->q_raw, acts->norm1, N));
    ZD_TRY(linear_forward(model, &p.k, acts->k_raw, acts->norm1, N));
    return linear_forward(model, &p.v, acts->v, acts->norm1, N);
}

enum zd_status llama_qkv_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    ZD_TRY(project_qkv(model, layer, acts, pass->N));
    ZD_TRY(head_norms_forward(model, layer, acts, pass->N));
    return rotate(model, pass, acts->q, acts->k, false);
}

enum zd_status llama_qkv_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    const void *x = acts->norm1;
    int N = pass->N;
    ZD_TRY(rotate(model, pass, g->q, g->k, true));
    ZD_TRY(head_norms_backward(model, layer, acts, g, N, accumulate));
    if (joins(model, JOIN_QKV)) {
        struct linear all = joined_qkv(model, layer);
        return linear_backward(
                model, &all, g->hidden, g->q_raw, x, N, accumulate);
    }
    struct qkv p = qkv_of(model, layer);
    ZD_TRY(linear_backward(model, &p.q, g->hidden, g->q_raw, x, N, accumulate));
    ZD_TRY(linear_backward_add(
            model, &p.k, g->hidden, g->sum, g->k_raw, x, N, accumulate));
    return linear_backward_add(
            model, &p.v, g->hidden, g->sum, g->v, x, N, accumulate);
}

static enum zd_status project_gate_up(
        const struct model *model, int layer, const struct layer_acts *acts,
        int N)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    if (joins(model, JOIN_GATE_UP)) {
        struct linear both = joined_gate_up(model, layer);
        return linear_forward(model, &both, acts->gate, acts->norm2, N);
    }
    struct linear gate = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, layer, ROLE_UP, C, F);
    ZD_TRY(linear_forward(model, &gate, acts->gate, acts->norm2, N));
    return linear_forward(model, &up, acts->up, acts->norm2, N);
}

enum zd_status llama_mlp_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *out)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear down = layer_linear(model, layer, ROLE_DOWN, F, C);
    ZD_TRY(project_gate_up(model, layer, acts, pass->N));
    ZD_TRY(model->kernels->swiglu_forward(
            NULL, acts->act, acts->gate, acts->up, pass->N, F,
            model->strides.gate));
    if (!out)
        return ZD_OK;
    return linear_forward(model, &down, out, acts->act, pass->N);
}

/* The gradients of gate and up take their places: this is their last use. */
enum zd_status llama_mlp_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear down = layer_linear(model, layer, ROLE_DOWN, F, C);
    const void *x = acts->norm2;
    int N = pass->N;
    ZD_TRY(linear_backward(
            model, &down, g->act, pass->acts->dx, acts->act, N, accumulate));
    ZD_TRY(model->kernels->swiglu_backward(
            NULL, acts->gate, acts->up, g->act, acts->gate, acts->up, N, F,
            model->strides.gate));
    if (joins(model, JOIN_GATE_UP)) {
        struct linear both = joined_gate_up(model, layer);
        return linear_backward(
                model, &both, g->hidden, acts->gate, x, N, accumulate);
    }
    struct linear gate = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, layer, ROLE_UP, C, F);
    ZD_TRY(linear_backward(
            model, &gate, g->hidden, acts->gate, x, N, accumulate));
    return linear_backward_add(
            model, &up, g->hidden, g->sum, acts->up, x, N, accumulate);
}
