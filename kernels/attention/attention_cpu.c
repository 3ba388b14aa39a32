/* attention_cpu.c - attention as small matmuls on one thread each, by
 * blocks of queries and keys (attention_block.h).
 *
 * Forward keeps a running maximum and sum for each row (Milakov, Gimelshein
 * 2018, arXiv:1805.02867); backward recomputes p from lse. A task owns all that
 * it sums: a block of queries forward, a key/value head backward, so the order
 * does not depend on threads. Operands are widened to fp32, or stay bf16 where
 * the CPU multiplies that (gemm_tile.h: words): this file is compiled once more
 * for such a CPU. */
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_block.h"

attention_forward_fn FAST(attention_forward);
attention_backward_fn FAST(attention_backward);

/* PAIR * VL numbers of a row as words. */
ALWAYS_INLINE vf row_words(const vf v[PAIR])
{
#if defined(__AVX512BF16__) && KERNEL_TYPE == KERNEL_BF16
    return (vf)_mm512_cvtne2ps_pbh(v[1], v[0]);
#else
    return v[0];
#endif
}

/* A word of each column of PAIR rows. */
ALWAYS_INLINE vf column_words(const vf v[PAIR])
{
#if defined(__AVX512BF16__) && KERNEL_TYPE == KERNEL_BF16
    vu low = (vu)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v[0]));
    vu high = (vu)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v[1]));
    return (vf)(low | high << 16);
#else
    return v[0];
#endif
}

/* Turns a row of scores into the words of e^(scale score - top), updates the
 * row's running maximum and sum, and rescales what the row has collected so
 * far. */
ALWAYS_INLINE void softmax_row(
        float *row, int end, float scale, float *top, float *sum, float *out,
        int width)
{
    vf most = vf_all(*top), total = {0};
    for (int j = 0; j < end; j += VL)
        most = vf_max(vf_load(row + j) * scale, most);
    float new_top = vf_top(most);
    for (int j = 0; j < end; j += PAIR * VL) {
        vf p[PAIR];
        for (int i = 0; i < PAIR; i++) {
            p[i] = vf_exp_elem(vf_load(row + j + i * VL) * scale - new_top);
            total += p[i];
        }
        vf_store(row + j / PAIR, row_words(p));
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

static void block_softmax(
        float *scores, float scale, float *top, float *sum, float *out,
        int width, const struct block *b)
{
    for (int i = b->first; i < b->last; i++) {
        float *row = scores + i * b->keys;
        int low, high, end = rounded_up(tile_limit(b, i / MR * MR), PAIR * VL);
        row_keys(b, i, &low, &high);
        if (low == high) {
            memset(row, 0, (size_t)end * sizeof *row);
            continue;
        }
        mask_row(row, low, high, end);
        softmax_row(
                row, end, scale, &top[i], &sum[i], out + (int64_t)i * width,
                width);
    }
}

/* Rows of a strided array as words along the row, padded to `width` words; rows
 * from `rows` to `tile_rows` are 0. */
static void take_rows(
        float *out, int width, const elem *in, int64_t in_row, int rows,
        int tile_rows, int D)
{
    for (int i = 0; i < rows; i++) {
        float *o = out + (int64_t)i * width;
        const elem *row = in + i * in_row;
#if defined(__AVX512BF16__) && KERNEL_TYPE == KERNEL_BF16
        memcpy(o, row, (size_t)D * sizeof *row);
        memset((elem *)o + D, 0, (size_t)(width * PAIR - D) * sizeof *row);
#else
        for (int c = 0; c < width; c += VL)
            vf_store(o + c, c < D ? load_some(row + c, D - c) : (vf){0});
#endif
    }
    memset(out + (int64_t)rows * width, 0,
           (size_t)(tile_rows - rows) * (size_t)width * sizeof *out);
}

/* The same with words of PAIR rows each: tile_rows / PAIR rows of `width`. */
static void take_columns(
        float *out, int width, const elem *in, int64_t in_row, int rows,
        int tile_rows, int D)
{
#if defined(__AVX512BF16__) && KERNEL_TYPE == KERNEL_BF16
    for (int i = 0; i < tile_rows; i += 2)
        for (int c = 0; c < width; c += VL) {
            const elem *from = in + i * in_row + c;
            vf low = {0}, high = {0};
            if (i < rows && c < D)
                low = load_some(from, D - c);
            if (i + 1 < rows && c < D)
                high = load_some(from + in_row, D - c);
            vf_store(
                    out + (int64_t)(i / 2) * width + c,
                    (vf)((vu)low >> 16 | (vu)high));
        }
#else
    take_rows(out, width, in, in_row, rows, tile_rows, D);
#endif
}

/* Scores become those whose multiple `scale` is capped. */
static void block_cap(
        float *scores, const struct attention_shape *s, const struct block *b)
{
    float in = s->scale / s->softcap, out = s->softcap / s->scale;
    for (int i = b->first; s->softcap > 0 && i < b->last; i++) {
        float *row = scores + i * b->keys;
        int limit = tile_limit(b, i / MR * MR);
        for (int j = 0; j < limit; j += VL)
            vf_store(row + j, vf_tanh(vf_load(row + j) * in) * out);
    }
}

static size_t forward_floats(const struct attention_shape *s)
{
    size_t width = (size_t)padded(s->D), keys = (size_t)block_keys(s->T);
    size_t queries = (size_t)block_queries(attention_queries(s).rows);
    return 2 * queries * width /* q, out */ + queries * keys /* scores */ +
           2 * keys * width /* k transposed, v */ + 2 * queries;
}

/* One head's queries q0 .. q1 of sample b. */
static void forward_task(
        const struct attention_shape *s, elem *out, float *lse, const elem *q,
        const elem *k, const elem *v, const int32_t *doc_start, float *memory,
        int q0, int q1, int h)
{
    struct attention_queries all = attention_queries(s);
    int D = s->D, width = padded(D), kv = h / (s->H / s->KV) * D;
    int rows = q1 - q0, tile_rows = rounded_up(rows, MR);
    int queries = block_queries(all.rows), keys = block_keys(s->T);
    float *fq = memory, *fo = fq + queries * width, *kt = fo + queries * width;
    float *fv = kt + keys * width, *scores = fv + keys * width;
    float *top = scores + queries * keys, *sum = top + queries;
    take_rows(
            fq, width, q + q0 * s->q_stride + h * D, s->q_stride, rows,
            tile_rows, D);
    memset(fo, 0, (size_t)tile_rows * (size_t)width * sizeof *fo);
    for (int i = 0; i < tile_rows; i++) {
        top[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    int first =
            attention_first(s->window, doc_start[q0], attention_token(all, q0));
    int last = attention_token(all, q1 - 1);
    for (int k0 = first / keys * keys; k0 <= last; k0 += keys) {
        struct block b = {
                .q0 = q0,
                .q1 = q1,
                .k0 = k0,
                .k1 = k0 + keys < s->T ? k0 + keys : s->T,
                .keys = keys,
                .doc_start = doc_start,
                .window = s->window,
                .queries = all};
        if (!block_rows(&b))
            continue;
        pack_transposed(
                kt, keys, k + k0 * s->k_stride + kv, s->k_stride, b.k1 - k0, D);
        take_columns(
                fv, width, v + k0 * s->v_stride + kv, s->v_stride, b.k1 - k0,
                b.k1 - k0, D);
        block_scores(scores, fq, D, width, kt, &b);
        block_cap(scores, s, &b);
        block_softmax(scores, s->scale, top, sum, fo, width, &b);
        block_combine(fo, width, scores, keys, fv, &b);
    }
    for (int i = 0; i < rows; i++) {
        elem *o = out + ((int64_t)(q0 + i) * s->H + h) * D;
        for (int c = 0; c < D; c += VL)
            store_some(
                    o + c, vf_load(fo + (int64_t)i * width + c) / sum[i],
                    D - c);
        lse[(int64_t)h * all.rows + q0 + i] = top[i] + logf(sum[i]);
    }
}

/* No more threads than tasks, so that each has a use for its scratch. */
static int task_threads(const struct attention_shape *s, int tasks)
{
    size_t rows = (size_t)s->B * (size_t)attention_queries(s).rows;
    size_t pairs = rows * (size_t)s->H * (size_t)s->T;
    int threads = threads_for(pairs);
    return threads < tasks ? threads : tasks;
}

static int forward_blocks(const struct attention_shape *s)
{
    return (attention_queries(s).rows + QUERIES - 1) / QUERIES;
}

static int forward_threads(const struct attention_shape *s)
{
    return task_threads(s, s->B * s->H * forward_blocks(s));
}

static int backward_threads(const struct attention_shape *s)
{
    return task_threads(s, s->B * s->KV);
}

enum zd_status FAST(attention_forward)(
        struct stream *stream, void *out, float *lse, const void *q,
        const void *k, const void *v, const int32_t *doc_start, void *scratch,
        const struct attention_shape *s)
{
    int blocks = forward_blocks(s), Q = attention_queries(s).rows;
    size_t floats = forward_floats(s);
#pragma omp parallel for num_threads(forward_threads(s)) collapse(3)           \
        schedule(dynamic)
    for (int b = 0; b < s->B; b++)
        for (int h = 0; h < s->H; h++)
            for (int i = blocks - 1; i >= 0; i--) { /* the longest first */
                int64_t row = (int64_t)b * Q, token = (int64_t)b * s->T;
                int end = (i + 1) * QUERIES < Q ? (i + 1) * QUERIES : Q;
                forward_task(
                        s, (elem *)out + row * s->H * s->D, lse + row * s->H,
                        (const elem *)q + row * s->q_stride,
                        (const elem *)k + token * s->k_stride,
                        (const elem *)v + token * s->v_stride, doc_start + row,
                        (float *)scratch +
                                floats * (size_t)omp_get_thread_num(),
                        i * QUERIES, end, h);
            }
    return ZD_OK;
}

/* What a backward task works on: whole columns of a head for the sample's
 * tokens, and one block of scores. */
struct backward {
    const struct attention_shape *s;
    struct attention_queries all;
    int width, rows, key_rows;       /* of the padded arrays */
    int queries, keys;               /* of a block of scores */
    float *dq;                       /* (rows, width) */
    float *dk, *dv;                  /* (key_rows, width) */
    float *q_rows, *dout_rows;       /* words (rows, width / PAIR) */
    float *q_columns, *dout_columns; /* words (rows / PAIR, width) */
    float *delta;                    /* (rows) sum_d dout out */
    float *kt, *vt;                  /* words (D / PAIR, keys) */
    float *k;                        /* words (keys / PAIR, width) */
    float *p, *ds;                   /* (queries, keys) */
    float *ds_rows;                  /* words (queries, keys / PAIR) */
};

/* Words along rows are those along columns where a word is one number. */
enum { FORMS = PAIR == 1 ? 1 : 2 };

static size_t backward_floats(const struct attention_shape *s)
{
    int Q = attention_queries(s).rows;
    size_t width = (size_t)padded(s->D), rows = (size_t)rounded_up(Q, MR);
    size_t key_rows = (size_t)rounded_up(s->T, MR);
    size_t queries = (size_t)block_queries(Q), keys = (size_t)block_keys(s->T);
    return (3 * rows + 2 * key_rows) * width + rows + keys * width +
           2 * keys * (size_t)s->D + (2 + FORMS - 1) * queries * keys;
}

static struct backward backward_layout(
        const struct attention_shape *s, float *memory)
{
    struct attention_queries all = attention_queries(s);
    struct backward w = {
            .s = s,
            .all = all,
            .width = padded(s->D),
            .rows = rounded_up(all.rows, MR),
            .key_rows = rounded_up(s->T, MR),
            .queries = block_queries(all.rows),
            .keys = block_keys(s->T)};
    size_t whole = (size_t)w.rows * (size_t)w.width;
    size_t key_whole = (size_t)w.key_rows * (size_t)w.width;
    size_t keys = (size_t)w.keys * (size_t)w.width;
    size_t columns = (size_t)w.keys * (size_t)s->D;
    size_t other = FORMS == 1 ? 0 : whole / PAIR;
    w.q_rows = memory;
    w.q_columns = w.q_rows + other;
    w.dout_rows = memory + whole;
    w.dout_columns = w.dout_rows + other;
    w.dq = w.dout_rows + whole;
    w.dk = w.dq + whole;
    w.dv = w.dk + key_whole;
    w.kt = w.dv + key_whole;
    w.vt = w.kt + columns;
    w.k = w.vt + columns;
    w.p = w.k + keys;
    w.ds = w.p + w.queries * w.keys;
    w.delta = w.ds + w.queries * w.keys;
    w.ds_rows = FORMS == 1 ? w.ds : w.delta + w.rows;
    return w;
}

/* gradient_row of scores that are capped: ds times the cap's slope, which is 0
 * where a score is masked. */
static void capped_gradient(
        const struct attention_shape *s, float *p, float *ds, int end, float l,
        float delta)
{
    float part = s->scale / s->softcap;
    for (int j = 0; j < end; j += VL) {
        vf score = vf_load(p + j), x = vf_max(vf_all(-1.0f), score * part);
        vf e = vf_exp_elem(score * s->scale - l);
        vf_store(p + j, e);
        vf_store(ds + j, e * (vf_load(ds + j) - delta) * (1.0f - x * x));
    }
}

/* p = e^(scale score - lse) and ds = p (dp - delta) of one row, in the places
 * of its scores and dp. */
ALWAYS_INLINE void gradient_row(
        const struct backward *w, const float *lse, const struct block *b,
        int i)
{
    float *p = w->p + i * w->keys, *ds = w->ds + i * w->keys;
    int low, high, end = rounded_up(tile_limit(b, i / MR * MR), VL);
    row_keys(b, i, &low, &high);
    if (low < high) {
        float l = lse[b->q0 + i], delta = w->delta[b->q0 + i];
        mask_row(p, low, high, end);
        if (w->s->softcap > 0) {
            capped_gradient(w->s, p, ds, end, l, delta);
        } else {
            for (int j = 0; j < end; j += VL) {
                vf e = vf_exp_elem(vf_load(p + j) * w->s->scale - l);
                vf_store(p + j, e);
                vf_store(ds + j, e * (vf_load(ds + j) - delta));
            }
        }
    } else {
        end = 0;
    }
    memset(p + end, 0, (size_t)(w->keys - end) * sizeof *p);
    memset(ds + end, 0, (size_t)(w->keys - end) * sizeof *ds);
}

/* Words of PAIR rows from row i: of p and ds along the columns in the place of
 * the first, of ds along the rows beside them. */
ALWAYS_INLINE void gradient_words(const struct backward *w, int i)
{
    if (PAIR == 1)
        return;
    float *p = w->p + i * w->keys, *ds = w->ds + i * w->keys;
    for (int r = 0; r < PAIR; r++)
        for (int j = 0; j < w->keys; j += PAIR * VL) {
            vf v[PAIR];
            for (int h = 0; h < PAIR; h++)
                v[h] = vf_load(ds + r * w->keys + j + h * VL);
            vf_store(w->ds_rows + ((i + r) * w->keys + j) / PAIR, row_words(v));
        }
    for (int j = 0; j < w->keys; j += VL) {
        vf pv[PAIR], dsv[PAIR];
        for (int r = 0; r < PAIR; r++) {
            pv[r] = vf_load(p + r * w->keys + j);
            dsv[r] = vf_load(ds + r * w->keys + j);
        }
        vf_store(p + j, column_words(pv));
        vf_store(ds + j, column_words(dsv));
    }
}

static void block_gradient(
        const struct backward *w, const float *lse, const struct block *b)
{
    for (int i = b->first; i < b->last; i += PAIR) {
        for (int r = 0; r < PAIR; r++)
            gradient_row(w, lse, b, i + r);
        gradient_words(w, i);
    }
}

static void backward_keys(
        const struct backward *w, const float *lse, const elem *k,
        const elem *v, const int32_t *doc_start, int k0)
{
    const struct attention_shape *s = w->s;
    int k1 = k0 + w->keys < s->T ? k0 + w->keys : s->T, width = w->width;
    pack_transposed(
            w->kt, w->keys, k + k0 * s->k_stride, s->k_stride, k1 - k0, s->D);
    pack_transposed(
            w->vt, w->keys, v + k0 * s->v_stride, s->v_stride, k1 - k0, s->D);
    take_columns(
            w->k, width, k + k0 * s->k_stride, s->k_stride, k1 - k0, w->keys,
            s->D);
    int Q = w->all.rows, from = attention_row(w->all, k0);
    for (int q0 = from / w->queries * w->queries; q0 < Q; q0 += w->queries) {
        struct block b = {
                .q0 = q0,
                .q1 = q0 + w->queries < Q ? q0 + w->queries : Q,
                .k0 = k0,
                .k1 = k1,
                .keys = w->keys,
                .doc_start = doc_start,
                .window = s->window,
                .queries = w->all};
        int64_t at = (int64_t)q0 * width, half = at / PAIR;
        if (first_seen(&b, q0) >= k1)
            break;
        if (!block_rows(&b))
            continue;
        block_scores(w->p, w->q_rows + half, s->D, width / PAIR, w->kt, &b);
        block_cap(w->p, s, &b);
        block_scores(w->ds, w->dout_rows + half, s->D, width / PAIR, w->vt, &b);
        block_gradient(w, lse, &b);
        block_collect(
                w->dv + (int64_t)k0 * width, width, w->p,
                w->dout_columns + half, &b);
        block_collect(
                w->dk + (int64_t)k0 * width, width, w->ds, w->q_columns + half,
                &b);
        block_combine(w->dq + at, width, w->ds_rows, w->keys / PAIR, w->k, &b);
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
        const struct backward *w, float *rows, float *columns, const elem *in,
        int64_t in_row)
{
    int D = w->s->D, Q = w->all.rows;
    take_rows(rows, w->width / PAIR, in, in_row, Q, w->rows, D);
    if (FORMS > 1)
        take_columns(columns, w->width, in, in_row, Q, w->rows, D);
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

enum zd_status FAST(attention_backward)(
        struct stream *stream, void *dq, void *dk, void *dv, const void *dout,
        const void *out, const float *lse, const void *q, const void *k,
        const void *v, const int32_t *doc_start, void *scratch,
        const struct attention_shape *s)
{
    int D = s->D, T = s->T, Q = attention_queries(s).rows;
    int group = s->H / s->KV;
    size_t floats = backward_floats(s);
#pragma omp parallel for num_threads(backward_threads(s)) collapse(2)          \
        schedule(dynamic)
    for (int b = 0; b < s->B; b++)
        for (int kv = 0; kv < s->KV; kv++) {
            struct backward w = backward_layout(
                    s,
                    (float *)scratch + floats * (size_t)omp_get_thread_num());
            size_t whole = (size_t)w.rows * (size_t)w.width * sizeof(float);
            size_t keys = (size_t)w.key_rows * (size_t)w.width * sizeof(float);
            int64_t token = (int64_t)b * T, query = (int64_t)b * Q;
            int64_t row = (int64_t)s->H * D;
            int64_t at_k = token * s->k_stride + (int64_t)kv * D;
            int64_t at_v = token * s->v_stride + (int64_t)kv * D;
            memset(w.dk, 0, keys);
            memset(w.dv, 0, keys);
            for (int h = kv * group; h < (kv + 1) * group; h++) {
                int64_t at_q = query * s->q_stride + (int64_t)h * D;
                int64_t at_out = query * row + (int64_t)h * D;
                take_both(
                        &w, w.q_rows, w.q_columns, (const elem *)q + at_q,
                        s->q_stride);
                take_both(
                        &w, w.dout_rows, w.dout_columns,
                        (const elem *)dout + at_out, row);
                backward_delta(
                        &w, (const elem *)dout + at_out,
                        (const elem *)out + at_out, row);
                memset(w.dq, 0, whole);
                for (int k0 = 0; k0 < T; k0 += w.keys)
                    backward_keys(
                            &w, lse + (query * s->H + (int64_t)h * Q),
                            (const elem *)k + at_k, (const elem *)v + at_v,
                            doc_start + query, k0);
                narrow_rows(
                        (elem *)dq + at_q, s->q_stride, w.dq, w.width, Q, D,
                        s->scale);
            }
            narrow_rows(
                    (elem *)dk + at_k, s->k_stride, w.dk, w.width, T, D,
                    s->scale);
            narrow_rows(
                    (elem *)dv + at_v, s->v_stride, w.dv, w.width, T, D, 1.0f);
        }
    return ZD_OK;
}

size_t FAST(attention_floats)(const struct attention_shape *s)
{
    size_t forward = forward_floats(s) * (size_t)forward_threads(s);
    size_t backward = backward_floats(s) * (size_t)backward_threads(s);
    return forward > backward ? forward : backward;
}
