/* attention_block.h - a block of scores: the queries of one block against the
 * keys of another, which of them see each other, and the matmuls over them.
 *
 *   keys    k0 ........ k0+KEYS        a block is made by tiles of MR queries
 *   query   x x x x x x . . . .        and NR keys, which live in registers and
 *   rows    x x x x x x x x . .        L1. A row sees the keys from first_seen
 *           . . x x x x x x x x        (row) to its own token: `.` is not
 *                                      computed, in whole tiles.
 *
 * Operands of products are words (gemm_tile.h): floats, or pairs of bf16. Only
 * these are rounded; scores, sums and what is summed over blocks are floats.
 *
 *   columns   (rows / PAIR, width), words along a column: `b` of a product
 *   panels    the rows of an array transposed, as many at a time as a tile has:
 *             (D / PAIR, MR) of queries, `a`, and (D / PAIR, NR) of keys, `b`
 *
 * AMX reads the words of `a` along rows, and whole tiles of both operands. So
 * queries are rows there, (rows, D / PAIR), and zeros fill the last tile.
 *
 * For attention_cpu.c and attention_backward_cpu.c. */
#pragma once

#define TILE_OF_PAIRS

#include "kernels/attention/attention.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/gemm_tile.h"

/* Multiples of every MR and NR. */
enum { QUERIES = PAIR * 192, KEYS = PAIR * 96 };

/* The least common multiple of MR and NR. */
enum { UNIT = IN_AMX ? 32 : VL == 4 ? 24 : VL == 8 ? 48 : 96 };

static inline int rounded_up(int x, int unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Columns of an operand, padded with zeros to whole panels. */
static inline int padded(int D)
{
    return rounded_up(D, NR);
}

/* Rows and columns of a block of scores: fewer when the sample is short. */
static inline int block_queries(int rows)
{
    return rows < QUERIES ? rounded_up(rows, MR) : QUERIES;
}

static inline int block_keys(int T)
{
    return T < KEYS ? rounded_up(T, UNIT) : KEYS;
}

/* Words that hold `count` elements; for AMX whole rows of tiles. */
static inline int words(int count)
{
    return rounded_up(count, IN_AMX ? NR : PAIR) / PAIR;
}

/* Words of a row of NR numbers. */
ALWAYS_INLINE void store_row(float *out, const vf v[NV])
{
#if IN_PAIRS
    vf_store(out, (vf)_mm512_cvtne2ps_pbh(v[1], v[0]));
#else
    for (int j = 0; j < NV; j++)
        vf_store(out + j * VL, v[j]);
#endif
}

#if IN_PAIRS
/* NR words, each of a bf16 of `a` and the one of b beside it. */
ALWAYS_INLINE void store_pairs(float *out, __m512i a, __m512i b)
{
    vf_store(out, pairs_low(a, b));
    vf_store(out + VL, pairs_high(a, b));
}
#endif

/* Words along the columns of a tile: MR / PAIR rows. */
ALWAYS_INLINE void store_columns(
        float *out, int64_t out_row, const vf v[MR][NV])
{
#if IN_PAIRS
    for (int i = 0; i < MR; i += PAIR)
        store_pairs(
                out + i / PAIR * out_row,
                (__m512i)_mm512_cvtne2ps_pbh(v[i][1], v[i][0]),
                (__m512i)_mm512_cvtne2ps_pbh(v[i + 1][1], v[i + 1][0]));
#else
    for (int i = 0; i < MR; i++)
        store_row(out + i * out_row, v[i]);
#endif
}

#if IN_PAIRS
/* Words of NR columns of a row and the row after it; 0 beyond `rows` and
 * `columns`. */
ALWAYS_INLINE void load_pairs(
        vf out[NV], const elem *in, int64_t in_row, int rows, int columns)
{
    __mmask32 some = columns < NR ? (1u << columns) - 1 : ~0u;
    __m512i a = _mm512_maskz_loadu_epi16(rows > 0 ? some : 0, in);
    __m512i b = _mm512_maskz_loadu_epi16(rows > 1 ? some : 0, in + in_row);
    out[0] = pairs_low(a, b);
    out[1] = pairs_high(a, b);
}
#endif

#if IN_AMX
/* What take_columns does, transposed: for every NR rows (width, 16) words. */
static inline void take_turned(
        float *out, int width, const elem *in, int64_t in_row, int rows,
        int tile_rows, int D)
{
    for (int i = 0; i < tile_rows; i += NR)
        for (int c = 0; c < width; c += NR, out += NR * VL) {
            const elem *from = in + i * in_row + c;
            vf v[NV], part[NV][VL];
            for (int k = 0; k < VL; k++) {
                int row = k * PAIR;
                load_pairs(
                        v, from + row * in_row, in_row, rows - i - row, D - c);
                part[0][k] = v[0];
                part[1][k] = v[1];
            }
            for (int n = 0; n < NV; n++) {
                transpose_16(part[n]);
                for (int k = 0; k < VL; k++)
                    vf_store(out + (n * VL + k) * VL, part[n][k]);
            }
        }
}
#endif

/* Rows of a strided array as words along columns, `width` of them, padded with
 * 0 as rows from `rows` to `tile_rows` are. */
static inline void take_columns(
        float *out, int width, const elem *in, int64_t in_row, int rows,
        int tile_rows, int D)
{
    for (int i = 0; i < tile_rows; i += PAIR)
        for (int c = 0; c < width; c += NR, out += NR) {
            const elem *from = in + i * in_row + c;
#if IN_PAIRS
            vf v[NV];
            load_pairs(v, from, in_row, rows - i, D - c);
            vf_store(out, v[0]);
            vf_store(out + VL, v[1]);
#else
            for (int n = 0; n < NR; n += VL)
                vf_store(
                        out + n, i < rows && c + n < D
                                         ? load_some(from + n, D - c - n)
                                         : (vf){0});
#endif
        }
}

/* Asks for D elements of each row: heads lie far apart, where no prefetcher
 * looks. */
ALWAYS_INLINE void fetch_rows(const elem *in, int64_t in_row, int rows, int D)
{
    enum { LINE = 64 / sizeof(elem) };
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < D; c += LINE)
            __builtin_prefetch(in + i * in_row + c);
}

/* Panels of `width` rows each; those past `rows` are 0. */
ALWAYS_INLINE void take_panels(
        float *out, int width, const elem *in, int64_t in_row, int rows, int D)
{
    for (int i = 0; i < rows; i += width) {
        int next = i + width, rest = rows - next;
        fetch_rows(in + next * in_row, in_row, rest < width ? rest : width, D);
        pack_transposed(
                out + (int64_t)i * words(D), width, in + i * in_row, in_row,
                rows - i < width ? rows - i : width, D);
    }
}

/* Queries as tile_scores reads them. */
static inline void take_queries(
        float *out, const elem *in, int64_t in_row, int rows, int D)
{
#if IN_AMX
    for (int i = 0; i < rounded_up(rows, MR); i++)
        for (int c = 0; c < D; c += NR, out += VL)
            vf_store(
                    out,
                    i < rows ? row_words(in + i * in_row + c, D - c) : (vf){0});
#else
    take_panels(out, MR, in, in_row, rows, D);
#endif
}

/* a_step of tile_add where the words of a row lie together: products take them
 * one by one, AMX by the row of a tile. */
enum { STEP = IN_AMX ? VL : 1 };

/* out += a b, one MR x NR tile; see tile_multiply and amx_multiply for the
 * strides. */
ALWAYS_INLINE void tile_add(
        float *out, int64_t out_row, const float *a, int64_t a_row,
        int64_t a_step, const float *b, int64_t b_row, int K)
{
#if IN_AMX
    amx_multiply(out, out_row, true, a, a_row, a_step, b, b_row, K);
#else
    vf acc[MR][NV];
    tile_clear(acc);
    tile_multiply(acc, a, a_row, a_step, b, b_row, K);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++) {
            float *o = out + i * out_row + j * VL;
            vf_store(o, vf_load(o) + acc[i][j]);
        }
#endif
}

/* The queries of one block against the keys of one block. */
struct block {
    const struct attention_shape *shape;
    struct attention_queries queries;
    int q0, q1;      /* rows of the sample's queries */
    int k0, k1;      /* keys of the sample */
    int first, last; /* rows of the block that see a key of it, whole tiles */
    const int32_t *doc_start; /* of the sample's queries */
};

ALWAYS_INLINE int first_seen(const struct block *b, int row)
{
    int t = attention_token(b->queries, row);
    return attention_first(b->shape->window, b->doc_start[row], t);
}

/* Sets first and last; false when no row sees a key. Both first_seen and the
 * token grow with the row, so the rows that do are consecutive. */
static inline bool block_rows(struct block *b)
{
    int from = attention_row(b->queries, b->k0);
    int first = from > b->q0 ? from : b->q0, last = b->q1;
    while (last > first && first_seen(b, last - 1) >= b->k1)
        last--;
    if (last <= first)
        return false;
    b->first = (first - b->q0) / MR * MR;
    b->last = rounded_up(last - b->q0, MR);
    return true;
}

/* Keys of the block that the rows of a tile see: row i those of [low[i],
 * high[i]), none past the last row; all rows [from, to); none from `limit`. */
struct seen {
    int low[MR], high[MR];
    int from, to, limit;
};

ALWAYS_INLINE struct seen tile_seen(const struct block *b, int i)
{
    struct seen s = {.to = KEYS};
    for (int r = 0; r < MR; r++) {
        int row = b->q0 + i + r, low = 0, high = 0;
        if (row < b->q1) {
            int end = attention_token(b->queries, row) + 1;
            int first = first_seen(b, row);
            low = first > b->k0 ? first - b->k0 : 0;
            high = (end < b->k1 ? end : b->k1) - b->k0;
            high = high > low ? high : low;
            s.limit = end < b->k1 ? end - b->k0 : b->k1 - b->k0;
        }
        s.low[r] = low, s.high[r] = high;
        s.from = low > s.from ? low : s.from;
        s.to = high < s.to ? high : s.to;
    }
    return s;
}

/* Scores of keys from j on that a row does not see become -inf, whose
 * exponential is 0. */
ALWAYS_INLINE void tile_hide(vf scores[MR][NV], const struct seen *s, int j)
{
    vi lane;
    if (j >= s->from && j + NR <= s->to)
        return;
    for (int l = 0; l < VL; l++)
        lane[l] = l;
    for (int i = 0; i < MR; i++)
        for (int n = 0; n < NV; n++) {
            vi key = lane + (j + n * VL);
            scores[i][n] = vf_select(
                    (key >= s->low[i]) & (key < s->high[i]), scores[i][n],
                    vf_all(-INFINITY));
        }
}

/* Scores become those whose multiple `scale` is capped. */
ALWAYS_INLINE void tile_cap(
        vf scores[MR][NV], const struct attention_shape *shape)
{
    float in = shape->scale / shape->softcap;
    float out = shape->softcap / shape->scale;
    for (int i = 0; i < MR; i++)
        for (int n = 0; n < NV; n++)
            scores[i][n] = vf_tanh(scores[i][n] * in) * out;
}

/* a_i b_j for a tile, of queries and a panel. */
ALWAYS_INLINE void tile_scores(
        vf scores[MR][NV], const float *a, const float *b, int D)
{
#if IN_AMX
    amx_multiply(
            (float *)scores, NR, false, a, words(D), STEP, b, NR, words(D));
#else
    tile_clear(scores);
    tile_multiply(scores, a, 1, MR, b, NR, words(D));
#endif
}

/* out_i += sum_j p(i, j) b_j for the rows of a tile, with words of p along j,
 * p_row from row to row and p_step as a_step of tile_add, and of b along its
 * columns. */
ALWAYS_INLINE void tile_combine(
        float *out, int width, const float *p, int p_row, int p_step,
        const float *columns, int keys)
{
    for (int c = 0; c < width; c += NR)
        tile_add(
                out + c, width, p, p_row, p_step, columns + c, width,
                words(keys));
}

static inline void task_begin(void)
{
#if IN_AMX
    amx_begin();
#endif
}

static inline void task_end(void)
{
#if IN_AMX
    amx_end();
#endif
}

/* Floats to begin at a cache line with: tiles that straddle lines are slow. */
enum { SPARE = IN_AMX ? 15 : 0 };

/* The thread's part of the scratch, `floats` for each. */
static inline float *task_memory(const struct attention *a, size_t floats)
{
    float *part = (float *)a->scratch + floats * (size_t)omp_get_thread_num();
    return IN_AMX ? (float *)(((uintptr_t)part + 63) / 64 * 64) : part;
}

/* The next part of `memory`; NULL: of none. */
static inline float *take(float *memory, size_t *used, size_t floats)
{
    float *part = memory ? memory + *used : NULL;
    *used += floats;
    return part;
}

/* No more threads than tasks, so that each has a use for its scratch. */
static inline int task_threads(const struct attention_shape *s, int tasks)
{
    size_t rows = (size_t)s->B * (size_t)attention_queries(s).rows;
    int threads = threads_for(rows * (size_t)s->H * (size_t)s->T);
    return threads < tasks ? threads : tasks;
}
