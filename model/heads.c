/* heads.c - attention over whole samples and a share of the heads, with context
 * parallelism (cp.by_heads). Of B samples, each in 2 cp pieces of P tokens, N
 * tokens on a place:
 *
 *   own        (N, q | k | v)               as the layer has them
 *   sent       (cp, N, share)               to each place its heads
 *   received   (cp, B, 2, P, share)         pieces i, 2 cp - 1 - i of place i
 *   heads      (B, 2 cp P, share)           of all tokens, in their order
 *
 * A share is q / cp | k / cp | v / cp. What attention makes of it goes the same
 * way back: as its output forward, as gradients of q, k and v backward.
 *
 * Source: DeepSpeed Ulysses, Jacobs et al. 2023, arXiv:2309.14509, section 3.
 */
#include "base/device/device_memory.h"
#include "model/internal.h"

/* An array of the place's tokens, of all heads. */
struct columns {
    char *array;
    size_t row;   /* bytes between tokens */
    size_t share; /* .. of a place's heads */
};

struct exchange {
    struct columns columns[3];
    int count;
    size_t share; /* bytes of a token, of all columns */
};

static size_t place_count(const struct layer_run *run)
{
    return (size_t)cp_size(&run->model->shape);
}

static struct columns columns_of(
        const struct layer_run *run, void *array, int64_t stride, int heads)
{
    size_t element = dtype_bytes(run->model->kernels->dtype);
    size_t bytes =
            (size_t)heads * (size_t)run->model->config->head_dim * element;
    return (struct columns){
            array, (size_t)stride * element, bytes / place_count(run)};
}

static struct exchange exchange_qkv(
        const struct layer_run *run, void *q, void *k, void *v)
{
    const struct model_config *c = run->model->config;
    const struct row_strides *strides = &run->model->strides;
    struct exchange e = {.count = 3};
    e.columns[0] = columns_of(run, q, strides->q, c->heads);
    e.columns[1] = columns_of(run, k, strides->k, c->kv_heads);
    e.columns[2] = columns_of(run, v, strides->v, c->kv_heads);
    e.share = e.columns[0].share + 2 * e.columns[1].share;
    return e;
}

/* What attention makes, or its gradient. */
static struct exchange exchange_out(const struct layer_run *run, void *out)
{
    const struct model_config *c = run->model->config;
    int64_t stride = (int64_t)c->heads * c->head_dim;
    struct exchange e = {.count = 1};
    e.columns[0] = columns_of(run, out, stride, c->heads);
    e.share = e.columns[0].share;
    return e;
}

/* Between the layer's arrays and parts for, or of, each place. */
static enum zd_status move_shares(
        const struct layer_run *run, const struct exchange *e, char *parts,
        bool back)
{
    size_t N = (size_t)run->pass->N, at = 0;
    for (int i = 0; i < e->count; at += e->columns[i++].share) {
        const struct columns *c = &e->columns[i];
        struct device_rows out = {e->share, c->row, c->share, N};
        struct device_rows in = {c->row, e->share, c->share, N};
        for (size_t place = 0; place < place_count(run); place++) {
            char *own = c->array + place * c->share;
            char *part = parts + place * N * e->share + at;
            ZD_TRY(back ? device_move_rows(own, part, &in)
                        : device_move_rows(part, own, &out));
        }
    }
    return ZD_OK;
}

/* Between the order of places and that of tokens. */
static enum zd_status turn_pieces(
        const struct layer_run *run, size_t share, char *parts, char *tokens,
        bool back)
{
    size_t piece = (size_t)run->pass->queries.rows / 2 * share;
    size_t places = place_count(run), samples = (size_t)run->pass->B;
    for (size_t place = 0; place < places; place++)
        for (size_t half = 0; half < 2 * samples; half++, parts += piece) {
            size_t number = half % 2 ? 2 * places - 1 - place : place;
            char *at = tokens + (half / 2 * 2 * places + number) * piece;
            ZD_TRY(device_move(back ? parts : at, back ? at : parts, piece));
        }
    return ZD_OK;
}

static enum zd_status send(const struct layer_run *run, size_t share)
{
    const struct model *model = run->model;
    size_t element = dtype_bytes(model->kernels->dtype);
    return run->pass->hooks->heads_exchange(
            run->pass->hooks->places, model->exchanged[1], model->exchanged[0],
            (size_t)run->pass->N * share / element);
}

static enum zd_status to_heads(
        const struct layer_run *run, const struct exchange *e, char *heads)
{
    const struct model *model = run->model;
    ZD_TRY(move_shares(run, e, model->exchanged[0], false));
    ZD_TRY(send(run, e->share));
    return turn_pieces(run, e->share, model->exchanged[1], heads, false);
}

static enum zd_status from_heads(
        const struct layer_run *run, const struct exchange *e, char *heads)
{
    const struct model *model = run->model;
    ZD_TRY(turn_pieces(run, e->share, model->exchanged[0], heads, true));
    ZD_TRY(send(run, e->share));
    return move_shares(run, e, model->exchanged[1], true);
}

/* --- attention ------------------------------------------------------------ */

static struct attention_keys split(
        const struct exchange *e, char *heads, char *grads)
{
    size_t k = e->columns[0].share, v = k + e->columns[1].share;
    return (struct attention_keys){heads + k, heads + v, grads + k, grads + v};
}

enum zd_status heads_forward(
        const struct layer_run *run, struct attention_shape *shape,
        void *scratch)
{
    const struct layer_acts *acts = run->acts;
    struct exchange qkv = exchange_qkv(run, acts->q, acts->k, acts->v);
    struct exchange out = exchange_out(run, acts->att);
    struct attention_keys keys = split(&qkv, acts->heads, acts->heads);
    activations_share_heads(shape, cp_size(&run->model->shape));
    ZD_TRY(to_heads(run, &qkv, acts->heads));
    ZD_TRY(run->model->kernels->attention_forward(
            NULL, acts->heads_att, acts->lse, acts->heads, keys.k, keys.v,
            run->pass->attention_start, scratch, shape));
    return from_heads(run, &out, acts->heads_att);
}

/* The gradient of the output is over when those of q, k and v are sent. */
enum zd_status heads_backward(
        const struct layer_run *run, struct attention_shape *shape)
{
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &run->pass->acts->grads;
    char *dout = run->model->exchanged[0], *dheads = run->model->exchanged[1];
    struct exchange qkv = exchange_qkv(run, g->q, g->k, g->v);
    struct exchange out = exchange_out(run, g->hidden);
    struct attention_keys keys = split(&qkv, acts->heads, dheads);
    activations_share_heads(shape, cp_size(&run->model->shape));
    if (acts->recompute & PART_OUTPUT) {
        struct exchange att = exchange_out(run, acts->att);
        ZD_TRY(to_heads(run, &att, acts->heads_att));
    }
    ZD_TRY(to_heads(run, &out, dout));
    ZD_TRY(run->model->kernels->attention_backward(
            NULL, dheads, keys.dk, keys.dv, dout, acts->heads_att, acts->lse,
            acts->heads, keys.k, keys.v, run->pass->attention_start, g->scratch,
            shape));
    return from_heads(run, &qkv, dheads);
}
