#include "base/device/device_memory.h"
#include "model/internal.h"

static struct attention_shape attention_shape(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct pass *pass = run->pass;
    struct attention_shape shape = activations_attention(
            model->config, model->shape.joined, run->layer, pass->B, pass->T);
    shape.documents = pass->documents;
    shape.first_tokens = pass->first_tokens;
    shape.scratch_bytes = pass->acts->scratch_bytes;
    return shape;
}

/* Append a run's rows, from row `first` of the pass, to its text's part of the
 * cache, then attend to all of that. */
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
    char *k_cache = all->k_cache + place, *v_cache = all->v_cache + place;
    for (int i = 0; i < run->count; i++) {
        size_t to = (size_t)(run->past + i) * row, n = first + (size_t)i;
        size_t key = n * (size_t)s.k_stride * element;
        size_t value = n * (size_t)s.v_stride * element;
        ZD_TRY(device_move(k_cache + to, (const char *)acts->k + key, row));
        ZD_TRY(device_move(v_cache + to, (const char *)acts->v + value, row));
    }
    return k->attention_decode(
            NULL,
            (char *)acts->att + first * (size_t)s.H * (size_t)s.D * element,
            (const char *)acts->q + first * (size_t)s.q_stride * element,
            k_cache, v_cache, run->count, run->past, &s);
}

static enum zd_status attend(const struct layer_run *run, void *scratch)
{
    const struct pass *pass = run->pass;
    const struct layer_acts *acts = run->acts;
    struct attention_shape shape = attention_shape(run);
    if (!pass->decode)
        return run->model->kernels->attention_forward(
                NULL, acts->att, acts->lse, acts->q, acts->k, acts->v,
                pass->doc_start, scratch, &shape);
    size_t first = 0;
    for (int r = 0; r < pass->run_count; r++) {
        ZD_TRY(attend_run(run, &pass->runs[r], first));
        first += (size_t)pass->runs[r].count;
    }
    return ZD_OK;
}

static struct norm norm_of(const struct layer_run *run, enum role role)
{
    return unit_norm(
            run->model, run->layer, role, run->pass->N, run->accumulate);
}

enum zd_status layer_input_norm(
        const struct layer_run *run, struct residual_sum *due)
{
    const struct layer_acts *acts = run->acts;
    struct norm norm1 = norm_of(run, ROLE_NORM1);
    struct residual_sum of = *due;
    *due = (struct residual_sum){0};
    return norm_forward_sum(
            &norm1, acts->norm1, acts->mean1, acts->rstd1, acts->x, &of);
}

enum zd_status layer_forward(
        const struct layer_run *run, void *scratch, void *out,
        struct residual_sum *due)
{
    const struct model_family *family = run->model->config->family;
    const struct layer_acts *acts = run->acts;
    struct residual_sum half = {acts->x, acts->proj};
    struct norm norm2 = norm_of(run, ROLE_NORM2);
    struct linear o = layer_linear(run, ROLE_O, ROLE_O);
    void *mlp_out = acts->mlp_out ? acts->mlp_out : out;
    ZD_TRY(family->qkv_forward(run));
    ZD_TRY(attend(run, scratch));
    ZD_TRY(linear_forward(&o, acts->proj, acts->att));
    ZD_TRY(norm_forward_sum(
            &norm2, acts->norm2, acts->mean2, acts->rstd2, acts->x2, &half));
    ZD_TRY(family->mlp_forward(run, mlp_out));
    if (out)
        *due = (struct residual_sum){acts->x2, mlp_out};
    return ZD_OK;
}

/* Recompute what the MLP's backward reads, to the bits of forward. */
static enum zd_status recompute_mlp(const struct layer_run *run)
{
    const struct layer_acts *acts = run->acts;
    struct norm norm2 = norm_of(run, ROLE_NORM2);
    struct residual_sum none = {0};
    if (acts->recompute & PART_NORM2)
        ZD_TRY(norm_forward_sum(
                &norm2, acts->norm2, acts->mean2, acts->rstd2, acts->x2,
                &none));
    return acts->recompute & PART_ACT
                   ? run->model->config->family->recompute_act(run)
                   : ZD_OK;
}

/* Recompute what attention's backward reads, and that of the projections before
 * it. */
static enum zd_status recompute_attention(const struct layer_run *run)
{
    struct residual_sum none = {0};
    if (run->acts->recompute & PART_NORM1)
        ZD_TRY(layer_input_norm(run, &none));
    return run->acts->recompute & PART_HEADS
                   ? run->model->config->family->recompute_heads(run)
                   : ZD_OK;
}

/* The residual stream passes dx on; each branch adds its part through the
 * backward of its norm. */
enum zd_status layer_backward(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct model_family *family = model->config->family;
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &run->pass->acts->grads;
    void *dx = run->pass->acts->dx;
    struct attention_shape shape = attention_shape(run);
    struct norm norm1 = norm_of(run, ROLE_NORM1);
    struct norm norm2 = norm_of(run, ROLE_NORM2);
    struct linear o = layer_linear(run, ROLE_O, ROLE_O);
    ZD_TRY(recompute_mlp(run));
    ZD_TRY(family->mlp_backward(run));
    ZD_TRY(norm_backward(
            &norm2, dx, g->hidden, dx, acts->x2, acts->mean2, acts->rstd2));
    ZD_TRY(linear_backward(&o, g->hidden, dx, acts->att));
    ZD_TRY(recompute_attention(run));
    ZD_TRY(model->kernels->attention_backward(
            NULL, g->q, g->k, g->v, g->hidden, acts->att, acts->lse, acts->q,
            acts->k, acts->v, run->pass->doc_start, g->scratch, &shape));
    ZD_TRY(family->qkv_backward(run));
    if (!layer_needs_input_grad(run))
        return ZD_OK;
    return norm_backward(
            &norm1, dx, g->hidden, dx, acts->x, acts->mean1, acts->rstd1);
}
