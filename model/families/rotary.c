#include "model/families/rotary.h"
#include "model/config_keys.h"
#include "model/internal.h"

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
    ZD_TRY(embedding_rows(model, pass, ROLE_TOKENS, pass->tokens, out, false));
    return scale ? hidden_scale(model, out, out, pass->share, scale) : ZD_OK;
}

enum zd_status rotary_embed_backward(
        const struct model *model, const struct pass *pass, bool tokens_add,
        bool accumulate)
{
    double scale = embedding_scale(model);
    void *dx = pass->acts->dx;
    (void)accumulate;
    if (scale)
        ZD_TRY(hidden_scale(model, dx, dx, pass->share, scale));
    return embedding_scatter(
            model, ROLE_TOKENS, pass->tokens, pass->token_order, pass,
            tokens_add);
}

/* `count` projections from role `first` on, to y; where they lie in one tensor,
 * or one after the other, as one. A bias's role follows its weight's. */
static struct projections projections_of(
        const struct layer_run *run, unsigned join, enum role first,
        void *const *y, int count)
{
    unsigned fused = run->model->config->family->fused & join;
    struct projections p = {.count = count};
    enum role last = first + 2 * ((unsigned)count - 1);
    if (fused || run->model->shape.joined & join)
        return (struct projections){
                {layer_linear(run, first, fused ? first : last)}, {y[0]}, 1};
    for (int i = 0; i < count; i++) {
        enum role role = first + 2 * (unsigned)i;
        p.linears[i] = layer_linear(run, role, role);
        p.y[i] = y[i];
    }
    return p;
}

static struct projections qkv_of(
        const struct layer_run *run, const struct qkv *qkv)
{
    void *const y[] = {qkv->q_raw, qkv->k_raw, qkv->v};
    return projections_of(run, JOIN_QKV, ROLE_Q, y, 3);
}

static struct projections gate_up_of(const struct layer_run *run)
{
    void *const y[] = {run->acts->gate, run->acts->up};
    return projections_of(run, JOIN_GATE_UP, ROLE_GATE, y, 2);
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
        const struct layer_run *run, const struct qkv *qkv, bool backward)
{
    const struct model *model = run->model;
    const struct model_config *c = model->config;
    int set = rope_of(run);
    if (set < 0)
        return ZD_OK;
    const struct rope_angles of_q = angles_of(run, true);
    const struct rope_angles of_k = angles_of(run, false);
    if (!c->ropes[set].q_beta)
        return rope_both(
                model->kernels->rope, model->kernels->dtype, NULL, qkv->q,
                qkv->k, c->heads, c->kv_heads, model->strides.q,
                model->strides.k, &of_k, run->pass->N, c->head_dim, backward);
    ZD_TRY(model->kernels->rope(
            NULL, qkv->q, &of_q, run->pass->N, c->heads, c->head_dim,
            model->strides.q, backward));
    return model->kernels->rope(
            NULL, qkv->k, &of_k, run->pass->N, c->kv_heads, c->head_dim,
            model->strides.k, backward);
}

/* Heads of q or of k; of OLMo 2 all heads of a token as one row. */
static struct norm_forward heads_norm(const struct layer_run *run, bool is_k)
{
    const struct model_config *c = run->model->config;
    const struct layer_acts *acts = run->acts;
    const struct row_strides *s = &run->model->strides;
    int id = role_id(run->model, run->layer, is_k ? ROLE_K_NORM : ROLE_Q_NORM);
    int heads = is_k ? c->kv_heads : c->heads;
    bool whole = c->family->qk_norm_whole;
    return (struct norm_forward){
            .out = is_k ? acts->qkv.k : acts->qkv.q,
            .rstd = is_k ? acts->k_rstd : acts->q_rstd,
            .x = is_k ? acts->qkv.k_raw : acts->qkv.q_raw,
            .weight = run->model->params[id],
            .eps = (float)c->norm_eps,
            .form = c->family->norm_form,
            .N = run->pass->N,
            .C = whole ? heads * c->head_dim : c->head_dim,
            .heads = whole ? 1 : heads,
            .out_stride = is_k ? s->k : s->q,
            .x_stride = is_k ? s->k_raw : s->q_raw};
}

/* Where the norm of q, or of k, finds the sums of all places. */
static struct norm_parts parts_of(const struct layer_run *run, bool is_k)
{
    const struct model *model = run->model;
    int count = norms_cut(model->config), N = run->pass->N;
    size_t before = is_k ? (size_t)N : 0;
    if (count <= is_k)
        return (struct norm_parts){.places = 0};
    return (struct norm_parts){
            .mine = model->gathered.norm_sums[0] + before,
            .all = model->gathered.norm_sums[1] + before,
            .stride = (int64_t)count * N,
            .places = tp_size(model->config)};
}

/* Of all heads of q and of k. */
static enum zd_status norm_whole(
        const struct layer_run *run, struct norm_forward *q,
        struct norm_forward *k)
{
    const struct kernels *kernels = run->model->kernels;
    struct norm_forward *both[] = {q, k};
    int count = norms_cut(run->model->config);
    for (int i = 0; i < count; i++) {
        struct norm_forward sums = *both[i];
        both[i]->parts = sums.parts = parts_of(run, i);
        sums.out = NULL;
        ZD_TRY(kernels->norm_forward(NULL, &sums));
    }
    if (count)
        ZD_TRY(norm_sums_gather(run->model, count * run->pass->N));
    ZD_TRY(kernels->norm_forward(NULL, q));
    return kernels->norm_forward(NULL, k);
}

/* Qwen3: each head of q and k is normed before it turns, with one weight for
 * all heads. */
enum zd_status rotary_norm_heads(const struct layer_run *run)
{
    const struct kernels *kernels = run->model->kernels;
    const struct rope_angles angles = angles_of(run, false);
    struct norm_forward q = heads_norm(run, false), k = heads_norm(run, true);
    if (!run->model->config->family->qk_norm_whole)
        return kernels->head_norm_rope_forward(NULL, &q, &k, &angles);
    ZD_TRY(norm_whole(run, &q, &k));
    return rotate(run, &run->acts->qkv, false);
}

static struct norm_backward heads_norm_backward(
        const struct layer_run *run, bool is_k)
{
    const struct qkv *g = &run->pass->acts->grads.qkv;
    struct norm_forward norm = heads_norm(run, is_k);
    int id = role_id(run->model, run->layer, is_k ? ROLE_K_NORM : ROLE_Q_NORM);
    return (struct norm_backward){
            .dx = is_k ? g->k_raw : g->q_raw,
            .dweight = run->model->grads[id],
            .dout = is_k ? g->k : g->q,
            .x = norm.x,
            .weight = norm.weight,
            .rstd = norm.rstd,
            .form = norm.form,
            .N = norm.N,
            .C = norm.C,
            .heads = norm.heads,
            .out_stride = norm.out_stride,
            .x_stride = norm.x_stride,
            .accumulate = run->accumulate};
}

static enum zd_status norm_whole_backward(
        const struct layer_run *run, struct norm_backward *q,
        struct norm_backward *k)
{
    const struct kernels *kernels = run->model->kernels;
    struct norm_backward *both[] = {q, k};
    int count = norms_cut(run->model->config);
    for (int i = 0; i < count; i++) {
        struct norm_backward sums = *both[i];
        both[i]->parts = sums.parts = parts_of(run, i);
        sums.dx = NULL;
        sums.dweight = NULL;
        ZD_TRY(kernels->norm_backward(NULL, &sums));
    }
    if (count)
        ZD_TRY(norm_sums_gather(run->model, count * run->pass->N));
    ZD_TRY(kernels->norm_backward(NULL, q));
    return kernels->norm_backward(NULL, k);
}

static enum zd_status norm_heads_backward(const struct layer_run *run)
{
    const struct kernels *kernels = run->model->kernels;
    const struct rope_angles angles = angles_of(run, false);
    struct norm_backward q = heads_norm_backward(run, false);
    struct norm_backward k = heads_norm_backward(run, true);
    if (!run->model->config->family->qk_norm_whole)
        return kernels->head_norm_rope_backward(NULL, &q, &k, &angles);
    ZD_TRY(rotate(run, &run->pass->acts->grads.qkv, true));
    return norm_whole_backward(run, &q, &k);
}

enum zd_status rotary_qkv_forward(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    struct projections qkv = qkv_of(run, &acts->qkv);
    ZD_TRY(projections_forward(&qkv, acts->attention.norm));
    return run->model->config->qk_norm ? rotary_norm_heads(run)
                                       : rotate(run, &acts->qkv, false);
}

enum zd_status rotary_qkv_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    struct projections qkv = qkv_of(run, &g->qkv);
    ZD_TRY(run->model->config->qk_norm ? norm_heads_backward(run)
                                       : rotate(run, &g->qkv, true));
    return projections_backward(
            &qkv, layer_needs_input_grad(run) ? g->hidden : NULL, g->sum,
            run->acts->attention.norm);
}

enum zd_status rotary_recompute_act(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    const struct model_config *c = run->model->config;
    return run->model->kernels->gated_forward(
            NULL, c->family->gate, acts->act, acts->gate, acts->up,
            run->pass->N, c->intermediate_size, run->model->strides.gate);
}

enum zd_status rotary_mlp_forward(const struct layer_run *run, void *out)
{
    struct projections gate_up = gate_up_of(run);
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(projections_forward(&gate_up, run->acts->mlp.norm));
    ZD_TRY(rotary_recompute_act(run));
    return linear_forward(&down, out, run->acts->act);
}

/* The gradients of gate and up take their places: this is their last use. */
enum zd_status rotary_mlp_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct layer_acts *acts = run->acts;
    const struct model_config *c = run->model->config;
    struct projections gate_up = gate_up_of(run);
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    ZD_TRY(linear_backward(&down, g->act, g->mlp_out, acts->act));
    ZD_TRY(run->model->kernels->gated_backward(
            NULL, c->family->gate, acts->gate, acts->up, g->act, acts->gate,
            acts->up, run->pass->N, c->intermediate_size,
            run->model->strides.gate));
    return projections_backward(&gate_up, g->hidden, g->sum, acts->mlp.norm);
}
