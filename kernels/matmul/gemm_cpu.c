/* gemm_cpu.c - our own matrix product, packed and blocked for the caches.
 *
 *   for each TILE_M rows of out                    (all of them when it is
 * fp32) for each NC columns of out                     out tile: last-level
 * cache for each KC of K                              b panels: last-level
 * cache for each MC rows, for a part of the panels    a block: L2, of one
 * thread for each panel of NR columns                 b panel: L1 for each MR
 * rows                            tile: registers
 *
 * Source: Goto, van de Geijn 2008, doi:10.1145/1356052.1356053; Van Zee 2015.
 * Operands of either type and orientation are copied into fp32 panels, so bf16
 * and fp16 cost only the widening. Threads share out the innermost two blocks;
 * the cuts of K depend on K alone, so every element is summed in one order. */
#include "kernels/matmul/gemm_cpu.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/narrow_cpu.h"
#include "kernels/matmul/rows_cpu.h"
#include "kernels/matmul/scratch.h"

matmul_fn FAST(matmul);

/* Best of 256, 384 and 512 for KC, and 1024 for NC, on Zen 3 (32 KiB L1, 512
 * KiB L2): GPT-2's products at M = 1024 then run at 175-182 GF/s of 2 cores. */
enum { KC = 384, MC = 96, NC = 1024, TILE_M = 768 };

struct gemm {
    const elem *a, *b, *bias;
    void *out;
    enum dtype out_type;
    int M, N, K;
    bool trans_a, trans_b, accumulate;
    float *panels; /* KC x NC of b, in panels of NR columns */
    float *blocks; /* MC x KC of a for each thread, in panels of MR rows */
    float *tile;   /* TILE_M x NC sums when out is not fp32 */
};

/* One innermost step: which part of the product it adds. */
struct part {
    int row, rows;       /* of out: one a block */
    int column, columns; /* of out: the panels at hand */
    int k, depth;
    const float *bias; /* of these columns: added at k = 0; or NULL */
    float *sums;       /* of out or tile, at (row, column) */
    int64_t stride;
    bool add;
};

static size_t panel_floats(void)
{
    return (size_t)KC * (NC + NR);
}

static size_t block_floats(void)
{
    return (size_t)KC * (MC + MR);
}

size_t FAST(gemm_scratch_bytes)(int threads)
{
    size_t tile = ELEM_DTYPE == DTYPE_FP32 ? 0 : (size_t)TILE_M * NC;
    return (panel_floats() + block_floats() * (size_t)threads + tile) *
           sizeof(float);
}

static void pack_a(
        const struct gemm *g, float *block, int row, int rows, int k, int depth)
{
    for (int i = 0; i < rows; i += MR) {
        int r = rows - i < MR ? rows - i : MR;
        float *panel = block + (size_t)i * depth;
        if (g->trans_a)
            pack_rows(
                    panel, MR, g->a + (size_t)k * g->M + row + i, g->M, r,
                    depth);
        else
            pack_transposed(
                    panel, MR, g->a + (size_t)(row + i) * g->K + k, g->K, r,
                    depth);
    }
}

static void pack_b_panel(
        const struct gemm *g, float *panel, int column, int columns, int k,
        int depth)
{
    int c = columns < NR ? columns : NR;
    if (g->trans_b)
        pack_transposed(
                panel, NR, g->b + (size_t)column * g->K + k, g->K, c, depth);
    else
        pack_rows(panel, NR, g->b + (size_t)k * g->N + column, g->N, c, depth);
}

/* One MR x NR tile at `out`; rows and columns past the edge are dropped. */
static void tile_run(
        float *out, int64_t stride, const float *a, const float *b, int depth,
        const float *bias, bool add, int rows, int columns)
{
    vf acc[MR][NV];
    memset(acc, 0, sizeof acc);
    for (int i = 0; i < rows; i++)
        __builtin_prefetch(out + i * stride + NR - 1, 1);
    tile_multiply(acc, a, 1, MR, b, NR, depth);
    if (bias)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++)
                acc[i][j] += vf_load(bias + j * VL);
    if (rows == MR && columns == NR) {
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NV; j++) {
                float *o = out + i * stride + j * VL;
                vf_store(o, add ? vf_load(o) + acc[i][j] : acc[i][j]);
            }
        return;
    }
    float edge[MR][NR];
    memcpy(edge, acc, sizeof edge);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            out[i * stride + j] =
                    add ? out[i * stride + j] + edge[i][j] : edge[i][j];
}

static void part_run(
        const struct part *p, const float *block, const float *panels,
        int first, int last)
{
    for (int c = first; c < last; c += NR)
        for (int i = 0; i < p->rows; i += MR)
            tile_run(
                    p->sums + i * p->stride + c, p->stride,
                    block + (size_t)i * p->depth, panels + (size_t)c * p->depth,
                    p->depth, p->bias ? p->bias + c : NULL, p->add,
                    p->rows - i < MR ? p->rows - i : MR,
                    p->columns - c < NR ? p->columns - c : NR);
}

/* The finished sums of a part, rounded into out. */
static void part_round(
        const struct gemm *g, const struct part *p, int first, int last)
{
    last = last < p->columns ? last : p->columns;
    for (int i = 0; i < p->rows; i++) {
        elem *out = (elem *)g->out + (size_t)(p->row + i) * g->N + p->column;
        for (int c = first; c < last; c += VL)
            store_some(
                    out + c,
                    vf_load_some(p->sums + i * p->stride + c, last - c),
                    last - c);
    }
}

/* KC of K for one tile of out, by all threads of the enclosing region. */
static void depth_run(
        const struct gemm *g, int row0, int rows, int column, int columns,
        const float *bias, int k, int depth)
{
    int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    float *block = g->blocks + block_floats() * (size_t)thread;
    int panels = (columns + NR - 1) / NR, blocks = (rows + MC - 1) / MC;
    /* Four tasks a thread even out their ends; more would pack a again. */
    int shares = (4 * threads + blocks - 1) / blocks;
    shares = shares < panels ? shares : panels;
    int share = (panels + shares - 1) / shares * NR, packed = -1;
#pragma omp for schedule(static)
    for (int i = 0; i < panels; i++)
        pack_b_panel(
                g, g->panels + (size_t)i * NR * depth, column + i * NR,
                columns - i * NR, k, depth);
#pragma omp for schedule(dynamic) collapse(2)
    for (int i = 0; i < blocks; i++)
        for (int s = 0; s < shares; s++) {
            int at = i * MC, first = s * share, last = first + share;
            struct part p = {
                    .row = row0 + at,
                    .rows = rows - at < MC ? rows - at : MC,
                    .column = column,
                    .columns = columns,
                    .k = k,
                    .depth = depth,
                    .bias = k == 0 ? bias : NULL,
                    .add = k > 0 || g->accumulate};
            p.stride = g->out_type == DTYPE_FP32 ? g->N : NC;
            p.sums = g->out_type == DTYPE_FP32
                             ? (float *)g->out + (size_t)p.row * g->N + column
                             : g->tile + (size_t)at * NC;
            if (packed != i)
                pack_a(g, block, p.row, p.rows, k, depth);
            packed = i;
            last = last < panels * NR ? last : panels * NR;
            part_run(&p, block, g->panels, first, last);
            if (g->out_type != DTYPE_FP32 && k + depth == g->K)
                part_round(g, &p, first, last);
        }
}

static void gemm_run(const struct gemm *g)
{
    int cuts = (g->K + KC - 1) / KC;
    int depth = ((g->K + cuts - 1) / cuts + 7) / 8 * 8;
    int tile_m = g->out_type == DTYPE_FP32 ? g->M : TILE_M;
    float bias[NC + NR] = {0};
    for (int row = 0; row < g->M; row += tile_m)
        for (int column = 0; column < g->N; column += NC) {
            int columns = g->N - column < NC ? g->N - column : NC;
            for (int i = 0; g->bias && i < columns; i++)
                bias[i] = elem_to_float(g->bias[column + i]);
            for (int k = 0; k < g->K; k += depth)
                depth_run(
                        g, row, g->M - row < tile_m ? g->M - row : tile_m,
                        column, columns, g->bias ? bias : NULL, k,
                        g->K - k < depth ? g->K - k : depth);
        }
}

enum zd_status FAST(matmul)(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, int M, int N, int K, bool trans_a,
        bool trans_b, bool accumulate)
{
    assert(out_type == DTYPE_FP32 || out_type == ELEM_DTYPE);
    assert(!accumulate || out_type == DTYPE_FP32);
    assert(K > 0);
    if (rows_are_few(M, trans_a)) {
        struct rows_product few = {
                .out = out,
                .out_type = out_type,
                .a = a,
                .b = b,
                .bias = bias,
                .M = M,
                .N = N,
                .K = K,
                .trans_b = trans_b,
                .accumulate = accumulate};
        FAST(rows_run)(&few);
        return ZD_OK;
    }
    struct narrow_product narrow = {
            .out = out,
            .out_type = out_type,
            .a = a,
            .b = b,
            .M = M,
            .N = N,
            .K = K,
            .trans_a = trans_a,
            .trans_b = trans_b,
            .accumulate = accumulate};
    if (!bias && FAST(narrow_run)(&narrow))
        return ZD_OK;
    int threads = threads_for((size_t)M * (size_t)N * (size_t)K / 16);
    struct scratch *scratch = NULL;
    ZD_TRY(scratch_acquire(FAST(gemm_scratch_bytes)(threads), &scratch));
    struct gemm g = {
            .a = a,
            .b = b,
            .bias = bias,
            .out = out,
            .out_type = out_type,
            .M = M,
            .N = N,
            .K = K,
            .trans_a = trans_a,
            .trans_b = trans_b,
            .accumulate = accumulate,
            .panels = scratch_floats(scratch)};
    g.blocks = g.panels + panel_floats();
    g.tile = g.blocks + block_floats() * (size_t)threads;
#pragma omp parallel num_threads(threads)
    gemm_run(&g);
    scratch_release(scratch);
    return ZD_OK;
}
