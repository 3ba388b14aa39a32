#include "kernels/fused.h"
#include "model/internal.h"

/* The three projections of attention's input. */
struct qkv {
    struct linear q, k, v;
};

static struct qkv qkv_of(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    const struct model_config *c = model->config;
    int C = c->hidden_size, D = c->head_dim;
    return (struct qkv){
            layer_linear(model, pass, layer, acts, ROLE_Q, C, c->heads * D),
            layer_linear(model, pass, layer, acts, ROLE_K, C, c->kv_heads * D),
            layer_linear(model, pass, layer, acts, ROLE_V, C, c->kv_heads * D),
    };
}

static bool joins(const struct model *model, enum param_join join)
{
    return model->shape.joined & join;
}

static struct linear joined_qkv(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    return layer_joined(
            model, pass, layer, acts, ROLE_Q, ROLE_V,
            model->config->hidden_size);
}

static struct linear joined_gate_up(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    return layer_joined(
            model, pass, layer, acts, ROLE_GATE, ROLE_UP,
            model->config->hidden_size);
}

static struct rope_angles angles_of(
        const struct model *model, const struct pass *pass)
{
    return (struct rope_angles){model->cosine, model->sine, pass->positions};
}

/* Qwen3: each head of q and k is normed before it turns, with one weight for
 * all heads. */
static enum zd_status norm_and_rotate(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    const struct model_config *c = model->config;
    const struct row_strides *s = &model->strides;
    const void **params = model->params + model->table->unit_first[layer];
    const struct rope_angles angles = angles_of(model, pass);
    const struct head_norm_forward_args q = {
            .out = acts->q,
            .rstd = acts->q_rstd,
            .x = acts->q_raw,
            .weight = params[model->role_offset[ROLE_Q_NORM]],
            .H = c->heads,
            .out_stride = s->q,
            .x_stride = s->q_raw,
    };
    const struct head_norm_forward_args k = {
            .out = acts->k,
            .rstd = acts->k_rstd,
            .x = acts->k_raw,
            .weight = params[model->role_offset[ROLE_K_NORM]],
            .H = c->kv_heads,
            .out_stride = s->k,
            .x_stride = s->k_raw,
    };
    return fused_head_norm_rope_forward(
            model->kernels, NULL, &q, &k, &angles, c->norm_eps, pass->N,
            c->head_dim);
}

static enum zd_status norm_and_rotate_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct model_config *c = model->config;
    const struct layer_grads *g = &pass->acts->grads;
    const struct row_strides *s = &model->strides;
    int unit = model->table->unit_first[layer];
    int q_norm = unit + model->role_offset[ROLE_Q_NORM];
    int k_norm = unit + model->role_offset[ROLE_K_NORM];
    const struct rope_angles angles = angles_of(model, pass);
    const struct head_norm_backward_args q = {
            .dx = g->q_raw,
            .dweight = model->grads[q_norm],
            .dout = g->q,
            .x = acts->q_raw,
            .weight = model->params[q_norm],
            .rstd = acts->q_rstd,
            .H = c->heads,
            .out_stride = s->q,
            .x_stride = s->q_raw,
    };
    const struct head_norm_backward_args k = {
            .dx = g->k_raw,
            .dweight = model->grads[k_norm],
            .dout = g->k,
            .x = acts->k_raw,
            .weight = model->params[k_norm],
            .rstd = acts->k_rstd,
            .H = c->kv_heads,
            .out_stride = s->k,
            .x_stride = s->k_raw,
    };
    return fused_head_norm_rope_backward(
            model->kernels, NULL, &q, &k, &angles, pass->N, c->head_dim,
            accumulate);
}

static enum zd_status rotate(
        const struct model *model, const struct pass *pass, void *q, void *k,
        bool backward)
{
    const struct model_config *c = model->config;
    const struct rope_angles angles = angles_of(model, pass);
    return fused_rope(
            model->kernels, NULL, q, k, c->heads, c->kv_heads, model->strides.q,
            model->strides.k, &angles, pass->N, c->head_dim, backward);
}

static enum zd_status project_qkv(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    int N = pass->N;
    struct qkv p = qkv_of(model, pass, layer, acts);
    if (joins(model, JOIN_QKV)) {
        struct linear all = joined_qkv(model, pass, layer, acts);
        return linear_forward(model, &all, acts->q_raw, acts->norm1, N);
    }
    ZD_TRY(linear_forward(model, &p.q, acts->q_raw, acts->norm1, N));
    ZD_TRY(linear_forward(model, &p.k, acts->k_raw, acts->norm1, N));
    return linear_forward(model, &p.v, acts->v, acts->norm1, N);
}

enum zd_status llama_heads_again(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    return norm_and_rotate(model, pass, layer, acts);
}

enum zd_status llama_qkv_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    ZD_TRY(project_qkv(model, pass, layer, acts));
    if (model->config->qk_norm)
        return norm_and_rotate(model, pass, layer, acts);
    return rotate(model, pass, acts->q, acts->k, false);
}

enum zd_status llama_qkv_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    const void *x = acts->norm1;
    void *dx = layer_needs_input_grad(model, pass, layer) ? g->hidden : NULL;
    int N = pass->N;
    ZD_TRY(model->config->qk_norm
                   ? norm_and_rotate_backward(
                             model, pass, layer, acts, accumulate)
                   : rotate(model, pass, g->q, g->k, true));
    if (joins(model, JOIN_QKV)) {
        struct linear all = joined_qkv(model, pass, layer, acts);
        return linear_backward(model, &all, dx, g->q_raw, x, N, accumulate);
    }
    struct qkv p = qkv_of(model, pass, layer, acts);
    ZD_TRY(linear_backward(model, &p.q, dx, g->q_raw, x, N, accumulate));
    ZD_TRY(linear_backward_add(
            model, &p.k, dx, g->sum, g->k_raw, x, N, accumulate));
    return linear_backward_add(model, &p.v, dx, g->sum, g->v, x, N, accumulate);
}

static enum zd_status project_gate_up(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    int N = pass->N;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    if (joins(model, JOIN_GATE_UP)) {
        struct linear both = joined_gate_up(model, pass, layer, acts);
        return linear_forward(model, &both, acts->gate, acts->norm2, N);
    }
    struct linear gate =
            layer_linear(model, pass, layer, acts, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, pass, layer, acts, ROLE_UP, C, F);
    ZD_TRY(linear_forward(model, &gate, acts->gate, acts->norm2, N));
    return linear_forward(model, &up, acts->up, acts->norm2, N);
}

enum zd_status llama_act_again(
        const struct model *model, const struct pass *pass,
        const struct layer_acts *acts)
{
    return model->kernels->swiglu_forward(
            NULL, acts->act, acts->gate, acts->up, pass->N,
            model->config->intermediate_size, model->strides.gate);
}

enum zd_status llama_mlp_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *out)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear down =
            layer_linear(model, pass, layer, acts, ROLE_DOWN, F, C);
    ZD_TRY(project_gate_up(model, pass, layer, acts));
    ZD_TRY(llama_act_again(model, pass, acts));
    if (!out)
        return linear_adapters_keep(model, &down, acts->act, pass->N);
    return linear_forward(model, &down, out, acts->act, pass->N);
}

/* The gradients of gate and up take their places: this is their last use. */
enum zd_status llama_mlp_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear down =
            layer_linear(model, pass, layer, acts, ROLE_DOWN, F, C);
    const void *x = acts->norm2;
    int N = pass->N;
    ZD_TRY(linear_backward(
            model, &down, g->act, pass->acts->dx, acts->act, N, accumulate));
    ZD_TRY(model->kernels->swiglu_backward(
            NULL, acts->gate, acts->up, g->act, acts->gate, acts->up, N, F,
            model->strides.gate));
    if (joins(model, JOIN_GATE_UP)) {
        struct linear both = joined_gate_up(model, pass, layer, acts);
        return linear_backward(
                model, &both, g->hidden, acts->gate, x, N, accumulate);
    }
    struct linear gate =
            layer_linear(model, pass, layer, acts, ROLE_GATE, C, F);
    struct linear up = layer_linear(model, pass, layer, acts, ROLE_UP, C, F);
    ZD_TRY(linear_backward(
            model, &gate, g->hidden, acts->gate, x, N, accumulate));
    return linear_backward_add(
            model, &up, g->hidden, g->sum, acts->up, x, N, accumulate);
}
