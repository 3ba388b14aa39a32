/* context.c - context parallelism: exchanges what attention needs of other
 * places' tokens. B samples, each in 2 cp pieces of P tokens; N tokens on a
 * place.
 *
 * Keys and values of all tokens:
 *
 *   kv_share   (B, 2, P, k | v)       pieces i and 2 cp - 1 - i
 *   kv_all     (B, 2, cp, P, k | v)   of all places, by token
 *   dkv_all    likewise               gradients, summed over places
 *
 * A gather returns second pieces in reverse order of tokens, so they are
 * reversed.
 *
 * Or whole samples and a share of the heads (cp.by_heads), q / cp | k / cp |
 * v / cp:
 *
 *   own        (N, q | k | v)         as in the layer
 *   sent       (cp, N, share)         each place's heads
 *   received   (cp, B, 2, P, share)   pieces i, 2 cp - 1 - i of place i
 *   heads      (B, 2 cp P, share)     all tokens in order
 *
 * Attention's output (forward) and the gradients of q, k and v (backward)
 * return the same way.
 *
 * Source: all-gather of keys and values as in Llama 3, arXiv:2407.21783,
 *         section 3.3.2; heads: DeepSpeed Ulysses, Jacobs et al. 2023,
 *         arXiv:2309.14509, section 3. */
#include "base/device/device_memory.h"
#include "model/internal.h"

/* An array of the place's tokens. */
struct columns {
    char *array;
    size_t row;   /* bytes between tokens */
    size_t share; /* bytes of the heads in a part */
};

/* A copy between arrays of the layer and parts, (parts, N, share). */
struct exchange {
    struct columns columns[3];
    int count;
    size_t parts;
    size_t share; /* bytes of a token over all columns */
};

static size_t element_of(const struct layer_run *run)
{
    return dtype_bytes(run->model->kernels->dtype);
}

static size_t place_count(const struct layer_run *run)
{
    return (size_t)cp_size(&run->model->shape);
}

/* Bytes of `heads` heads of a token. */
static size_t head_bytes(const struct layer_run *run, int heads)
{
    size_t D = (size_t)run->model->config->head_dim;
    return (size_t)heads * D * element_of(run);
}

static void add_columns(
        const struct layer_run *run, void *array, int64_t stride, int heads,
        struct exchange *e)
{
    struct columns *c = &e->columns[e->count++];
    c->array = array;
    c->row = (size_t)stride * element_of(run);
    c->share = head_bytes(run, heads) / e->parts;
    e->share += c->share;
}

static enum zd_status move_shares(
        const struct layer_run *run, const struct exchange *e, char *parts,
        bool back)
{
    size_t N = (size_t)run->pass->N, at = 0;
    for (int i = 0; i < e->count; at += e->columns[i++].share) {
        const struct columns *c = &e->columns[i];
        struct device_rows out = {e->share, c->row, c->share, N};
        struct device_rows in = {c->row, e->share, c->share, N};
        for (size_t place = 0; place < e->parts; place++) {
            char *own = c->array + place * c->share;
            char *part = parts + place * N * e->share + at;
            ZD_TRY(back ? device_move_rows(own, part, &in)
                        : device_move_rows(part, own, &out));
        }
    }
    return ZD_OK;
}

/* --- keys and values ------------------------------------------------------ */

void *kv_from(const struct layer_run *run, void *heads)
{
    int first = run->model->config->first_kv;
    return heads ? (char *)heads + head_bytes(run, first) : NULL;
}

static struct exchange exchange_kv(
        const struct layer_run *run, const struct qkv *qkv)
{
    const struct row_strides *s = &run->model->strides;
    struct exchange e = {.parts = 1};
    int heads = kv_heads_used(run->model->config);
    add_columns(run, kv_from(run, qkv->k), s->k, heads, &e);
    add_columns(run, kv_from(run, qkv->v), s->v, heads, &e);
    return e;
}

/* Reorders the second pieces of all samples from the order of places to that of
 * tokens, or back. `spare`: scratch for a piece. */
static enum zd_status turn_seconds(
        const struct layer_run *run, size_t piece, char *all, char *spare)
{
    size_t cp = place_count(run);
    for (size_t b = 0; b < (size_t)run->pass->B; b++) {
        char *second = all + (2 * b + 1) * cp * piece;
        for (size_t i = 0; i < cp / 2; i++) {
            char *from = second + i * piece;
            char *to = second + (cp - 1 - i) * piece;
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
    const struct gathered *m = &run->model->gathered;
    const struct qkv *own = &run->acts->qkv, *g = &run->pass->acts->grads.qkv;
    struct exchange e = exchange_kv(run, own);
    size_t kv = e.columns[0].share;
    size_t piece = (size_t)run->pass->queries.rows / 2 * e.share;
    *keys_out = (struct attention_keys){
            e.columns[0].array, e.columns[1].array, kv_from(run, g->k),
            kv_from(run, g->v)};
    if (!piece)
        return ZD_OK;
    *keys_out = (struct attention_keys){
            m->kv_all, m->kv_all + kv, m->dkv_all, m->dkv_all + kv};
    shape->k_stride = shape->v_stride = (int64_t)(e.share / element_of(run));
    if (held)
        return ZD_OK;
    ZD_TRY(move_shares(run, &e, m->kv_share, false));
    for (size_t i = 0; i < 2 * (size_t)run->pass->B; i++)
        ZD_TRY(places_call(
                run->model, PLACES_KV_GATHER,
                m->kv_all + i * place_count(run) * piece,
                m->kv_share + i * piece, piece / element_of(run)));
    return turn_seconds(run, piece, m->kv_all, m->kv_share);
}

enum zd_status keys_scatter(const struct layer_run *run)
{
    const struct gathered *m = &run->model->gathered;
    struct exchange e = exchange_kv(run, &run->pass->acts->grads.qkv);
    size_t piece = (size_t)run->pass->queries.rows / 2 * e.share;
    if (!piece)
        return ZD_OK;
    ZD_TRY(turn_seconds(run, piece, m->dkv_all, m->kv_share));
    for (size_t i = 0; i < 2 * (size_t)run->pass->B; i++)
        ZD_TRY(places_call(
                run->model, PLACES_KV_SCATTER, m->kv_share + i * piece,
                m->dkv_all + i * place_count(run) * piece,
                piece / element_of(run)));
    return move_shares(run, &e, m->kv_share, true);
}

/* --- heads ---------------------------------------------------------------- */

static struct exchange exchange_qkv(
        const struct layer_run *run, const struct qkv *qkv)
{
    const struct model_config *c = run->model->config;
    const struct row_strides *s = &run->model->strides;
    struct exchange e = {.parts = place_count(run)};
    add_columns(run, qkv->q, s->q, c->heads, &e);
    add_columns(run, qkv->k, s->k, c->kv_heads, &e);
    add_columns(run, qkv->v, s->v, c->kv_heads, &e);
    return e;
}

/* The exchange of attention's output, or its gradient. */
static struct exchange exchange_out(const struct layer_run *run, void *out)
{
    const struct model_config *c = run->model->config;
    struct exchange e = {.parts = place_count(run)};
    add_columns(run, out, (int64_t)c->heads * c->head_dim, c->heads, &e);
    return e;
}

/* Copies between the order of places and that of tokens. */
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
    char *const *parts = run->model->gathered.exchanged;
    return places_call(
            run->model, PLACES_HEADS, parts[1], parts[0],
            (size_t)run->pass->N * share / element_of(run));
}

static enum zd_status to_heads(
        const struct layer_run *run, struct exchange e, char *heads)
{
    char *const *parts = run->model->gathered.exchanged;
    ZD_TRY(move_shares(run, &e, parts[0], false));
    ZD_TRY(send(run, e.share));
    return turn_pieces(run, e.share, parts[1], heads, false);
}

static enum zd_status from_heads(
        const struct layer_run *run, struct exchange e, char *heads)
{
    char *const *parts = run->model->gathered.exchanged;
    ZD_TRY(turn_pieces(run, e.share, parts[0], heads, true));
    ZD_TRY(send(run, e.share));
    return move_shares(run, &e, parts[1], true);
}

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
    struct exchange qkv = exchange_qkv(run, &acts->qkv);
    struct attention_keys keys = split(&qkv, acts->heads, acts->heads);
    activations_share_heads(shape, (int)place_count(run));
    ZD_TRY(to_heads(run, qkv, acts->heads));
    ZD_TRY(run->model->kernels->attention_forward(
            NULL, &(struct attention){
                          shape, acts->heads, keys.k, keys.v,
                          run->pass->attention_start, scratch, acts->heads_att,
                          acts->lse}));
    return from_heads(run, exchange_out(run, acts->att), acts->heads_att);
}

/* The gradient of the output is dead when those of q, k and v are sent. */
enum zd_status heads_backward(
        const struct layer_run *run, struct attention_shape *shape)
{
    const struct layer_acts *acts = run->acts;
    const struct layer_grads *g = &run->pass->acts->grads;
    char *const *parts = run->model->gathered.exchanged;
    char *dout = parts[0], *dheads = parts[1];
    struct exchange qkv = exchange_qkv(run, &g->qkv);
    struct attention_keys keys = split(&qkv, acts->heads, dheads);
    activations_share_heads(shape, (int)place_count(run));
    if (acts->recompute & PART_OUTPUT)
        ZD_TRY(to_heads(run, exchange_out(run, acts->att), acts->heads_att));
    ZD_TRY(to_heads(run, exchange_out(run, g->hidden), dout));
    ZD_TRY(run->model->kernels->attention_backward(
            NULL,
            &(struct attention){
                    shape, acts->heads, keys.k, keys.v,
                    run->pass->attention_start, g->scratch, acts->heads_att,
                    acts->lse, dout, dheads, keys.dk, keys.dv}));
    return from_heads(run, qkv, dheads);
}
