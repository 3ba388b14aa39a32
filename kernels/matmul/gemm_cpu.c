/* gemm_cpu.c - our own matmul, packed and blocked for the caches.
 *
 *   for each piece of at most TILE_M rows (of an fp32 out: all of them)
 *     for each piece of at most NC columns: a tile of out, last-level cache
 *       for each piece of at most KC of K: b in panels, last-level cache
 *         for at most MC rows of a thread: a in a block, its L2
 *           for each panel of NR columns of a thread: L1
 *             for each MR rows: sums in registers
 *
 * Source: Goto, van de Geijn 2008, doi:10.1145/1356052.1356053; Van Zee 2015.
 * Operands of either type and orientation are copied into panels of fp32, so
 * that bf16 and fp16 cost only the widening; of pairs of bf16 where the CPU
 * multiplies those (gemm_tile.h). Codes of FP8 become elements, which is exact,
 * and their scales lie after the words of a panel: sums of 128 products are
 * multiplied by them before they are added. Pieces are of equal size, and so is
 * what the threads have of a tile: 1.06 times as fast on two of them as blocks
 * that are handed out. The cuts of K depend on K alone: every element is summed
 * in one order.
 *
 * A few threads each make columns of their own, or rows where out is tall, in
 * which none waits for another before the end: 1.03 times as fast again on two
 * of them for GPT-2's step, where each packs the other operand whole. */
#define TILE_OF_PAIRS
#include "kernels/cpu/fast.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/fp8/fp8_lanes.h"
#include "kernels/matmul/matmul_cpu.h"
#include "kernels/matmul/scratch.h"

#include <limits.h>

matmul_fn FAST(matmul);
gelu_forward_fn FAST(gelu_forward);
gelu_backward_fn FAST(gelu_backward);
reduce_rows_fn FAST(reduce_rows);

/* Best of 256, 384 and 512 for KC, and 1024 for NC, on Zen 3 (32 KiB L1, 512
 * KiB L2): GPT-2's matmuls at M = 1024 then reach 0.9 of two cores' peak.
 * Pairs: best of 256 to 1536 on Zen 5 (48 KiB, 1 MiB), where panels stream from
 * the second-level cache, and most sums never leave the registers. */
enum { WORDS = IN_PAIRS ? 1536 : 384, MC = 96, NC = 1024, TILE_M = 768 };
enum { KC = WORDS * PAIR, BLOCKS = KC / FP8_BLOCK, LINE = 64 };

/* Threads that may work apart, and the columns or rows that each has then at
 * least. */
enum { APART_THREADS = 4, APART_LEAST = 256 };

struct gemm {
    struct matmul of;
    int thread, threads; /* of those that share panels and tile */
    float *panels;       /* KC x NC of b, in panels of NR columns */
    float *block;        /* MC x KC of a, in panels of MR rows: the thread's */
    float *tile;         /* TILE_M x NC sums; or not used: */
    bool uses_tile;      /* sums are of several pieces, and out is not fp32 */
};

/* One innermost step: which part of the matmul it adds. */
struct part {
    int row, rows;        /* of out: one a block */
    int column, columns;  /* of out: the panels at hand */
    int k, words, blocks; /* blocks: of K with scales; 0: it has none */
    const float *bias;    /* of these columns: added at k = 0; or NULL */
    float *sums;          /* of out or tile, at (row, column) */
    elem *rounded;        /* of out instead, where this is all of K */
    int64_t stride;
    bool add;
    bool packs; /* each panel of b just before its first use */
};

static size_t panel_floats(void)
{
    return (size_t)(WORDS + BLOCKS) * (NC + NR);
}

static size_t block_floats(void)
{
    return (size_t)(WORDS + BLOCKS) * (MC + MR);
}

static size_t tile_floats(void)
{
    return ELEM_DTYPE == DTYPE_FP32 ? 0 : (size_t)TILE_M * NC;
}

/* Blocks of all threads, then panels and a tile for all, or for each. */
size_t FAST(gemm_scratch_bytes)(int threads)
{
    size_t count = (size_t)threads;
    size_t sets = threads <= APART_THREADS ? count : 1;
    return (count * block_floats() + sets * (panel_floats() + tile_floats())) *
           sizeof(float);
}

static int words_of(int depth)
{
    return (depth + PAIR - 1) / PAIR;
}

static int blocks_of(const struct gemm *g, int depth)
{
    return matmul_is_fp8(&g->of) ? (int)fp8_blocks((size_t)depth) : 0;
}

/* Rows of a panel, of whatever width: words, then scales. */
static int panel_rows(const struct gemm *g, int depth)
{
    return words_of(depth) + blocks_of(g, depth);
}

/* Of an operand of codes with `sides` rows, the `rows` from `row` on. */
ALWAYS_INLINE void pack_codes(
        float *panel, int width, const struct matmul_operand *o, int sides,
        int K, int row, int rows, int k, int depth)
{
    elem wide[NR * FP8_BLOCK];
    float *scales = panel + (size_t)words_of(depth) * (size_t)width;
    const uint8_t *codes = (const uint8_t *)o->data + (size_t)row * (size_t)K;
    for (int at = 0; at < depth; at += FP8_BLOCK, scales += width) {
        int n = depth - at < FP8_BLOCK ? depth - at : FP8_BLOCK;
        for (int r = 0; r < rows; r++) {
            fp8_widen(
                    wide + r * FP8_BLOCK,
                    codes + (size_t)r * (size_t)K + k + at, o->type, n);
            scales[r] = o->scales[fp8_scale_at(
                    o->layout, (size_t)sides, (size_t)K, (size_t)(row + r),
                    (size_t)(k + at))];
        }
        for (int r = rows; r < width; r++)
            scales[r] = 0;
        pack_transposed(
                panel + (size_t)(at / PAIR) * (size_t)width, width, wide,
                FP8_BLOCK, rows, n);
    }
}

static void pack_a(
        const struct gemm *g, float *block, int row, int rows, int k, int depth)
{
    for (int i = 0; i < rows; i += MR) {
        int r = rows - i < MR ? rows - i : MR;
        float *panel = block + (size_t)i * (size_t)panel_rows(g, depth);
        if (matmul_is_fp8(&g->of))
            pack_codes(
                    panel, MR, &g->of.a, g->of.M, g->of.K, row + i, r, k,
                    depth);
        else if (g->of.a.transposed)
            pack_rows(
                    panel, MR,
                    (const elem *)g->of.a.data + (size_t)k * g->of.M + row + i,
                    g->of.M, r, depth);
        else
            pack_transposed(
                    panel, MR,
                    (const elem *)g->of.a.data + (size_t)(row + i) * g->of.K +
                            k,
                    g->of.K, r, depth);
    }
}

static void pack_b_panel(
        const struct gemm *g, float *panel, int column, int columns, int k,
        int depth)
{
    int c = columns < NR ? columns : NR;
    if (matmul_is_fp8(&g->of))
        pack_codes(panel, NR, &g->of.b, g->of.N, g->of.K, column, c, k, depth);
    else if (g->of.b.transposed)
        pack_transposed(
                panel, NR,
                (const elem *)g->of.b.data + (size_t)column * g->of.K + k,
                g->of.K, c, depth);
    else
        pack_rows(
                panel, NR,
                (const elem *)g->of.b.data + (size_t)k * g->of.N + column,
                g->of.N, c, depth);
}

/* Panels [begin, end) of `columns` of b from `column` on. */
static void pack_b(
        const struct gemm *g, int column, int columns, int k, int depth,
        int begin, int end)
{
    for (int i = begin; i < end; i++)
        pack_b_panel(
                g, g->panels + (size_t)(i * NR) * (size_t)panel_rows(g, depth),
                column + i * NR, columns - i * NR, k, depth);
}

/* --- what is packed next ------------------------------------------------- */

/* Lines of memory that are packed next. Tiles fetch them into the second-level
 * cache, a few at a time, while they multiply: the CPU's own prefetchers do not
 * follow rows so far apart. 1.05 times as fast for GPT-2's matmuls on Zen 5. */
struct ahead {
    const char *first, *at; /* one line of each row, then the next of each */
    int64_t stride;
    int rows, row;
    int left, pace; /* lines in all, and in each of a tile's MR turns */
};

/* `count` of an operand's `sides` rows or columns from `side` on, and `depth`
 * of K, while so many tiles are multiplied. k_along: K is the inner side. */
static struct ahead ahead_of(
        const struct gemm *g, const struct matmul_operand *o, bool k_along,
        int sides, int side, int count, int k, int depth, int tiles)
{
    if (VL != 16 || matmul_is_fp8(&g->of) || !tiles || count <= 0)
        return (struct ahead){0};
    size_t stride = (size_t)(k_along ? g->of.K : sides) * sizeof(elem);
    size_t along = (size_t)(k_along ? k : side);
    size_t down = (size_t)(k_along ? side : k);
    size_t bytes = (size_t)(k_along ? depth : count) * sizeof(elem);
    const char *from =
            (const char *)o->data + down * stride + along * sizeof(elem);
    size_t before = (uintptr_t)from % LINE;
    struct ahead a = {
            .first = from - before,
            .at = from - before,
            .stride = (int64_t)stride,
            .rows = k_along ? count : depth};
    a.left = a.rows * (int)((before + bytes + LINE - 1) / LINE);
    a.pace = a.left / (tiles * MR) + 1;
    return a;
}

ALWAYS_INLINE void ahead_fetch(struct ahead *a)
{
    int count = a->left < a->pace ? a->left : a->pace;
    a->left -= count;
    for (; count > 0; count--) {
        __builtin_prefetch(a->at, 0, 2);
        a->at += a->stride;
        if (++a->row == a->rows)
            a->row = 0, a->at = a->first += LINE;
    }
}

/* --- tiles ---------------------------------------------------------------- */

/* Where a tile goes: `rows` by `columns` of it. */
struct place {
    float *sums;   /* or NULL: */
    elem *rounded; /* instead */
    int64_t stride;
    int rows, columns;
    bool add;
    struct ahead *a_next, *b_next;
};

/* Elements of row i of a tile. */
ALWAYS_INLINE void tile_put_row(
        const struct place *to, int i, const vf sums[NV], int columns)
{
    for (int j = 0; j < NV && j * VL < columns; j++) {
        int64_t at = i * to->stride + j * VL;
        int count = columns - j * VL;
        if (to->rounded)
            store_some(to->rounded + at, sums[j], count);
        else if (to->add)
            vf_store_some(
                    to->sums + at, vf_load_some(to->sums + at, count) + sums[j],
                    count);
        else
            vf_store_some(to->sums + at, sums[j], count);
    }
}

/* One MR x NR tile, from `words` of two panels and, unless NULL, the scales of
 * their rows and columns. */
ALWAYS_INLINE void tile_run(
        const struct place *to, const float *a, const float *b, int words,
        const float *a_scales, const float *b_scales, const float *bias)
{
    vf acc[MR][NV];
    tile_clear(acc);
    int step = VL == 16 ? words / MR : 0; /* many lines at once would stall */
    for (int i = 0; i < MR; i++) {
        if (to->sums) {
            const float *row = to->sums + (i < to->rows ? i : 0) * to->stride;
            __builtin_prefetch(row, 1);
            __builtin_prefetch(row + NR - 1, 1);
        }
        ahead_fetch(to->a_next);
        ahead_fetch(to->b_next);
        tile_multiply(acc, a, 1, MR, b, NR, step);
        a += step * MR, b += step * NR, words -= step;
    }
    tile_multiply(acc, a, 1, MR, b, NR, words);
    if (a_scales)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                acc[i][j] *= a_scales[i] * vf_load(b_scales + j * VL);
    if (bias)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                acc[i][j] += vf_load(bias + j * VL);
    if (to->rows == MR && to->columns == NR) {
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
            tile_put_row(to, i, acc[i], NR);
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
            if (i < to->rows)
                tile_put_row(to, i, acc[i], to->columns);
    }
}

/* Words of a panel that are summed before they are scaled. */
enum { BLOCK_WORDS = FP8_BLOCK / PAIR };

/* A tile over the piece of K at hand, block by block where there are scales. */
static void tile_of_part(
        const struct part *p, struct place to, const float *a, const float *b,
        const float *bias)
{
    const float *a_scales = a + (size_t)p->words * MR;
    const float *b_scales = b + (size_t)p->words * NR;
    if (!p->blocks) {
        tile_run(&to, a, b, p->words, NULL, NULL, bias);
        return;
    }
    for (int i = 0; i < p->blocks; i++) {
        int word = i * BLOCK_WORDS, words = p->words - word;
        tile_run(
                &to, a + word * MR, b + word * NR,
                words < BLOCK_WORDS ? words : BLOCK_WORDS, a_scales + i * MR,
                b_scales + i * NR, i == 0 ? bias : NULL);
        to.add = true;
    }
}

/* `depth` of K; a_next: of the block after it. */
static void part_run(
        const struct gemm *g, const struct part *p, int first, int last,
        int depth, struct ahead *a_next)
{
    size_t deep = (size_t)(p->words + p->blocks);
    const float *block = g->block;
    for (int c = first; c < last; c += NR) {
        float *panel = g->panels + (size_t)c * deep;
        struct ahead b_next = {0};
        if (p->packs) {
            pack_b_panel(g, panel, p->column + c, p->columns - c, p->k, depth);
            int rest = p->columns - c - NR;
            b_next = ahead_of(
                    g, &g->of.b, g->of.b.transposed, g->of.N,
                    p->column + c + NR, rest < NR ? rest : NR, p->k, depth,
                    (p->rows + MR - 1) / MR);
        }
        for (int i = 0; i < p->rows; i += MR) {
            int64_t at = i * p->stride + c;
            struct place to = {
                    .sums = p->sums ? p->sums + at : NULL,
                    .rounded = p->rounded ? p->rounded + at : NULL,
                    .stride = p->stride,
                    .rows = p->rows - i < MR ? p->rows - i : MR,
                    .columns = p->columns - c < NR ? p->columns - c : NR,
                    .add = p->add,
                    .a_next = a_next,
                    .b_next = &b_next};
            tile_of_part(
                    p, to, block + (size_t)i * deep, panel,
                    p->bias ? p->bias + c : NULL);
        }
    }
}

/* The finished sums of a part, rounded into out. */
static void part_round(
        const struct gemm *g, const struct part *p, int first, int last)
{
    last = last < p->columns ? last : p->columns;
    for (int i = 0; i < p->rows; i++) {
        elem *out = (elem *)g->of.out.data + (size_t)(p->row + i) * g->of.N +
                    p->column;
        for (int c = first; c < last; c += VL)
            store_some(
                    out + c,
                    vf_load_some(p->sums + i * p->stride + c, last - c),
                    last - c);
    }
}

/* Where share i of `count` tiles begins, of as many equal shares as `parts`. */
static int share_begin(int count, int parts, int i)
{
    return (int)((int64_t)count * i / parts);
}

/* How threads stand beside one another on a tile of out: `down` of them share
 * its rows and `threads / down` its columns. Threads side by side each pack the
 * rows that they have in common, which costs what PACK panels do. */
static int threads_down(int threads, int row_tiles, int panels)
{
    enum { PACK = 2 };
    int best = 1, best_work = INT_MAX;
    for (int down = threads; down > 0; down--) {
        int across = threads / down;
        int tall = (row_tiles + down - 1) / down;
        int wide = (panels + across - 1) / across;
        int work = tall * (wide + PACK);
        if (across * down == threads && work < best_work) {
            best = down;
            best_work = work;
        }
    }
    return best;
}

static void wait_for_others(const struct gemm *g)
{
    if (g->threads > 1) {
#pragma omp barrier
    }
}

/* KC of K for one tile of out, by the threads that share it. */
static void depth_run(
        const struct gemm *g, int row0, int rows, int column, int columns,
        const float *bias, int k, int depth)
{
    int thread = g->thread, threads = g->threads;
    int panels = (columns + NR - 1) / NR, tiles = (rows + MR - 1) / MR;
    int down = threads_down(threads, tiles, panels), across = threads / down;
    int begin = share_begin(tiles, down, thread / across) * MR;
    int end = share_begin(tiles, down, thread / across + 1) * MR;
    int first = share_begin(panels, across, thread % across) * NR;
    int last = share_begin(panels, across, thread % across + 1) * NR;
    int blocks = (end - begin + MC - 1) / MC;
    end = end < rows ? end : rows;
    if (threads > 1)
        pack_b(g, column, columns, k, depth,
               share_begin(panels, threads, thread),
               share_begin(panels, threads, thread + 1));
    wait_for_others(g);
    for (int i = 0; i < blocks; i++) {
        int height = (end - begin + MR - 1) / MR;
        int at = begin + share_begin(height, blocks, i) * MR;
        int next = begin + share_begin(height, blocks, i + 1) * MR;
        struct part p = {
                .row = row0 + at,
                .rows = (next < end ? next : end) - at,
                .column = column,
                .columns = columns,
                .k = k,
                .words = words_of(depth),
                .blocks = blocks_of(g, depth),
                .bias = k == 0 ? bias : NULL,
                .add = k > 0 || g->of.accumulate,
                .packs = threads == 1 && i == 0};
        size_t to = (size_t)p.row * (size_t)g->of.N + (size_t)column;
        p.stride = g->uses_tile ? NC : g->of.N;
        if (g->uses_tile)
            p.sums = g->tile + (size_t)at * NC;
        else if (g->of.out.type == DTYPE_FP32)
            p.sums = (float *)g->of.out.data + to;
        else
            p.rounded = (elem *)g->of.out.data + to;
        pack_a(g, g->block, p.row, p.rows, k, depth);
        int after = begin + share_begin(height, blocks, i + 2) * MR;
        struct ahead a_next = ahead_of(
                g, &g->of.a, !g->of.a.transposed, g->of.M, row0 + next,
                i + 1 == blocks ? 0 : (after < end ? after : end) - next, k,
                depth, (p.rows + MR - 1) / MR * ((last - first) / NR));
        part_run(g, &p, first, last, depth, &a_next);
        if (g->uses_tile && k + depth == g->of.K)
            part_round(g, &p, first, last);
    }
    wait_for_others(g);
}

/* The length of equal pieces of `count`, none longer than `most`, each of whole
 * tiles of `of`. */
static int piece_of(int count, int most, int of)
{
    int pieces = (count + most - 1) / most;
    return ((count + pieces - 1) / pieces + of - 1) / of * of;
}

/* A part of out. */
struct area {
    int row, end_row, column, end_column;
};

static void area_run(const struct gemm *g, struct area of)
{
    int depth = piece_of(g->of.K, KC, matmul_is_fp8(&g->of) ? FP8_BLOCK : 8);
    int wide = piece_of(of.end_column - of.column, NC, NR);
    int tall = of.end_row - of.row;
    float bias[NC + NR] = {0};
    if (g->uses_tile)
        tall = piece_of(tall, TILE_M, MR);
    for (int row = of.row; row < of.end_row; row += tall)
        for (int column = of.column; column < of.end_column; column += wide) {
            int rest = of.end_column - column;
            int columns = rest < wide ? rest : wide;
            for (int i = 0; g->of.bias && i < columns; i++)
                bias[i] = elem_to_float(((const elem *)g->of.bias)[column + i]);
            for (int k = 0; k < g->of.K; k += depth)
                depth_run(
                        g, row,
                        of.end_row - row < tall ? of.end_row - row : tall,
                        column, columns, g->of.bias ? bias : NULL, k,
                        g->of.K - k < depth ? g->of.K - k : depth);
        }
}

/* Whether each of `threads` computes a separate part of out, from separate
 * panels. */
static bool works_apart(const struct gemm *g, int threads)
{
    int side = g->of.N > g->of.M ? g->of.N : g->of.M;
    return threads <= APART_THREADS && side >= threads * APART_LEAST;
}

/* Share `share` of `threads`, each with its own columns or rows. */
static void share_run(
        const struct gemm *g, float *memory, int threads, int share)
{
    struct gemm own = *g;
    struct area of = {0, g->of.M, 0, g->of.N};
    bool by_rows = g->of.M > g->of.N;
    int side = by_rows ? g->of.M : g->of.N, unit = by_rows ? MR : NR;
    int tiles = (side + unit - 1) / unit;
    int first = share_begin(tiles, threads, share) * unit;
    int last = share_begin(tiles, threads, share + 1) * unit;
    last = last < side ? last : side;
    if (by_rows)
        of.row = first, of.end_row = last;
    else
        of.column = first, of.end_column = last;
    own.threads = 1, own.thread = 0;
    own.block = memory + (size_t)share * block_floats();
    own.panels = memory + (size_t)threads * block_floats() +
                 (size_t)share * (panel_floats() + tile_floats());
    own.tile = own.panels + panel_floats();
    area_run(&own, of);
}

/* By each thread of the enclosing region, all columns together. */
static void team_run(const struct gemm *g, float *memory, int threads)
{
    struct gemm own = *g;
    own.thread = omp_get_thread_num(), own.threads = omp_get_num_threads();
    assert(own.threads <= threads);
    own.block = memory + (size_t)own.thread * block_floats();
    own.panels = memory + (size_t)threads * block_floats();
    own.tile = own.panels + panel_floats();
    area_run(&own, (struct area){0, g->of.M, 0, g->of.N});
}

/* Scratch is for `threads`; OpenMP may start fewer (OMP_THREAD_LIMIT,
 * OMP_DYNAMIC). The layout of scratch follows `threads`, never the team. */
static enum zd_status gemm_run(struct gemm *g)
{
    int threads = threads_for(
            (size_t)g->of.M * (size_t)g->of.N * (size_t)g->of.K / 16);
    struct scratch *scratch = NULL;
    ZD_TRY(scratch_acquire(FAST(gemm_scratch_bytes)(threads), &scratch));
    float *memory = scratch_floats(scratch);
    g->uses_tile = g->of.out.type != DTYPE_FP32 &&
                   (g->of.K > KC || matmul_is_fp8(&g->of));
    if (works_apart(g, threads)) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int i = 0; i < threads; i++)
            share_run(g, memory, threads, i);
    } else {
#pragma omp parallel num_threads(threads)
        team_run(g, memory, threads);
    }
    scratch_release(scratch);
    return ZD_OK;
}

enum zd_status FAST(matmul)(struct stream *stream, const struct matmul *m)
{
    static const struct matmul_parts parts = {
            FAST(matmul), FAST(gelu_forward), FAST(gelu_backward),
            FAST(reduce_rows)};
    assert((m->a.type == ELEM_DTYPE && m->b.type == ELEM_DTYPE) ||
           (ELEM_DTYPE == DTYPE_BF16 && matmul_fp8_is_legal(m)));
    assert(m->out.type == DTYPE_FP32 || m->out.type == ELEM_DTYPE);
    assert(!m->accumulate || m->out.type == DTYPE_FP32);
    assert(m->K > 0 && !matmul_has_gaps(m));
    if (m->epilogue != MATMUL_PLAIN)
        return matmul_by_parts(&parts, stream, m);
    if (matmul_is_fp8(m))
        return gemm_run(&(struct gemm){.of = *m});
    if (rows_are_few(m)) {
        FAST(rows_run)(m);
        return ZD_OK;
    }
    if (FAST(narrow_run)(m))
        return ZD_OK;
    return gemm_run(&(struct gemm){.of = *m});
}
