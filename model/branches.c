/* branches.c - the parts of a layer after its norms: q, k and v with norms of
 * heads and rotation; the MLP, gated or with GELU. */
#include "model/config_keys.h"
#include "model/internal.h"

static struct projections qkv_of(
        const struct layer_run *run, const struct qkv *qkv)
{
    void *const y[] = {qkv->q_raw, qkv->k_raw, qkv->v};
    return layer_projections(run, JOIN_QKV, ROLE_Q, y, 3);
}

static int rope_of(const struct layer_run *run)
{
    return run->model->config->layer_attention[run->layer - 1].rope;
}

/* The tables of the layer's set; q has its own if positions scale it. */
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
    if (rope_of(run) < 0)
        return ZD_OK;
    const struct rope_angles of_q = angles_of(run, true);
    const struct rope_angles of_k = angles_of(run, false);
    return kernels_rope_pair(
            model->kernels,
            (struct rope_pair){
                    qkv->q, qkv->k, c->heads, c->kv_heads, model->strides.q,
                    model->strides.k},
            &of_q, &of_k, run->pass->N, c->head_dim, backward);
}

/* Where the norm of q or k reads the sums of all places. */
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

/* The norm of the heads of q or k; in OLMo 2 all heads of a token are one row.
 */
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
            .x_stride = is_k ? s->k_raw : s->q_raw,
            .parts = parts_of(run, is_k)};
}

/* Runs one norm of heads, or computes only its sums. */
typedef enum zd_status norm_fn(
        const struct layer_run *run, bool is_k, bool sums_alone);

static enum zd_status norm_one(
        const struct layer_run *run, bool is_k, bool sums_alone)
{
    struct norm_forward norm = heads_norm(run, is_k);
    if (sums_alone)
        norm.out = NULL;
    return run->model->kernels->norm_forward(NULL, &norm);
}

/* Norms all heads of q and of k, with the sums added over places. */
static enum zd_status norm_whole(const struct layer_run *run, norm_fn *norm)
{
    int count = norms_cut(run->model->config);
    for (int i = 0; i < count; i++)
        ZD_TRY(norm(run, i, true));
    if (count)
        ZD_TRY(norm_sums_gather(run->model, count * run->pass->N));
    ZD_TRY(norm(run, false, false));
    return norm(run, true, false);
}

/* Qwen3: each head of q and k is normed before rotation, with one weight for
 * all heads. */
enum zd_status qkv_norm_heads(const struct layer_run *run)
{
    const struct rope_angles angles = angles_of(run, false);
    struct norm_forward q = heads_norm(run, false), k = heads_norm(run, true);
    if (!run->model->config->family->qk_norm_whole)
        return kernels_head_norm_rope_forward(
                run->model->kernels, &q, &k, &angles);
    ZD_TRY(norm_whole(run, norm_one));
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
            .parts = norm.parts,
            .accumulate = run->accumulate};
}

static enum zd_status norm_one_backward(
        const struct layer_run *run, bool is_k, bool sums_alone)
{
    struct norm_backward norm = heads_norm_backward(run, is_k);
    if (sums_alone)
        norm.dx = norm.dweight = NULL;
    return run->model->kernels->norm_backward(NULL, &norm);
}

static enum zd_status norm_heads_backward(const struct layer_run *run)
{
    const struct rope_angles angles = angles_of(run, false);
    struct norm_backward q = heads_norm_backward(run, false);
    struct norm_backward k = heads_norm_backward(run, true);
    if (!run->model->config->family->qk_norm_whole)
        return kernels_head_norm_rope_backward(
                run->model->kernels, &q, &k, &angles);
    ZD_TRY(rotate(run, &run->pass->acts->grads.qkv, true));
    return norm_whole(run, norm_one_backward);
}

enum zd_status qkv_forward(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    struct projections qkv = qkv_of(run, &acts->qkv);
    void *x;
    ZD_TRY(layer_gather(run, 1, acts->attention.norm, &x));
    ZD_TRY(projections_forward(&qkv, x));
    return run->model->config->qk_norm ? qkv_norm_heads(run)
                                       : rotate(run, &acts->qkv, false);
}

enum zd_status qkv_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    struct projections qkv = qkv_of(run, &g->qkv);
    void *part = tokens_part(run->model, g->hidden), *x;
    bool needs_dx = layer_needs_input_grad(run);
    ZD_TRY(layer_gather(run, 1, run->acts->attention.norm, &x));
    ZD_TRY(run->model->config->qk_norm ? norm_heads_backward(run)
                                       : rotate(run, &g->qkv, true));
    ZD_TRY(projections_backward(&qkv, needs_dx ? part : NULL, g->sum, x));
    return needs_dx ? layer_scatter(run, g->hidden, part) : ZD_OK;
}

/* --- the MLP -------------------------------------------------------------- */

static struct projections gate_up_of(const struct layer_run *run)
{
    void *const y[] = {run->acts->gate, run->acts->up};
    return layer_projections(run, JOIN_GATE_UP, ROLE_GATE, y, 2);
}

enum zd_status mlp_gate(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    const struct model_config *c = run->model->config;
    return run->model->kernels->gated_forward(
            NULL, c->family->gate, acts->act, acts->gate, acts->up,
            run->pass->N, c->intermediate_size, run->model->strides.gate);
}

enum zd_status mlp_forward(const struct layer_run *run, void *out)
{
    const struct layer_acts *acts = run->acts;
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    void *part = tokens_part(run->model, out), *x;
    ZD_TRY(layer_gather(run, 1, acts->mlp.norm, &x));
    if (run->model->config->family->gated_mlp) {
        struct projections gate_up = gate_up_of(run);
        ZD_TRY(projections_forward(&gate_up, x));
        ZD_TRY(mlp_gate(run));
    } else {
        struct linear fc = layer_linear(run, ROLE_GATE, ROLE_GATE);
        ZD_TRY(linear_forward_gelu(&fc, acts->act, acts->gate, x));
    }
    ZD_TRY(linear_forward(&down, part, acts->act));
    return layer_scatter(run, out, part);
}

/* The gradients of gate and up overwrite them: this is their last use. */
enum zd_status mlp_backward(const struct layer_run *run)
{
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct layer_acts *acts = run->acts;
    const struct model_config *c = run->model->config;
    struct linear down = layer_linear(run, ROLE_DOWN, ROLE_DOWN);
    void *dx = tokens_part(run->model, g->hidden), *x, *dout;
    ZD_TRY(layer_gather(run, 1, acts->mlp.norm, &x));
    ZD_TRY(layer_gather(run, 0, g->mlp_out, &dout));
    if (c->family->gated_mlp) {
        struct projections gate_up = gate_up_of(run);
        ZD_TRY(linear_backward(&down, g->act, dout, acts->act));
        ZD_TRY(run->model->kernels->gated_backward(
                NULL, c->family->gate, acts->gate, acts->up, g->act, acts->gate,
                acts->up, run->pass->N, c->intermediate_size,
                run->model->strides.gate));
        ZD_TRY(projections_backward(&gate_up, dx, g->sum, x));
    } else {
        struct linear fc = layer_linear(run, ROLE_GATE, ROLE_GATE);
        ZD_TRY(linear_backward_gelu(
                &down, g->act, dout, acts->act, acts->gate));
        ZD_TRY(linear_backward(&fc, dx, g->act, x));
    }
    return layer_scatter(run, g->hidden, dx);
}
