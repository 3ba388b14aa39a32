/* attention_backward_cpu.c - the gradients of attention_cpu.c. p is recomputed
 * from lse. A task owns all that it sums, a key/value head of a sample. */
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_block.h"
#include "kernels/attention/attention_cpu.h"

attention_backward_fn FAST(attention_backward);

/* What a task works on: whole columns of a head for the sample's tokens, and
 * one block of scores. */
struct backward {
    const struct attention_shape *s;
    struct attention_queries all;
    int width, rows, key_rows;       /* of the padded arrays */
    int queries, keys;               /* of a block of scores */
    float *dq;                       /* (rows, width) */
    float *dk, *dv;                  /* (key_rows, width), see block_collect */
    float *q, *dout;                 /* take_queries */
    float *q_columns, *dout_columns; /* (rows / PAIR, width), see take_both */
    float *delta;                    /* (rows) sum_d dout out */
    float *k, *v;                    /* panels of the block's keys */
    float *k_columns;                /* (keys / PAIR, width) */
    float *p, *ds;                   /* words (queries / PAIR, keys) */
    float *ds_rows;                  /* words of a tile (MR, keys / PAIR) */
};

/* Returns how many floats it lays out. */
static size_t backward_layout(
        struct backward *w, const struct attention_shape *s, float *memory)
{
    size_t used = 0;
    *w = (struct backward){
            .s = s,
            .all = attention_queries(s),
            .width = padded(s->D),
            .key_rows = rounded_up(s->T, MR),
            .keys = block_keys(s->T)};
    w->rows = rounded_up(w->all.rows, MR);
    w->queries = block_queries(w->all.rows);
    size_t width = (size_t)w->width, keys = (size_t)w->keys;
    size_t whole = (size_t)w->rows * width, columns = whole / PAIR;
    size_t panels = (size_t)w->rows * (size_t)words(s->D);
    size_t key_panels = keys * (size_t)words(s->D);
    size_t block = (size_t)w->queries * keys / PAIR;
    w->dq = take(memory, &used, whole);
    w->dk = take(memory, &used, (size_t)w->key_rows * width);
    w->dv = take(memory, &used, (size_t)w->key_rows * width);
    w->q = take(memory, &used, panels);
    w->dout = take(memory, &used, panels);
    w->q_columns = take(memory, &used, columns);
    w->dout_columns = take(memory, &used, columns);
    w->k = take(memory, &used, key_panels);
    w->v = take(memory, &used, key_panels);
    w->k_columns = take(memory, &used, keys * width / PAIR);
    w->p = take(memory, &used, block);
    w->ds = take(memory, &used, block);
    w->ds_rows = take(memory, &used, PAIR == 1 ? 0 : MR * keys / PAIR);
    w->delta = take(memory, &used, (size_t)w->rows);
    return used + SPARE;
}

/* Queries of a block's tile, and what is known of each. */
struct gradient_tile {
    struct seen seen;
    float lse[MR], delta[MR]; /* 0 where a row sees nothing */
    const float *q, *dout;
};

static struct gradient_tile gradient_tile(
        const struct backward *w, const float *lse, const struct block *b,
        int i)
{
    int64_t at = (int64_t)(b->q0 + i) * words(w->s->D);
    struct gradient_tile t = {
            .seen = tile_seen(b, i), .q = w->q + at, .dout = w->dout + at};
    for (int r = 0; r < MR; r++)
        if (t.seen.low[r] < t.seen.high[r]) {
            t.lse[r] = lse[b->q0 + i + r];
            t.delta[r] = w->delta[b->q0 + i + r];
        }
    return t;
}

/* What ds is multiplied with where scores are capped: 1 - tanh^2, or 0 where
 * they are hidden. */
static void tile_slopes(
        vf slopes[MR][NV], const vf scores[MR][NV],
        const struct attention_shape *s)
{
    for (int r = 0; r < MR; r++)
        for (int n = 0; n < NV; n++) {
            vf x = scores[r][n] * (s->scale / s->softcap);
            x = vf_max(vf_all(-1.0f), x);
            slopes[r][n] = 1.0f - x * x;
        }
}

/* p = e^(scale score - lse) and ds = p (dp - delta) of a tile from row i and
 * key j on, as words. */
static void tile_gradient(
        const struct backward *w, const struct gradient_tile *t, int i, int j)
{
    const struct attention_shape *s = w->s;
    const bool is_capped = s->softcap > 0;
    int64_t at = (int64_t)(i / PAIR) * w->keys + j;
    vf p[MR][NV], v[MR][NV], slopes[MR][NV];
    tile_scores(v, t->q, w->k + j * words(s->D), s->D);
    if (is_capped)
        tile_cap(v, s);
    tile_hide(v, &t->seen, j);
    if (is_capped)
        tile_slopes(slopes, v, s);
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
        for (int n = 0; n < NV; n++)
            p[r][n] = vf_exp_scaled(v[r][n], s->scale, t->lse[r]);
    store_columns(w->p + at, w->keys, p);
    tile_scores(v, t->dout, w->v + j * words(s->D), s->D);
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
        for (int n = 0; n < NV; n++)
            v[r][n] = p[r][n] * (v[r][n] - t->delta[r]);
    for (int r = 0; is_capped && r < MR; r++)
        for (int n = 0; n < NV; n++)
            v[r][n] *= slopes[r][n];
    store_columns(w->ds + at, w->keys, v);
    for (int r = 0; PAIR > 1 && r < MR; r++)
        store_row(w->ds_rows + (r * w->keys + j) / PAIR, v[r]);
}

/* Sums read at most MR - 1 keys beyond those that tiles have made, and none
 * where MR is NR. */
static void clear_beyond(const struct backward *w, int i, int j)
{
    for (int r = 0; MR != NR && j < w->keys && r < MR / PAIR; r++) {
        int64_t at = (int64_t)(i / PAIR + r) * w->keys + j;
        memset(w->p + at, 0, NR * sizeof *w->p);
        memset(w->ds + at, 0, NR * sizeof *w->ds);
    }
}

/* out_j += sum_i p(i, j) a_i, with words of p along i: tile j starts at the
 * first query that sees it. With AMX the transposed sums are made, out^T += a^T
 * p, because p lies as `b` must: out is (width, NR) for every NR keys, and
 * take_both has transposed a. */
static void block_collect(
        const struct backward *w, float *out, const float *p, const float *a,
        const struct block *b)
{
    for (int j = 0; j < b->k1 - b->k0; j += MR) {
        int row = attention_row(b->queries, b->k0 + j) - b->q0;
        int from = (row > b->first ? row : b->first) / MR * (MR / PAIR);
        int count = b->last / PAIR - from;
        if (count <= 0 || row >= b->q1 - b->q0)
            break;
        float *to = out + (int64_t)j * w->width;
        const float *a_from = a + (int64_t)from * w->width;
        const float *p_from = p + (int64_t)from * w->keys + j;
        for (int c = 0; c < w->width; c += NR)
            if (IN_AMX)
                tile_add(
                        to + c * NR, NR, a_from + c * VL, VL, VL * w->width,
                        p_from, w->keys, count);
            else
                tile_add(
                        to + c, w->width, p_from, 1, w->keys, a_from + c,
                        w->width, count);
    }
}

static void backward_block(
        const struct backward *w, const float *lse, const struct block *b)
{
    int64_t half = (int64_t)b->q0 * w->width / PAIR;
    int64_t key = (int64_t)b->k0 * w->width;
    for (int i = b->first; i < b->last; i += MR) {
        struct gradient_tile t = gradient_tile(w, lse, b, i);
        int j = 0;
        for (; j < t.seen.limit; j += NR)
            tile_gradient(w, &t, i, j);
        clear_beyond(w, i, j);
        tile_combine(
                w->dq + (int64_t)(b->q0 + i) * w->width, w->width,
                PAIR == 1 ? w->ds + i * w->keys : w->ds_rows, w->keys / PAIR,
                STEP, w->k_columns, t.seen.limit);
    }
    block_collect(w, w->dv + key, w->p, w->dout_columns + half, b);
    block_collect(w, w->dk + key, w->ds, w->q_columns + half, b);
}

static void backward_keys(
        const struct backward *w, const float *lse, const elem *k,
        const elem *v, const int32_t *doc_start, int k0)
{
    const struct attention_shape *s = w->s;
    int Q = w->all.rows, k1 = k0 + w->keys < s->T ? k0 + w->keys : s->T;
    k += k0 * s->k_stride;
    v += k0 * s->v_stride;
    take_panels(w->k, NR, k, s->k_stride, k1 - k0, s->D);
    take_panels(w->v, NR, v, s->v_stride, k1 - k0, s->D);
    take_columns(
            w->k_columns, w->width, k, s->k_stride, k1 - k0, w->keys, s->D);
    for (int q0 = attention_row(w->all, k0) / w->queries * w->queries; q0 < Q;
         q0 += w->queries) {
        struct block b = {
                .shape = s,
                .queries = w->all,
                .q0 = q0,
                .q1 = q0 + w->queries < Q ? q0 + w->queries : Q,
                .k0 = k0,
                .k1 = k1,
                .doc_start = doc_start};
        if (first_seen(&b, q0) >= k1)
            break;
        if (block_rows(&b))
            backward_block(w, lse, &b);
    }
}

/* delta = sum_d dout out, for every query of a head. */
static void backward_delta(
        const struct backward *w, const elem *dout, const elem *out,
        int64_t out_row)
{
    for (int r = 0; r < w->all.rows; r++) {
        vf sum = {0};
        for (int c = 0; c < w->s->D; c += VL)
            sum += load_some(dout + r * out_row + c, w->s->D - c) *
                   load_some(out + r * out_row + c, w->s->D - c);
        w->delta[r] = vf_sum(sum);
    }
}

/* Both forms of a head's rows. */
static void take_both(
        const struct backward *w, float *queries, float *columns,
        const elem *in, int64_t in_row)
{
    int D = w->s->D, Q = w->all.rows;
    take_queries(queries, in, in_row, Q, D);
#if IN_AMX
    take_turned(columns, w->width, in, in_row, Q, w->rows, D);
#else
    take_columns(columns, w->width, in, in_row, Q, w->rows, D);
#endif
}

static void narrow_rows(
        elem *out, int64_t out_row, const float *in, int width, int rows, int D,
        float scale)
{
    for (int t = 0; t < rows; t++)
        for (int c = 0; c < D; c += VL)
            store_some(
                    out + t * out_row + c,
                    vf_load(in + (int64_t)t * width + c) * scale, D - c);
}

/* narrow_rows of what block_collect has summed. */
static void narrow_keys(
        elem *out, int64_t out_row, const float *in, int width, int rows, int D,
        float scale)
{
#if IN_AMX
    for (int t = 0; t < rows; t += VL)
        for (int c = 0; c < D; c += VL) {
            const float *from = in + t / NR * NR * (int64_t)width;
            vf r[VL];
            for (int i = 0; i < VL; i++)
                r[i] = vf_load(from + (c + i) * NR + t % NR);
            transpose_16(r);
            for (int i = 0; i < VL && t + i < rows; i++)
                store_some(out + (t + i) * out_row + c, r[i] * scale, D - c);
        }
#else
    narrow_rows(out, out_row, in, width, rows, D, scale);
#endif
}

static int backward_threads(const struct attention_shape *s)
{
    return task_threads(s, s->B * s->KV);
}

static size_t task_floats(const struct attention_shape *s)
{
    struct backward w;
    return backward_layout(&w, s, NULL);
}

size_t FAST(attention_backward_floats)(const struct attention_shape *s)
{
    return task_floats(s) * (size_t)backward_threads(s);
}

/* The heads that share key/value head kv of sample `sample`. */
static void backward_task(
        const struct attention *a, int sample, int kv, float *memory)
{
    const struct attention_shape *s = a->shape;
    struct backward w;
    backward_layout(&w, s, memory);
    int D = s->D, T = s->T, Q = w.all.rows, group = s->H / s->KV;
    size_t whole = (size_t)w.rows * (size_t)w.width * sizeof(float);
    size_t keys = (size_t)w.key_rows * (size_t)w.width * sizeof(float);
    int64_t token = (int64_t)sample * T, query = (int64_t)sample * Q;
    int64_t row = (int64_t)s->H * D;
    int64_t at_k = token * s->k_stride + (int64_t)kv * D;
    int64_t at_v = token * s->v_stride + (int64_t)kv * D;
    task_begin();
    memset(w.dk, 0, keys);
    memset(w.dv, 0, keys);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        int64_t at_q = query * s->q_stride + (int64_t)h * D;
        const elem *dout = (const elem *)a->dout + query * row + (int64_t)h * D;
        const elem *out = (const elem *)a->out + query * row + (int64_t)h * D;
        take_both(&w, w.q, w.q_columns, (const elem *)a->q + at_q, s->q_stride);
        take_both(&w, w.dout, w.dout_columns, dout, row);
        backward_delta(&w, dout, out, row);
        memset(w.dq, 0, whole);
        for (int k0 = 0; k0 < T; k0 += w.keys)
            backward_keys(
                    &w, a->lse + (query * s->H + (int64_t)h * Q),
                    (const elem *)a->k + at_k, (const elem *)a->v + at_v,
                    a->doc_start + query, k0);
        narrow_rows(
                (elem *)a->dq + at_q, s->q_stride, w.dq, w.width, Q, D,
                s->scale);
    }
    task_end();
    narrow_keys(
            (elem *)a->dk + at_k, s->k_stride, w.dk, w.width, T, D, s->scale);
    narrow_keys((elem *)a->dv + at_v, s->v_stride, w.dv, w.width, T, D, 1.0f);
}

enum zd_status FAST(attention_backward)(
        struct stream *stream, const struct attention *a)
{
    const struct attention_shape *s = a->shape;
    size_t floats = task_floats(s);
#pragma omp parallel for num_threads(backward_threads(s)) collapse(2)          \
        schedule(dynamic)
    for (int b = 0; b < s->B; b++)
        for (int kv = 0; kv < s->KV; kv++)
            backward_task(a, b, kv, task_memory(a, floats));
    return ZD_OK;
}
