/* attention_cpu.c - attention as small matmuls on one thread each, by
 * blocks of queries and keys (attention_block.h).
 *
 * Forward keeps a running maximum and sum for each row (Milakov, Gimelshein
 * 2018, arXiv:1805.02867). A task owns all that it sums, a block of queries, so
 * the order does not depend on threads. Operands are widened to fp32, or stay
 * bf16 where the CPU multiplies that (gemm_tile.h: words): this file is
 * compiled twice more, for pairs of bf16 and for tiles of them (AMX). */
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_block.h"

attention_forward_fn FAST(attention_forward);

/* Scores lie row by row, with AMX tile by tile. The distance from NR scores of
 * a row to the next NR, and of the words that take their place: */
enum {
    NEXT_SCORES = IN_AMX ? MR * NR : NR,
    NEXT_WORDS = IN_AMX ? MR * NR : NR / PAIR
};

/* Turns a row of scores into the words of e^(scale score - top), updates the
 * row's running maximum and sum, and rescales what the row has collected so
 * far. It has NR scores in each of `tiles` tiles. */
ALWAYS_INLINE void softmax_row(
        float *row, int tiles, float scale, float *top, float *sum, float *out,
        int width)
{
    vf most = vf_all(-INFINITY), total = {0};
    for (int j = 0; j < tiles; j++)
        for (int n = 0; n < NR; n += VL)
            most = vf_max(vf_load(row + j * NEXT_SCORES + n), most);
    float row_top = vf_top(most) * scale;
    float new_top = row_top > *top ? row_top : *top;
    for (int j = 0; j < tiles; j++) {
        vf p[NV];
        for (int n = 0; n < NV; n++) {
            p[n] = vf_exp_scaled(
                    vf_load(row + j * NEXT_SCORES + n * VL), scale, new_top);
            total += p[n];
        }
        store_row(row + j * NEXT_WORDS, p);
    }
    if (new_top != *top) { /* the first time e^-inf clears nothing: out is 0 */
        float less = vf_exp(vf_all(*top - new_top))[0];
        for (int c = 0; c < width; c += VL)
            vf_store(out + c, vf_load(out + c) * less);
        *sum *= less;
        *top = new_top;
    }
    *sum += vf_sum(total);
}

/* What a task works on. */
struct forward {
    int width, keys;
    float *q;         /* take_queries */
    float *out;       /* (queries, width) */
    float *k, *v;     /* panels, columns of the block's keys */
    float *scores;    /* (MR, keys) in some order, then their words */
    float *top, *sum; /* (queries) */
};

/* Queries of a task: all of a head, so that its keys are packed once, where
 * heads are enough for the threads. */
static int task_queries(const struct attention_shape *s)
{
    int rows = attention_queries(s).rows;
    return s->B * s->H < 4 * kernels_threads() ? block_queries(rows)
                                               : rounded_up(rows, MR);
}

/* Returns how many floats it lays out. */
static size_t forward_layout(
        struct forward *w, const struct attention_shape *s, float *memory)
{
    size_t used = 0, queries = (size_t)task_queries(s);
    *w = (struct forward){.width = padded(s->D), .keys = block_keys(s->T)};
    size_t width = (size_t)w->width, keys = (size_t)w->keys;
    w->out = take(memory, &used, queries * width);
    w->q = take(memory, &used, queries * (size_t)words(s->D));
    w->k = take(memory, &used, keys * (size_t)words(s->D));
    w->v = take(memory, &used, keys * width / PAIR);
    w->scores = take(memory, &used, MR * keys);
    w->top = take(memory, &used, queries);
    w->sum = take(memory, &used, queries);
    return used + SPARE;
}

static size_t forward_floats(const struct attention_shape *s)
{
    struct forward w;
    return forward_layout(&w, s, NULL);
}

/* The queries of a tile from row i of the block on. */
static void forward_tile(const struct forward *w, const struct block *b, int i)
{
    struct seen seen = tile_seen(b, i);
    int tiles = rounded_up(seen.limit, NR) / NR, D = b->shape->D;
    int in_row = IN_AMX ? NR : w->keys;
    float *out = w->out + (int64_t)i * w->width;
    for (int j = 0; j < tiles; j++) {
        float *to = w->scores + j * NEXT_SCORES;
        vf registers[MR][NV], (*scores)[NV] = IN_AMX ? (void *)to : registers;
        tile_scores(scores, w->q + i * words(D), w->k + j * NR * words(D), D);
        if (b->shape->softcap > 0)
            tile_cap(scores, b->shape);
        tile_hide(scores, &seen, j * NR);
        for (int r = 0; r < MR && !IN_AMX; r++)
            for (int n = 0; n < NV; n++)
                vf_store(to + r * in_row + n * VL, scores[r][n]);
    }
    for (int r = 0; r < MR; r++) {
        float *row = w->scores + r * in_row;
        if (seen.low[r] < seen.high[r])
            softmax_row(
                    row, tiles, b->shape->scale, &w->top[i + r], &w->sum[i + r],
                    out + r * w->width, w->width);
        for (int j = 0; j < tiles && seen.low[r] == seen.high[r]; j++)
            memset(row + j * NEXT_WORDS, 0, NR / PAIR * sizeof *row);
    }
    tile_combine(
            out, w->width, w->scores, in_row, IN_AMX ? NEXT_WORDS : STEP, w->v,
            seen.limit);
}

/* Rows q0 .. q1 of the queries of head h of sample `sample`. */
static void forward_task(
        const struct attention *a, int sample, int h, int q0, int q1,
        float *memory)
{
    struct forward w;
    const struct attention_shape *s = a->shape;
    struct attention_queries queries = attention_queries(s);
    int64_t row = (int64_t)sample * queries.rows, key = (int64_t)sample * s->T;
    struct block b = {
            .shape = s,
            .queries = queries,
            .q0 = q0,
            .q1 = q1,
            .doc_start = a->doc_start + row};
    int D = s->D, kv = h / (s->H / s->KV) * D, rows = q1 - q0;
    int tile_rows = rounded_up(rows, MR);
    const elem *q = (const elem *)a->q + (row + q0) * s->q_stride + h * D;
    const elem *k = (const elem *)a->k + key * s->k_stride + kv;
    const elem *v = (const elem *)a->v + key * s->v_stride + kv;
    float *lse = a->lse + (row * s->H + (int64_t)h * queries.rows) + q0;
    forward_layout(&w, s, memory);
    task_begin();
    take_queries(w.q, q, s->q_stride, rows, D);
    memset(w.out, 0, (size_t)tile_rows * (size_t)w.width * sizeof *w.out);
    for (int i = 0; i < tile_rows; i++) {
        w.top[i] = -INFINITY;
        w.sum[i] = 0.0f;
    }
    int last = attention_token(b.queries, q1 - 1);
    for (b.k0 = first_seen(&b, q0) / w.keys * w.keys; b.k0 <= last;
         b.k0 += w.keys) {
        b.k1 = b.k0 + w.keys < s->T ? b.k0 + w.keys : s->T;
        if (!block_rows(&b))
            continue;
        int keys = b.k1 - b.k0;
        take_panels(w.k, NR, k + b.k0 * s->k_stride, s->k_stride, keys, D);
        take_columns(
                w.v, w.width, v + b.k0 * s->v_stride, s->v_stride, keys,
                rounded_up(keys, NR), D);
        for (int i = b.first; i < b.last; i += MR)
            forward_tile(&w, &b, i);
    }
    task_end();
    for (int i = 0; i < rows; i++) {
        elem *o = (elem *)a->out + ((row + q0 + i) * s->H + h) * D;
        for (int c = 0; c < D; c += VL)
            store_some(
                    o + c, vf_load(w.out + (int64_t)i * w.width + c) / w.sum[i],
                    D - c);
        lse[i] = w.top[i] + logf(w.sum[i]);
    }
}

static int forward_blocks(const struct attention_shape *s)
{
    int queries = task_queries(s);
    return (attention_queries(s).rows + queries - 1) / queries;
}

static int forward_threads(const struct attention_shape *s)
{
    return task_threads(s, s->B * s->H * forward_blocks(s));
}

enum zd_status FAST(attention_forward)(
        struct stream *stream, const struct attention *a)
{
    const struct attention_shape *s = a->shape;
    int blocks = forward_blocks(s), queries = task_queries(s);
    int Q = attention_queries(s).rows;
    size_t floats = forward_floats(s);
#pragma omp parallel for num_threads(forward_threads(s)) collapse(3)           \
        schedule(dynamic)
    for (int b = 0; b < s->B; b++)
        for (int h = 0; h < s->H; h++)
            for (int i = blocks - 1; i >= 0; i--) /* the longest first */
                forward_task(
                        a, b, h, i * queries,
                        (i + 1) * queries < Q ? (i + 1) * queries : Q,
                        task_memory(a, floats));
    return ZD_OK;
}

size_t FAST(attention_floats)(const struct attention_shape *s)
{
    size_t forward = forward_floats(s) * (size_t)forward_threads(s);
    size_t backward = FAST(attention_backward_floats)(s);
    return forward > backward ? forward : backward;
}
