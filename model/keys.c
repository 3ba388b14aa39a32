/* keys.c - what attention reads of keys and values.
 *
 * With context parallelism, of B samples, each in 2 cp pieces of P tokens:
 *
 *   kv_share  (B, 2, P, k | v)      pieces i and 2 cp - 1 - i
 *   kv_all    (B, 2, cp, P, k | v)  of all places, by token
 *   dkv_all   likewise              gradients, summed over places
 *
 * A gather brings second pieces from the last token to the first: they change
 * places.
 *
 * Source: all-gather of keys and values as in Llama 3, arXiv:2407.21783,
 * section 3.3.2. */
#include "base/device/device_memory.h"
#include "model/internal.h"

static size_t element_of(const struct layer_run *run)
{
    return dtype_bytes(run->model->kernels->dtype);
}

/* Of a token's k or v, of the heads that attention reads. */
static size_t kv_bytes(const struct layer_run *run)
{
    const struct model_config *c = run->model->config;
    return (size_t)kv_heads_used(c) * (size_t)c->head_dim * element_of(run);
}

void *kv_from(const struct layer_run *run, void *heads)
{
    const struct model_config *c = run->model->config;
    size_t channels = (size_t)c->first_kv * (size_t)c->head_dim;
    return heads ? (char *)heads + channels * element_of(run) : NULL;
}

static size_t piece_bytes(const struct layer_run *run)
{
    size_t tokens = (size_t)run->pass->queries.rows / 2;
    return tokens * 2 * kv_bytes(run);
}

/* Between an array of the layer and its columns of kv_share. */
static enum zd_status move_heads(
        const struct layer_run *run, void *heads, int64_t stride, bool is_v,
        bool back)
{
    size_t bytes = kv_bytes(run), row = (size_t)stride * element_of(run);
    char *share = run->model->kv_share + (is_v ? bytes : 0);
    struct device_rows in = {2 * bytes, row, bytes, (size_t)run->pass->N};
    struct device_rows out = {row, 2 * bytes, bytes, (size_t)run->pass->N};
    return back ? device_move_rows(kv_from(run, heads), share, &out)
                : device_move_rows(share, kv_from(run, heads), &in);
}

/* The second pieces of all samples from the order of places to that of tokens,
 * or back. `spare` is room for a piece. */
static enum zd_status turn_pieces(
        const struct layer_run *run, char *all, char *spare)
{
    size_t piece = piece_bytes(run);
    int cp = cp_size(&run->model->shape);
    for (int b = 0; b < run->pass->B; b++) {
        char *second = all + (size_t)(2 * b + 1) * (size_t)cp * piece;
        for (int i = 0; i < cp / 2; i++) {
            char *from = second + (size_t)i * piece;
            char *to = second + (size_t)(cp - 1 - i) * piece;
            ZD_TRY(device_move(spare, to, piece));
            ZD_TRY(device_move(to, from, piece));
            ZD_TRY(device_move(from, spare, piece));
        }
    }
    return ZD_OK;
}

enum zd_status keys_gather(
        const struct layer_run *run, bool held, struct attention_shape *shape,
        struct attention_keys *keys_out)
{
    const struct model *model = run->model;
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct model_hooks *hooks = run->pass->hooks;
    size_t kv = kv_bytes(run), piece, all;
    *keys_out = (struct attention_keys){
            kv_from(run, acts->k), kv_from(run, acts->v), kv_from(run, g->k),
            kv_from(run, g->v)};
    if (!run->pass->queries.rows)
        return ZD_OK;
    *keys_out = (struct attention_keys){
            model->kv_all, model->kv_all + kv, model->dkv_all,
            model->dkv_all + kv};
    shape->k_stride = shape->v_stride = 2 * (int64_t)(kv / element_of(run));
    if (held)
        return ZD_OK;
    piece = piece_bytes(run), all = piece * (size_t)model->shape.cp.size;
    ZD_TRY(move_heads(run, acts->k, model->strides.k, false, false));
    ZD_TRY(move_heads(run, acts->v, model->strides.v, true, false));
    for (size_t i = 0; i < 2 * (size_t)run->pass->B; i++)
        ZD_TRY(hooks->kv_gather(
                hooks->places, model->kv_all + i * all,
                model->kv_share + i * piece, piece / element_of(run)));
    return turn_pieces(run, model->kv_all, model->kv_share);
}

enum zd_status keys_scatter(const struct layer_run *run)
{
    const struct model *model = run->model;
    const struct layer_grads *g = &run->pass->acts->grads;
    const struct model_hooks *hooks = run->pass->hooks;
    size_t piece = piece_bytes(run);
    size_t all = piece * (size_t)cp_size(&model->shape);
    if (!run->pass->queries.rows)
        return ZD_OK;
    ZD_TRY(turn_pieces(run, model->dkv_all, model->kv_share));
    for (size_t i = 0; i < 2 * (size_t)run->pass->B; i++)
        ZD_TRY(hooks->kv_scatter(
                hooks->places, model->kv_share + i * piece,
                model->dkv_all + i * all, piece / element_of(run)));
    ZD_TRY(move_heads(run, g->k, model->strides.k, false, true));
    return move_heads(run, g->v, model->strides.v, true, true);
}
