#include "model/families/rotary.h"
#include "kernels/fused.h"
#include "model/config_rope.h"
#include "model/internal.h"

/* --- config.json ---------------------------------------------------------- */

enum zd_status rotary_settle_heads(
        const struct config_reader *r, struct model_config *c)
{
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        return config_fail(
                r, "E0302",
                "`num_attention_heads` %d is not a multiple of "
                "`num_key_value_heads` %d",
                c->heads, c->kv_heads);
    if (!c->head_dim && c->hidden_size % c->heads != 0)
        return config_fail(
                r, "E0302",
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
        {"self_attn.q_norm.weight", ROLE_Q_NORM, TENSOR_NORM, EXTENT_D,
         .when = CONFIG_AT(qk_norm)},
        {"self_attn.k_norm.weight", ROLE_K_NORM, TENSOR_NORM, EXTENT_D,
         .when = CONFIG_AT(qk_norm)},
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

/* transformers multiplies by Gemma's as a tensor of the weight's type. */
static double embedding_scale(const struct model *model)
{
    float scale = (float)model->config->embedding_scale;
    if (model->config->family->embedding_scale_rounded)
        dtype_round(&scale, model->kernels->dtype, 1);
    return scale;
}

enum zd_status rotary_embed(
        const struct model *model, const struct pass *pass, void *out)
{
    double scale = embedding_scale(model);
    ZD_TRY(embedding_rows(
            model, ROLE_TOKENS, pass->tokens, pass->N, out, false));
    return scale ? hidden_scale(model, out, out, pass->N, scale) : ZD_OK;
}

enum zd_status rotary_embed_backward(
        const struct model *model, const struct pass *pass, bool tokens_add,
        bool accumulate)
{
    double scale = embedding_scale(model);
    void *dx = pass->acts->dx;
    (void)accumulate;
    if (scale)
        ZD_TRY(hidden_scale(model, dx, dx, pass->N, scale));
    return embedding_scatter(
            model, ROLE_TOKENS, pass->tokens, pass->token_order, pass,
            tokens_add);
}

static bool has_joined(const struct layer_run *run, unsigned join)
{
    const struct model *model = run->model;
    return (model->shape.joined | model->config->family->fused) & join;
}

/* The projections `first` to `last`, which lie in one tensor or one after the
 * other, as one. */
static struct projections joined(
        const struct layer_run *run, unsigned join, enum role first,
        enum role last, void *y)
{
    bool is_one = run->model->config->family->fused & join;
    return (struct projections){
            {layer_linear(run, first, is_one ? first : last)}, {y}, 1};
}

static struct projections qkv_of(
        const struct layer_run *run, void *q, void *k, void *v)
{
    if (has_joined(run, JOIN_QKV))
        return joined(run, JOIN_QKV, ROLE_Q, ROLE_V, q);
    return (struct projections){
            {layer_linear(run, ROLE_Q, ROLE_Q),
             layer_linear(run, ROLE_K, ROLE_K),
             layer_linear(run, ROLE_V, ROLE_V)},
            {q, k, v},
            3};
}

static struct projections gate_up_of(const struct layer_run *run)
{
    void *gate = run->acts->gate, *up = run->acts->up;
    if (has_joined(run, JOIN_GATE_UP))
        return joined(run, JOIN_GATE_UP, ROLE_GATE, ROLE_UP, gate);
    return (struct projections){
            {layer_linear(run, ROLE_GATE, ROLE_GATE),
             layer_linear(run, ROLE_UP, ROLE_UP)},
            {gate, up},
            2};
}

static int rope_of(const struct layer_run *run)
{
    return run->model->config->layer_attention[run->layer - 1].rope;
}

/* Of the layer's set; q has separate tables where positions scale it. */
static struct rope_angles angles_of(const struct layer_run *run, bool q)
{
    const struct model_config *config = run->model->config;
    const struct rope_tables *t = &run->model->ropes[rope_of(run)];
    const struct rope_set *set = &config->ropes[rope_of(run)];
    return (struct rope_angles){
            .cosine = q ? t->q_cosine : t->cosine,
            .sine = q ? t->q_sine : t->sine,
            .positions = run->pass->positions,
            .pairs = rope_pairs(set),
            .interleaved = config->rope_interleaved};
}

static enum zd_status rotate(
        const struct layer_run *run, void *q, void *k, bool backward)
{
    const struct model *model = run->model;
    const struct model_config *c = model->config;
    int set = rope_of(run);
    if (set < 0)
        return ZD_OK;
    const struct rope_angles of_q = angles_of(run, true);
    const struct rope_angles of_k = angles_of(run, false);
    if (!c->ropes[set].q_beta)
        return fused_rope(
                model->kernels, NULL, q, k, c->heads, c->kv_heads,
                model->strides.q, model->strides.k, &of_k, run->pass->N,
                c->head_dim, backward);
    ZD_TRY(model->kernels->rope(
            NULL, q, &of_q, run->pass->N, c->heads, c->head_dim,
            model->strides.q, backward));
    return model->kernels->rope(
            NULL, k, &of_k, run->pass->N, c->kv_heads, c->head_dim,
            model->strides.k, backward);
}

/* OLMo 2: all heads of a token as one row, before they turn. */
static enum zd_status norm_whole(
        const struct layer_run *run, const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k)
{
    const struct model_config *c = run->model->config;
    const struct head_norm_forward_args *both[] = {q, k};
    for (int i = 0; i < 2; i++)
        ZD_TRY(run->model->kernels->head_norm_forward(
                NULL, both[i]->out, both[i]->rstd, both[i]->x, both[i]->weight,
                (float)c->norm_eps, c->family->norm_form, run->pass->N, 1,
                both[i]->H * c->head_dim, both[i]->out_stride,
                both[i]->x_stride));
    return rotate(run, q->out, k->out, false);
}

static enum zd_status norm_whole_backward(
        const struct layer_run *run, const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k)
{
    const struct model_config *c = run->model->config;
    const struct head_norm_backward_args *both[] = {q, k};
    ZD_TRY(rotate(run, q->dout, k->dout, true));
    for (int i = 0; i < 2; i++)
        ZD_TRY(run->model->kernels->head_norm_backward(
                NULL, both[i]->dx, both[i]->dweight, both[i]->dout, both[i]->x,
                both[i]->weight, both[i]->rstd, c->family->norm_form,
                run->pass->N, 1, both[i]->H * c->head_dim, both[i]->out_stride,
                both[i]->x_stride, run->accumulate));
    return ZD_OK;
}

/* Qwen3: each head of q and k is normed before it turns, with one weight for
 * all heads. */
enum zd_status rotary_norm_heads(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct model_config *c = model->config;
    const struct layer_acts *acts = run->acts;
    const struct row_strides *s = &model->strides;
    const struct rope_angles angles = angles_of(run, false);
    const struct head_norm_forward_args q = {
            .out = acts->q,
            .rstd = acts->q_rstd,
            .x = acts->q_raw,
            .weight = model->params[role_id(model, run->layer, ROLE_Q_NORM)],
            .H = c->heads,
            .out_stride = s->q,
            .x_stride = s->q_raw,
    };
    const struct head_norm_forward_args k = {
            .out = acts->k,
            .rstd = acts->k_rstd,
            .x = acts->k_raw,
            .weight = model->params[role_id(model, run->layer, ROLE_K_NORM)],
            .H = c->kv_heads,
            .out_stride = s->k,
            .x_stride = s->k_raw,
    };
    if (c->family->qk_norm_whole)
        return norm_whole(run, &q, &k);
    return fused_head_norm_rope_forward(
            model->kernels, NULL, &q, &k, &angles, (float)c->norm_eps,
            c->family->norm_form, run->pass->N, c->head_dim);
}

static enum zd_status norm_heads_backward(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct model_config *c = model->config;
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct row_strides *s = &model->strides;
    int q_norm = role_id(model, run->layer, ROLE_Q_NORM);
    int k_norm = role_id(model, run->layer, ROLE_K_NORM);
    const struct rope_angles angles = angles_of(run, false);
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
    if (c->family->qk_norm_whole)
        return norm_whole_backward(run, &q, &k);
    return fused_head_norm_rope_backward(
            model->kernels, NULL, &q, &k, &angles, c->family->norm_form,
            run->pass->N, c->head_dim, run->accumulate);
}

enum zd_status rotary_qkv_forward(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    struct projections qkv = qkv_of(run, acts->q_raw, acts->k_raw, acts->v);
    ZD_TRY(projections_forward(&qkv, acts->norm1));
    return run->model->config->qk_norm ? rotary_norm_heads(run)
                                       : rotate(run, acts->q, acts->k, false);
}

enum zd_status rotary_qkv_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    struct projections qkv = qkv_of(run, g->q_raw, g->k_raw, g->v);
    ZD_TRY(run->model->config->qk_norm ? norm_heads_backward(run)
                                       : rotate(run, g->q, g->k, true));
    return projections_backward(
            &qkv, layer_needs_input_grad(run) ? g->hidden : NULL, g->sum,
            run->acts->norm1);
}

enum zd_status rotary_recompute_act(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    const struct kernels *k = run->model->kernels;
    bool gelu = run->model->config->family->gelu_gate;
    return (gelu ? k->geglu_forward : k->swiglu_forward)(
            NULL, acts->act, acts->gate, acts->up, run->pass->N,
            run->model->config->intermediate_size, run->model->strides.gate);
}

enum zd_status rotary_mlp_forward(const struct layer_run *run, void *out)
{
    struct projections gate_up = gate_up_of(run);
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(projections_forward(&gate_up, run->acts->norm2));
    ZD_TRY(rotary_recompute_act(run));
    return linear_forward(&down, out, run->acts->act);
}

/* The gradients of gate and up take their places: this is their last use. */
enum zd_status rotary_mlp_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct layer_acts *acts = run->acts;
    const struct kernels *k = run->model->kernels;
    bool gelu = run->model->config->family->gelu_gate;
    struct projections gate_up = gate_up_of(run);
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(linear_backward(&down, g->act, g->mlp_out, acts->act));
    ZD_TRY((gelu ? k->geglu_backward : k->swiglu_backward)(
            NULL, acts->gate, acts->up, g->act, acts->gate, acts->up,
            run->pass->N, run->model->config->intermediate_size,
            run->model->strides.gate));
    return projections_backward(&gate_up, g->hidden, g->sum, acts->norm2);
}
