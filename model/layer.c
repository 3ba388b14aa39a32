#include "base/device/device_memory.h"
#include "model/internal.h"

static struct attention_shape attention_shape(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct pass *pass = run->pass;
    struct attention_shape shape = activations_attention(
            model->config, &model->shape, run->layer, pass->B, pass->T);
    shape.documents = pass->documents;
    shape.first_tokens = pass->first_tokens;
    shape.queries = pass->queries;
    shape.scratch_bytes = pass->acts->scratch_bytes;
    return shape;
}

/* Appends a run's rows, from row `first` of the pass, to its text's cache, then
 * attends to the whole cache. */
static enum zd_status attend_run(
        const struct layer_run *layer, const struct decode_run *run,
        size_t first)
{
    const struct kernels *k = layer->model->kernels;
    const struct activations *all = layer->pass->acts;
    const struct layer_acts *acts = layer->acts;
    struct attention_shape s = attention_shape(layer);
    size_t element = dtype_bytes(k->dtype);
    size_t row = (size_t)s.KV * (size_t)s.D * element;
    size_t place = (size_t)(layer->layer - 1) * all->cache_layer_bytes +
                   (size_t)run->text * all->cache_text_bytes;
    size_t past = (size_t)run->past * row, count = (size_t)run->count;
    const char *from[] = {
            kv_from(layer, acts->qkv.k), kv_from(layer, acts->qkv.v)};
    size_t apart[] = {
            (size_t)s.k_stride * element, (size_t)s.v_stride * element};
    char *cache[] = {all->k_cache + place, all->v_cache + place};
    for (int i = 0; i < 2; i++)
        ZD_TRY(device_move_rows(
                cache[i] + past, from[i] + first * apart[i],
                &(struct device_rows){row, apart[i], row, count}));
    const struct attention attention = {
            .shape = &s,
            .q = (const char *)acts->qkv.q +
                 first * (size_t)s.q_stride * element,
            .k = cache[0],
            .v = cache[1],
            .out = (char *)acts->att +
                   first * (size_t)s.H * (size_t)s.D * element};
    return k->attention_decode(NULL, &attention, run->count, run->past);
}

static enum zd_status attend(const struct layer_run *run, void *scratch)
{
    const struct pass *pass = run->pass;
    const struct layer_acts *acts = run->acts;
    struct attention_shape shape = attention_shape(run);
    struct attention_keys keys;
    size_t first = 0;
    if (pass->by_heads)
        return heads_forward(run, &shape, scratch);
    if (!pass->decode) {
        ZD_TRY(keys_gather(run, false, &shape, &keys));
        return run->model->kernels->attention_forward(
                NULL,
                &(struct attention){
                        &shape, acts->qkv.q, keys.k, keys.v,
                        pass->attention_start, scratch, acts->att, acts->lse});
    }
    for (int r = 0; r < pass->run_count; r++) {
        ZD_TRY(attend_run(run, &pass->runs[r], first));
        first += (size_t)pass->runs[r].count;
    }
    return ZD_OK;
}

static struct norm norm_of(const struct layer_run *run, enum role role)
{
    return unit_norm(
            run->model, run->layer, role, run->pass->share, run->accumulate);
}

static bool has(const struct layer_run *run, enum role role)
{
    return role_id(run->model, run->layer, role) >= 0;
}

static size_t hidden_count(const struct layer_run *run)
{
    return (size_t)run->pass->share * (size_t)run->model->config->hidden_size;
}

/* Computes the pending sum of the residual stream, if any, and the branch's
 * first norm, if it has one. */
static enum zd_status branch_input(
        const struct layer_run *run, enum role role,
        const struct branch_acts *b, struct residual_sum of)
{
    if (has(run, role))
        return norm_forward_sum(
                norm_of(run, role), b->norm, b->mean, b->rstd, b->x, of);
    return of.a ? run->model->kernels->add(
                          NULL, b->x, of.a, of.b, hidden_count(run))
                : ZD_OK;
}

/* Applies the branch's output norm, or its scaling, before the residual sum;
 * without either does nothing. `to` may be x. */
static enum zd_status branch_output(
        const struct layer_run *run, enum role role,
        const struct branch_acts *b, void *to)
{
    double scale = run->model->config->residual_scale;
    if (scale && b->out)
        return hidden_scale(run->model, to, b->out, run->pass->share, scale);
    return has(run, role) ? norm_forward_sum(
                                    norm_of(run, role), to, NULL, b->post_rstd,
                                    b->out, (struct residual_sum){0})
                          : ZD_OK;
}

/* The gradient of a branch's output from that of the residual stream. */
static enum zd_status branch_output_backward(
        const struct layer_run *run, enum role role,
        const struct branch_acts *b, void *dout)
{
    double scale = run->model->config->residual_scale;
    const void *dx = run->pass->acts->dx;
    if (scale)
        return hidden_scale(run->model, dout, dx, run->pass->share, scale);
    return has(run, role) ? norm_backward(
                                    norm_of(run, role), dout, dx, NULL, b->out,
                                    NULL, b->post_rstd)
                          : ZD_OK;
}

/* Adds a branch's part to the gradient of the residual stream. */
static enum zd_status branch_input_backward(
        const struct layer_run *run, enum role role,
        const struct branch_acts *b)
{
    void *dx = run->pass->acts->dx;
    const void *hidden = run->pass->acts->grads.hidden;
    if (has(run, role))
        return norm_backward(
                norm_of(run, role), dx, hidden, dx, b->x, b->mean, b->rstd);
    return run->model->kernels->add(NULL, dx, dx, hidden, hidden_count(run));
}

enum zd_status layer_input_norm(
        const struct layer_run *run, struct residual_sum *due)
{
    struct residual_sum of = *due;
    *due = (struct residual_sum){0};
    return branch_input(run, ROLE_NORM1, &run->acts->attention, of);
}

/* --- tensor parallelism --------------------------------------------------- */

/* Clears gradients that no kernel of this place writes: biases after o and
 * down, which the first place adds, and heads of k and v that this place does
 * not read. */
static enum zd_status clear_of_others(const struct layer_run *run)
{
    static const enum role roles[] = {ROLE_O_BIAS, ROLE_DOWN_BIAS};
    const struct model *model = run->model;
    for (int i = 0; i < 2 && model->config->tp.place > 0; i++) {
        int id = role_id(model, run->layer, roles[i]);
        if (id >= 0 && model->grads[id] && !run->accumulate)
            ZD_TRY(device_clear(
                    model->grads[id],
                    model->table->params[id].count * sizeof(float)));
    }
    return ZD_OK;
}

static enum zd_status clear_unread_heads(const struct layer_run *run)
{
    const struct model_config *c = run->model->config;
    const struct layer_grads *g = &run->pass->acts->grads;
    size_t row = (size_t)run->pass->N * dtype_bytes(run->model->kernels->dtype);
    size_t q = (size_t)c->heads * (size_t)c->head_dim * row;
    size_t kv = (size_t)c->kv_heads * (size_t)c->head_dim * row;
    bool is_joined = run->model->strides.v != c->kv_heads * c->head_dim;
    if (!c->kv_used)
        return ZD_OK;
    if (is_joined && g->qkv.q != g->qkv.q_raw)
        ZD_TRY(device_clear(g->qkv.q, q + kv));
    if (is_joined)
        return device_clear(g->qkv.q_raw, q + 2 * kv);
    ZD_TRY(device_clear(g->qkv.k, kv));
    return device_clear(g->qkv.v, kv);
}

/* --- the MLP, a piece of the tokens at a time ------------------------------
 */

/* A layer_run over a piece of the tokens. */
struct piece {
    struct layer_run run;
    struct pass pass;
    struct activations all;
    struct layer_acts acts;
    int first; /* index in the share's tokens */
};

/* The address of the piece's first token. */
static void *hidden_from(const struct piece *p, void *x)
{
    const struct model *model = p->run.model;
    size_t row = (size_t)model->config->hidden_size *
                 dtype_bytes(model->kernels->dtype);
    return x ? (char *)x + (size_t)p->first * row : NULL;
}

static float *each_from(const struct piece *p, float *x)
{
    return x ? x + p->first : NULL;
}

static int piece_count(const struct layer_run *run)
{
    int pieces = run->pass->acts->mlp_pieces, share = run->pass->share;
    return pieces < share ? pieces : share;
}

/* Where piece i begins; sizes differ by at most one token. */
static int piece_begin(const struct layer_run *run, int i)
{
    return (int)((int64_t)run->pass->share * i / piece_count(run));
}

/* Makes a run for piece i: arrays of all tokens are offset to its first token;
 * arrays per piece are not. */
static void piece_init(const struct layer_run *run, int i, struct piece *p)
{
    void *dx = run->pass->acts->dx;
    struct branch_acts *mlp = &p->acts.mlp;
    *p = (struct piece){
            *run, *run->pass, *run->pass->acts, *run->acts,
            piece_begin(run, i)};
    p->run.pass = &p->pass;
    p->run.acts = &p->acts;
    p->pass.acts = &p->all;
    p->run.accumulate |= i > 0;
    p->pass.first_row = p->first;
    p->pass.share = piece_begin(run, i + 1) - p->first;
    p->pass.N = p->pass.share * tp_size(run->model->config);
    p->all.dx = hidden_from(p, dx);
    if (p->all.grads.mlp_out == dx)
        p->all.grads.mlp_out = p->all.dx;
    mlp->x = hidden_from(p, mlp->x);
    mlp->mean = each_from(p, mlp->mean);
    mlp->rstd = each_from(p, mlp->rstd);
    mlp->post_rstd = each_from(p, mlp->post_rstd);
    if (!has(run, ROLE_NORM2))
        mlp->norm = mlp->x;
    if (p->acts.mlp_low)
        p->acts.low = p->acts.mlp_low;
}

/* From x, or its pending sum, to `post`, which is added to x; with post NULL
 * computes only what backward reads. */
static enum zd_status mlp_branch(
        const struct layer_run *run, struct residual_sum half)
{
    const struct branch_acts *mlp = &run->acts->mlp;
    /* backward reads the norm's rstd; its gradients are unused yet, so `hidden`
     * is scratch */
    void *to = mlp->post ? mlp->post : run->pass->acts->grads.hidden;
    ZD_TRY(branch_input(run, ROLE_NORM2, mlp, half));
    ZD_TRY(mlp_forward(run, mlp->out));
    return branch_output(run, ROLE_POST2, mlp, to);
}

/* Recomputes what the MLP's backward reads, with the bits of forward. */
static enum zd_status recompute_mlp(const struct layer_run *run)
{
    unsigned parts = run->acts->recompute;
    const struct residual_sum none = {0};
    if (parts & PART_MLP)
        return mlp_branch(run, none);
    if (parts & PART_NORM2)
        ZD_TRY(branch_input(run, ROLE_NORM2, &run->acts->mlp, none));
    return parts & PART_ACT ? mlp_gate(run) : ZD_OK;
}

static enum zd_status mlp_branch_backward(const struct layer_run *run)
{
    const struct branch_acts *mlp = &run->acts->mlp;
    ZD_TRY(recompute_mlp(run));
    ZD_TRY(branch_output_backward(
            run, ROLE_POST2, mlp, run->pass->acts->grads.mlp_out));
    ZD_TRY(mlp_backward(run));
    return branch_input_backward(run, ROLE_NORM2, mlp);
}

/* --- the layer ------------------------------------------------------------ */

enum zd_status layer_forward(
        const struct layer_run *run, void *scratch, void *out,
        struct residual_sum *due)
{
    const struct layer_acts *acts = run->acts;
    const struct branch_acts *in = &acts->attention;
    void *post = acts->mlp.post ? acts->mlp.post : out;
    void *part = tokens_part(run->model, in->out);
    struct linear o = layer_linear(run, ROLE_O, ROLE_O);
    struct piece p;
    ZD_TRY(qkv_forward(run));
    ZD_TRY(attend(run, scratch));
    ZD_TRY(linear_forward(&o, part, acts->att));
    ZD_TRY(layer_scatter(run, in->out, part));
    ZD_TRY(branch_output(run, ROLE_POST1, in, in->post));
    if (!post && acts->recompute & PART_MLP) /* backward will compute it */
        return run->model->kernels->add(
                NULL, acts->mlp.x, in->x, in->post, hidden_count(run));
    for (int i = 0; i < piece_count(run); i++) {
        piece_init(run, i, &p);
        p.acts.mlp.post = hidden_from(&p, post);
        if (!p.acts.mlp.out)
            p.acts.mlp.out = p.acts.mlp.post;
        ZD_TRY(mlp_branch(
                &p.run,
                (struct residual_sum){
                        hidden_from(&p, in->x), hidden_from(&p, in->post)}));
    }
    if (out)
        *due = (struct residual_sum){acts->mlp.x, post};
    return ZD_OK;
}

/* From grads.hidden, the gradient of attention's output, to those of q, k and
 * v. */
static enum zd_status attend_backward(const struct layer_run *run)
{
    const struct pass *pass = run->pass;
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &pass->acts->grads;
    struct attention_shape shape = attention_shape(run);
    struct attention_keys keys;
    if (pass->by_heads)
        return heads_backward(run, &shape);
    ZD_TRY(clear_unread_heads(run));
    ZD_TRY(keys_gather(run, run->held, &shape, &keys));
    ZD_TRY(run->model->kernels->attention_backward(
            NULL, &(struct attention){
                          &shape, acts->qkv.q, keys.k, keys.v,
                          pass->attention_start, g->scratch, acts->att,
                          acts->lse, g->hidden, g->qkv.q, keys.dk, keys.dv}));
    return keys_scatter(run);
}

/* dx passes through the residual stream; each branch adds its part in the
 * backward of its norm. */
enum zd_status layer_backward(const struct layer_run *run)
{
    const struct branch_acts *in = &run->acts->attention;
    const struct layer_grads *g = &run->pass->acts->grads;
    struct linear o = layer_linear(run, ROLE_O, ROLE_O);
    struct piece p;
    void *dproj;
    ZD_TRY(clear_of_others(run));
    for (int i = 0; i < piece_count(run); i++) {
        piece_init(run, i, &p);
        ZD_TRY(mlp_branch_backward(&p.run));
    }
    ZD_TRY(branch_output_backward(run, ROLE_POST1, in, g->proj));
    ZD_TRY(layer_gather(run, 0, g->proj, &dproj));
    ZD_TRY(linear_backward(&o, g->hidden, dproj, run->acts->att));
    /* recompute what attention's backward reads, and the projections' before it
     */
    if (run->acts->recompute & PART_NORM1)
        ZD_TRY(branch_input(run, ROLE_NORM1, in, (struct residual_sum){0}));
    if (run->acts->recompute & PART_HEADS)
        ZD_TRY(qkv_norm_heads(run));
    ZD_TRY(attend_backward(run));
    ZD_TRY(qkv_backward(run));
    return layer_needs_input_grad(run)
                   ? branch_input_backward(run, ROLE_NORM1, in)
                   : ZD_OK;
}
