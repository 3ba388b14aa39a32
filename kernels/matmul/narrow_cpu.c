/* narrow_cpu.c - matmuls with one short side r, as in adapters: the large
 * matrix is read once, in place, and never packed. Only the small one is
 * packed, in pieces, into a thread's first-level cache.
 *
 *   sums    vectors run over r: a tile of TALL tokens adds a row of b for each
 *           element of a
 *   spread  vectors run over the columns of out, in r steps
 *   grads   vectors run over the columns of the large matrix; sums over tokens
 *           stay in the cache and are transposed as they are stored
 *
 * The order of an element's sum depends only on the shapes. */
#include "kernels/cpu/fast.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/matmul/matmul_cpu.h"

static_assert(PAIR == 1, "words are floats here");

enum {
    ROWS = VL == 16 ? 8 : 4, /* a tile has ROWS rows by WIDE vectors */
    WIDE = 3,
    STRIP = WIDE * VL,
    /* sums */
    LANES = 16,              /* columns of a tile */
    TALL = VL == 16 ? 8 : 6, /* its rows */
    ACROSS = LANES / VL,
    DEPTH = 256, /* piece of K */
    BLOCK = 256, /* about how many tokens share a packed piece */
    MOST_LANES = (NARROW_MOST + LANES - 1) / LANES * LANES,
    /* spread and grads */
    SPREAD_COLUMNS = 4 * STRIP,
    GRADS_COLUMNS = VL == 16 ? 4 * STRIP : 8 * STRIP,
    GRADS_TOKENS = 128,
    AHEAD = 8, /* rows to prefetch */
    MOST_ROWS = (NARROW_MOST + ROWS - 1) / ROWS * ROWS
};

/* `count` elements as floats. */
ALWAYS_INLINE void widen(float *to, const elem *from, int count)
{
    int i = 0;
    for (; i + VL <= count; i += VL)
        vf_store(to + i, load(from + i));
    if (i < count)
        vf_store_some(to + i, load_some(from + i, count - i), count - i);
}

/* Vector j of a row of `count` columns; 0 beyond them. */
ALWAYS_INLINE vf load_within(const elem *p, int j, int count)
{
    int rest = count - j * VL;
    return rest > 0 ? load_some(p + j * VL, rest) : (vf){0};
}

/* --- sums ----------------------------------------------------------------- */

/* Packs b(k .. k + depth, LANES from `lane`), one row per step; lanes past r
 * are 0. */
ALWAYS_INLINE void pack_lanes(
        float *panel, const struct matmul *p, int lane, int k, int depth)
{
    const elem *b = p->b.data;
    int lanes = p->N - lane < LANES ? p->N - lane : LANES;
    if (p->b.transposed) {
        pack_transposed(
                panel, LANES, b + (size_t)lane * (size_t)p->K + k, p->K, lanes,
                depth);
        return;
    }
    for (int i = 0; i < depth; i++)
        for (int j = 0; j < ACROSS; j++)
            vf_store(
                    panel + i * LANES + j * VL,
                    load_within(
                            b + (size_t)(k + i) * (size_t)p->N + lane, j,
                            lanes));
}

/* sums[i] += a(i, :) panel, for TALL rows i. */
ALWAYS_INLINE void add_tall(
        float *sums, int64_t stride, const float *a, int64_t row,
        const float *panel, int depth)
{
    vf acc[TALL][ACROSS];
#pragma GCC unroll 8
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < ACROSS; j++)
            acc[i][j] = vf_all(0);
    for (int k = 0; k < depth; k++) {
        vf bv[ACROSS];
        for (int j = 0; j < ACROSS; j++)
            bv[j] = vf_load(panel + k * LANES + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < TALL; i++) {
            vf av = vf_all(a[i * row + k]);
            for (int j = 0; j < ACROSS; j++)
                acc[i][j] += av * bv[j];
        }
    }
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < ACROSS; j++) {
            float *sum = sums + i * stride + j * VL;
            vf_store(sum, vf_load(sum) + acc[i][j]);
        }
}

/* TALL rows of a as floats: in place, or widened into `rows`. */
ALWAYS_INLINE const float *tall_rows(
        float rows[TALL * DEPTH], int64_t *stride_out, const struct matmul *p,
        int m, int count, int k, int depth)
{
    const elem *a = (const elem *)p->a.data + (size_t)m * (size_t)p->K + k;
#if KERNEL_TYPE == KERNEL_FP32
    *stride_out = p->K;
    if (count == TALL)
        return a;
#endif
    *stride_out = DEPTH;
    if (count < TALL)
        memset(rows, 0, TALL * DEPTH * sizeof *rows);
    for (int i = 0; i < count; i++)
        widen(rows + i * DEPTH, a + (int64_t)i * p->K, depth);
    return rows;
}

static void sums_block(const struct matmul *p, int first, int count)
{
    float sums[(BLOCK + 2 * TALL) * MOST_LANES], panel[DEPTH * LANES];
    float rows[TALL * DEPTH];
    int lanes = (p->N + LANES - 1) / LANES * LANES;
    memset(sums, 0, (size_t)((count + TALL) * lanes) * sizeof *sums);
    for (int lane = 0; lane < lanes; lane += LANES)
        for (int k = 0; k < p->K; k += DEPTH) {
            int depth = p->K - k < DEPTH ? p->K - k : DEPTH;
            pack_lanes(panel, p, lane, k, depth);
            for (int m = 0; m < count; m += TALL) {
                int64_t stride;
                const float *a = tall_rows(
                        rows, &stride, p, first + m,
                        count - m < TALL ? count - m : TALL, k, depth);
                add_tall(
                        sums + m * lanes + lane, lanes, a, stride, panel,
                        depth);
            }
        }
    for (int m = 0; m < count; m++) {
        size_t at = (size_t)(first + m) * (size_t)p->N;
        for (int lane = 0; lane < p->N; lane += VL) {
            vf sum = vf_load(sums + m * lanes + lane);
            if (p->out.type == DTYPE_FP32)
                vf_store_some(
                        (float *)p->out.data + at + lane, sum, p->N - lane);
            else
                store_some((elem *)p->out.data + at + lane, sum, p->N - lane);
        }
    }
}

/* --- spread --------------------------------------------------------------- */

/* Packs b(r, columns from `first`), rows SPREAD_COLUMNS apart; 0 past the edge.
 */
ALWAYS_INLINE void pack_columns(
        float *panel, const struct matmul *p, int first, int columns)
{
    const elem *b = p->b.data;
    if (p->b.transposed) {
        pack_transposed(
                panel, SPREAD_COLUMNS, b + (size_t)first * (size_t)p->K, p->K,
                columns, p->K);
        return;
    }
    for (int k = 0; k < p->K; k++) {
        float *to = panel + k * SPREAD_COLUMNS;
        memset(to + columns / VL * VL, 0,
               (size_t)(SPREAD_COLUMNS - columns / VL * VL) * sizeof *to);
        widen(to, b + (size_t)k * (size_t)p->N + first, columns);
    }
}

/* Computes rows x STRIP of out, of which `columns` exist. */
ALWAYS_INLINE void spread_tile(
        const struct matmul *p, int m, int rows, int column, int columns,
        const float *a, const float *panel)
{
    size_t at = (size_t)m * (size_t)p->N + (size_t)column;
    float *wide = (float *)p->out.data + at;
    elem *out = (elem *)p->out.data + at;
    vf acc[ROWS][WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++)
            acc[i][j] = vf_all(0);
    for (int i = 0; p->out.type == DTYPE_FP32 && i < rows; i++)
        for (int j = 0; j < WIDE; j++)
            __builtin_prefetch(wide + (int64_t)i * p->N + j * VL, 1);
    for (int k = 0; k < p->K; k++) {
        vf bv[WIDE];
        for (int j = 0; j < WIDE; j++)
            bv[j] = vf_load(panel + k * SPREAD_COLUMNS + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            vf av = vf_all(a[i * NARROW_MOST + k]);
            for (int j = 0; j < WIDE; j++)
                acc[i][j] += av * bv[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++, wide += p->N, out += p->N)
#pragma GCC unroll 3
        for (int j = 0; j < WIDE; j++) {
            int count = columns - j * VL;
            if (count <= 0)
                break;
            if (p->out.type != DTYPE_FP32)
                store_some(out + j * VL, acc[i][j], count);
            else if (p->accumulate)
                vf_store_some(
                        wide + j * VL,
                        vf_load_some(wide + j * VL, count) + acc[i][j], count);
            else
                vf_store_some(wide + j * VL, acc[i][j], count);
        }
}

/* For whole tiles the shape is a constant. */
ALWAYS_INLINE void spread_tile_of(
        const struct matmul *p, int m, int rows, int column, int columns,
        const float *a, const float *panel)
{
    if (rows == ROWS && columns == STRIP)
        spread_tile(p, m, ROWS, column, STRIP, a, panel);
    else
        spread_tile(p, m, rows, column, columns, a, panel);
}

static void spread_block(const struct matmul *p, int first, int count)
{
    float panel[NARROW_MOST * SPREAD_COLUMNS], a[ROWS * NARROW_MOST];
    for (int column = 0; column < p->N; column += SPREAD_COLUMNS) {
        int columns =
                p->N - column < SPREAD_COLUMNS ? p->N - column : SPREAD_COLUMNS;
        pack_columns(panel, p, column, columns);
        for (int m = 0; m < count; m += ROWS) {
            int rows = count - m < ROWS ? count - m : ROWS;
            memset(a, 0, sizeof a);
            for (int i = 0; i < rows; i++)
                widen(a + i * NARROW_MOST,
                      (const elem *)p->a.data +
                              (size_t)(first + m + i) * (size_t)p->K,
                      p->K);
            for (int c = 0; c < columns; c += STRIP)
                spread_tile_of(
                        p, first + m, rows, column + c,
                        columns - c < STRIP ? columns - c : STRIP, a,
                        panel + c);
        }
    }
}

/* --- grads ---------------------------------------------------------------- */

/* The gradient of a factor: narrow(tokens, r)^T wide(tokens, width). */
struct grads {
    const elem *narrow, *wide;
    int r, width, tokens;
    float *out; /* (r, width), or transposed (width, r) */
    bool is_transposed, accumulate;
};

/* sums[i][:] += narrow(:, i) . wide(:, STRIP columns), for ROWS of r. */
ALWAYS_INLINE void grads_tile(
        float *sums, const float *narrow, const elem *wide, int64_t width,
        int columns, int tokens)
{
    vf acc[ROWS][WIDE];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++)
            acc[i][j] = vf_load(sums + i * GRADS_COLUMNS + j * VL);
    for (int n = 0; n < tokens; n++) {
        vf bv[WIDE];
        for (int j = 0; j < WIDE; j++) {
            __builtin_prefetch(wide + AHEAD * width + j * VL);
            bv[j] = load_within(wide, j, columns);
        }
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            vf av = vf_all(narrow[i]);
            for (int j = 0; j < WIDE; j++)
                acc[i][j] += av * bv[j];
        }
        narrow += MOST_ROWS;
        wide += width;
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDE; j++)
            vf_store(sums + i * GRADS_COLUMNS + j * VL, acc[i][j]);
}

ALWAYS_INLINE void grads_tile_of(
        float *sums, const float *narrow, const elem *wide, int64_t width,
        int columns, int tokens)
{
    if (columns == STRIP)
        grads_tile(sums, narrow, wide, width, STRIP, tokens);
    else
        grads_tile(sums, narrow, wide, width, columns, tokens);
}

static void grads_store(
        const struct grads *g, const float *sums, int column, int columns)
{
    size_t r = (size_t)g->r, width = (size_t)g->width;
    for (size_t i = 0; i < r; i++)
        for (size_t c = 0; c < (size_t)columns; c++) {
            size_t at = (size_t)column + c;
            float *o =
                    g->out + (g->is_transposed ? at * r + i : i * width + at);
            float sum = sums[i * GRADS_COLUMNS + c];
            *o = g->accumulate ? *o + sum : sum;
        }
}

static void grads_columns(const struct grads *g, int column, int columns)
{
    float sums[MOST_ROWS * GRADS_COLUMNS] = {0};
    float narrow[GRADS_TOKENS * MOST_ROWS] = {0};
    for (int n = 0; n < g->tokens; n += GRADS_TOKENS) {
        int tokens =
                g->tokens - n < GRADS_TOKENS ? g->tokens - n : GRADS_TOKENS;
        for (int i = 0; i < tokens; i++)
            widen(narrow + i * MOST_ROWS,
                  g->narrow + (size_t)(n + i) * (size_t)g->r, g->r);
        for (int c = 0; c < columns; c += STRIP)
            for (int i = 0; i < g->r; i += ROWS)
                grads_tile_of(
                        sums + i * GRADS_COLUMNS + c, narrow + i,
                        g->wide + (size_t)n * (size_t)g->width + column + c,
                        g->width, columns - c < STRIP ? columns - c : STRIP,
                        tokens);
    }
    grads_store(g, sums, column, columns);
}

static void grads_run(const struct matmul *p, int threads)
{
    bool is_transposed = p->N <= NARROW_MOST;
    struct grads g = {
            .narrow = is_transposed ? p->b.data : p->a.data,
            .wide = is_transposed ? p->a.data : p->b.data,
            .r = is_transposed ? p->N : p->M,
            .width = is_transposed ? p->M : p->N,
            .tokens = p->K,
            .out = p->out.data,
            .is_transposed = is_transposed,
            .accumulate = p->accumulate};
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int c = 0; c < g.width; c += GRADS_COLUMNS)
        grads_columns(
                &g, c,
                g.width - c < GRADS_COLUMNS ? g.width - c : GRADS_COLUMNS);
}

/* -------------------------------------------------------------------------- */

static void rows_run(
        const struct matmul *p, int threads,
        void (*run)(const struct matmul *, int, int))
{
    int share = (p->M + threads - 1) / threads;
    int blocks = (share + BLOCK - 1) / BLOCK;
    int block = ((share + blocks - 1) / blocks + TALL - 1) / TALL * TALL;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int m = 0; m < p->M; m += block)
        run(p, m, p->M - m < block ? p->M - m : block);
}

bool FAST(narrow_run)(const struct matmul *p)
{
    enum narrow kind = narrow_kind(p);
    int threads = threads_for((size_t)p->M * (size_t)p->N * (size_t)p->K / 16);
    if (kind == NARROW_SUMS)
        rows_run(p, threads, sums_block);
    else if (kind == NARROW_SPREAD)
        rows_run(p, threads, spread_block);
    else if (kind == NARROW_GRADS)
        grads_run(p, threads);
    return kind != NARROW_NONE;
}
