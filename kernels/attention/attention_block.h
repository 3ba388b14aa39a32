/* attention_block.h - a block of scores: the queries of one block against the
 * keys of another, which of them see each other, and the matmuls over them.
 *
 *   keys    k0 ........ k0+KEYS        a block of scores is QUERIES x KEYS and
 *   query   x x x x x x . . . .        lives in L2. A row sees the keys from
 *   rows    x x x x x x x x . .        first_seen(row) to its own token: `.` is
 *           . . x x x x x x x x        not computed, in whole columns of NR and
 *                                      rows of MR.
 *
 * Operands of products are words (gemm_tile.h): floats, or pairs of bf16. Only
 * these are rounded; scores, sums and what is summed over blocks are floats.
 *
 * For attention_cpu.c. */
#ifndef ZD_KERNELS_ATTENTION_ATTENTION_BLOCK_H
#define ZD_KERNELS_ATTENTION_ATTENTION_BLOCK_H

#include "kernels/attention/attention.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/gemm_tile.h"

/* Multiples of every MR and NR. 192 x 96 floats with their operands fill about
 * 200 KiB. */
enum { QUERIES = 192, KEYS = 96 };

/* The least common multiple of MR and NR. */
enum { UNIT = VL == 4 ? 24 : VL == 8 ? 48 : 96 };

/* Columns of an operand, padded with zeros to whole panels. */
static int padded(int D)
{
    return (D + NR - 1) / NR * NR;
}

static int rounded_up(int x, int unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Rows and columns of a block of scores: fewer when the sample is short. */
static int block_queries(int rows)
{
    return rows < QUERIES ? rounded_up(rows, MR) : QUERIES;
}

static int block_keys(int T)
{
    return T < KEYS ? rounded_up(T, UNIT) : KEYS;
}

/* One MR x NR tile of out [+]= a b; see tile_multiply for the strides. */
ALWAYS_INLINE void tile_add(
        float *out, int64_t out_row, const float *a, int64_t a_row,
        int64_t a_step, const float *b, int64_t b_row, int K, bool add)
{
    vf acc[MR][NV];
    tile_clear(acc);
    tile_multiply(acc, a, a_row, a_step, b, b_row, K);
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++) {
            float *o = out + i * out_row + j * VL;
            vf_store(o, add ? vf_load(o) + acc[i][j] : acc[i][j]);
        }
}

/* The queries of one block against the keys of one block. */
struct block {
    int q0, q1;      /* rows of the sample's queries */
    int k0, k1;      /* keys of the sample */
    int keys;        /* columns of the array of scores */
    int first, last; /* rows of the block that see a key of it, whole tiles */
    const int32_t *doc_start; /* of the sample's queries */
    int window;
    struct attention_queries queries;
};

ALWAYS_INLINE int first_seen(const struct block *b, int row)
{
    int t = attention_token(b->queries, row);
    return attention_first(b->window, b->doc_start[row], t);
}

/* Keys [*low, *high) of the block that row i sees; empty past the last row. */
ALWAYS_INLINE void row_keys(const struct block *b, int i, int *low, int *high)
{
    int row = b->q0 + i;
    if (row >= b->q1) {
        *low = *high = 0;
        return;
    }
    int first = first_seen(b, row), from = first > b->k0 ? first : b->k0;
    int end = attention_token(b->queries, row) + 1;
    int to = end < b->k1 ? end : b->k1;
    *low = from - b->k0;
    *high = to > from ? to - b->k0 : *low;
}

/* Keys of the block up to the last one that rows i .. i+MR-1 may see. */
ALWAYS_INLINE int tile_limit(const struct block *b, int i)
{
    int end = b->q0 + i + MR < b->q1 ? b->q0 + i + MR : b->q1;
    int t = attention_token(b->queries, end - 1) + 1;
    return (t < b->k1 ? t : b->k1) - b->k0;
}

/* Sets first and last; false when no row sees a key. Both first_seen and the
 * token grow with the row, so the rows that do are consecutive. */
static bool block_rows(struct block *b)
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

/* Words that hold `count` elements. */
static int words(int count)
{
    return (count + PAIR - 1) / PAIR;
}

/* scores(i, j) = a_i b_j for the pairs of the block; bt is b transposed. */
static void block_scores(
        float *scores, const float *a, int D, int64_t a_row, const float *bt,
        const struct block *b)
{
    for (int i = b->first; i < b->last; i += MR) {
        int limit = tile_limit(b, i);
        for (int j = 0; j < limit; j += NR)
            tile_add(
                    scores + i * b->keys + j, b->keys, a + i * a_row, a_row, 1,
                    bt + j, b->keys, words(D), false);
    }
}

/* out_i += sum_j p(i, j) b_j, with words of p along j. */
static void block_combine(
        float *out, int width, const float *p, int64_t p_row, const float *rows,
        const struct block *b)
{
    for (int i = b->first; i < b->last; i += MR) {
        int limit = tile_limit(b, i);
        for (int c = 0; c < width; c += NR)
            tile_add(
                    out + (int64_t)i * width + c, width, p + i * p_row, p_row,
                    1, rows + c, width, words(limit), true);
    }
}

/* out_j += sum_i p(i, j) a_i, with words of p along i (of a pair in the place
 * of its first row): tile j starts at the first query that sees it. */
static void block_collect(
        float *out, int width, const float *p, const float *a,
        const struct block *b)
{
    for (int j = 0; j < b->k1 - b->k0; j += MR) {
        int seen = attention_row(b->queries, b->k0 + j) - b->q0;
        int from = (seen > b->first ? seen : b->first) / MR * MR;
        if (from >= b->last)
            break;
        for (int c = 0; c < width; c += NR)
            tile_add(
                    out + (int64_t)j * width + c, width, p + from * b->keys + j,
                    1, PAIR * b->keys, a + (int64_t)(from / PAIR) * width + c,
                    width, (b->last - from) / PAIR, true);
    }
}

/* Scores outside [low, high) become -inf, whose exponential is 0. */
ALWAYS_INLINE void mask_row(float *row, int low, int high, int end)
{
    for (int j = 0; j < low; j++)
        row[j] = -INFINITY;
    for (int j = high; j < end; j++)
        row[j] = -INFINITY;
}

#endif
