#include "model/internal.h"

#include "base/device/device_memory.h"

#include <math.h>

static struct attention_shape attention_shape(
        const struct model *model, const struct pass *pass)
{
    const struct model_config *c = model->config;
    struct row_strides strides = model->strides;
    return (struct attention_shape){
            .B = pass->B,
            .T = pass->T,
            .H = c->heads,
            .KV = c->kv_heads,
            .D = c->head_dim,
            .q_stride = strides.q,
            .k_stride = strides.k,
            .v_stride = strides.v,
            .scale = (float)(1.0 / sqrt((double)c->head_dim)),
            .documents = pass->documents,
            .first_tokens = pass->first_tokens,
            .scratch_bytes = pass->acts->scratch_bytes,
    };
}

/* Append a run's rows, from row `first` of the pass, to its text's part of the
 * cache, then attend to all of that. */
static enum zd_status attend_run(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, const struct decode_run *run,
        size_t first)
{
    const struct kernels *k = model->kernels;
    const struct activations *all = pass->acts;
    struct attention_shape s = attention_shape(model, pass);
    size_t element = dtype_bytes(k->dtype);
    size_t row = (size_t)s.KV * (size_t)s.D * element;
    size_t place = (size_t)(layer - 1) * all->cache_layer_bytes +
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
            k_cache, v_cache, run->count, run->past, s.H, s.KV, s.D, s.q_stride,
            s.scale);
}

static enum zd_status attend_cached(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    size_t first = 0;
    for (int r = 0; r < pass->run_count; r++) {
        const struct decode_run *run = &pass->runs[r];
        ZD_TRY(attend_run(model, pass, layer, acts, run, first));
        first += (size_t)run->count;
    }
    return ZD_OK;
}

static enum zd_status attend(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *scratch)
{
    if (pass->decode)
        return attend_cached(model, pass, layer, acts);
    struct attention_shape shape = attention_shape(model, pass);
    return model->kernels->attention_forward(
            NULL, acts->att, acts->lse, acts->q, acts->k, acts->v,
            pass->doc_start, scratch, &shape);
}

enum zd_status layer_input_norm(
        struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    struct residual_sum due = model->due;
    struct norm norm1 = unit_norm(model, layer, ROLE_NORM1);
    model->due = (struct residual_sum){0};
    return norm_forward_sum(
            model, &norm1, acts->norm1, acts->mean1, acts->rstd1, acts->x, &due,
            pass->N);
}

enum zd_status layer_forward(
        struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *scratch, void *out)
{
    const struct model_config *c = model->config;
    int N = pass->N, C = c->hidden_size;
    struct residual_sum half = {acts->x, acts->proj};
    struct norm norm2 = unit_norm(model, layer, ROLE_NORM2);
    struct linear o = layer_linear(
            model, pass, layer, acts, ROLE_O, c->heads * c->head_dim, C);
    ZD_TRY(c->family->qkv_forward(model, pass, layer, acts));
    ZD_TRY(attend(model, pass, layer, acts, scratch));
    ZD_TRY(linear_forward(model, &o, acts->proj, acts->att, N));
    ZD_TRY(norm_forward_sum(
            model, &norm2, acts->norm2, acts->mean2, acts->rstd2, acts->x2,
            &half, N));
    void *mlp_out = acts->mlp_out ? acts->mlp_out : out;
    ZD_TRY(c->family->mlp_forward(model, pass, layer, acts, mlp_out));
    if (out)
        model->due = (struct residual_sum){acts->x2, mlp_out};
    return ZD_OK;
}

/* The norm of its stored input, to the bits of forward. */
static enum zd_status recompute_norm(
        const struct model *model, const struct pass *pass, int layer,
        enum role role, void *out, float *mean, float *rstd, void *x)
{
    struct norm norm = unit_norm(model, layer, role);
    struct residual_sum nothing = {0};
    return norm_forward_sum(
            model, &norm, out, mean, rstd, x, &nothing, pass->N);
}

/* Recompute what the MLP's backward reads. */
static enum zd_status recompute_mlp(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    if (acts->recompute & PART_NORM2)
        ZD_TRY(recompute_norm(
                model, pass, layer, ROLE_NORM2, acts->norm2, acts->mean2,
                acts->rstd2, acts->x2));
    return acts->recompute & PART_ACT
                   ? model->config->family->recompute_act(model, pass, acts)
                   : ZD_OK;
}

/* Recompute what attention's backward reads, and that of the projections before
 * it. */
static enum zd_status recompute_attention(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    if (acts->recompute & PART_NORM1)
        ZD_TRY(recompute_norm(
                model, pass, layer, ROLE_NORM1, acts->norm1, acts->mean1,
                acts->rstd1, acts->x));
    return acts->recompute & PART_HEADS
                   ? model->config->family->recompute_heads(
                             model, pass, layer, acts)
                   : ZD_OK;
}

enum zd_status layer_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct model_config *c = model->config;
    const struct layer_grads *g = &pass->acts->grads;
    void *dx = pass->acts->dx;
    int N = pass->N;
    struct attention_shape shape = attention_shape(model, pass);
    struct norm norm1 = unit_norm(model, layer, ROLE_NORM1);
    struct norm norm2 = unit_norm(model, layer, ROLE_NORM2);
    struct linear o = layer_linear(
            model, pass, layer, acts, ROLE_O, c->heads * c->head_dim,
            c->hidden_size);
    /* The residual stream passes dx on; each branch adds its part through the
     * backward of its norm. */
    ZD_TRY(recompute_mlp(model, pass, layer, acts));
    ZD_TRY(c->family->mlp_backward(model, pass, layer, acts, accumulate));
    ZD_TRY(norm_backward(
            model, &norm2, dx, g->hidden, dx, acts->x2, acts->mean2,
            acts->rstd2, N, accumulate));
    ZD_TRY(linear_backward(model, &o, g->hidden, dx, acts->att, N, accumulate));
    ZD_TRY(recompute_attention(model, pass, layer, acts));
    ZD_TRY(model->kernels->attention_backward(
            NULL, g->q, g->k, g->v, g->hidden, acts->att, acts->lse, acts->q,
            acts->k, acts->v, pass->doc_start, g->scratch, &shape));
    ZD_TRY(c->family->qkv_backward(model, pass, layer, acts, accumulate));
    if (!layer_needs_input_grad(model, pass, layer))
        return ZD_OK;
    return norm_backward(
            model, &norm1, dx, g->hidden, dx, acts->x, acts->mean1, acts->rstd1,
            N, accumulate);
}
