/* attention_mma_tiles.cuh - tiles of attention's rows in shared memory, and the
 * operations of a block's warps on them by tensor cores.
 *
 * A block has 4 or 8 warps. Each warp owns 16 M queries (or keys) and
 * combines them with tiles of N keys (or queries). A warp computes the
 * scores of its rows and keeps them in registers: the accumulators of the first
 * product have the layout of the left operand of the next, so weights never
 * pass through shared memory. Rows in shared memory are DP + 8 elements apart,
 * so that the 8 rows of an ldmatrix are in different banks
 * (tests/cuda/emulate_mma.h checks it).
 *
 * These matmuls are limited by shared memory: an mma (16 x 8 x 16) reads 256
 * bytes of the other side, shared by M of them, and 4096 / N bytes of its own,
 * or none if that operand comes from registers; a multiprocessor reads 128
 * bytes per clock and needs 2 clocks (A100) or about 1.6 (H100: mma.sync
 * reaches 63 % of its peak, Luo et al., arXiv:2402.13499) per mma. So M = 2
 * wherever the registers suffice, else a large N.
 *
 * GPUs with 100 KiB of shared memory per multiprocessor (sm_86, 89, 120) have
 * room for one such block, and four warps are too few to hide latency. Their
 * tensor cores need 4 or 8 clocks per mma, so shared memory is not the limit:
 * there M = 1, and 8 warps share the rows of 4. */
#pragma once

#include "kernels/attention/attention_cuda.cuh"
#include "kernels/cuda/mma.cuh"

/* The head size and all strides are multiples of 8. */
template <typename E_, int DP_, int M_, int N_, int WARPS_ = 4>
struct mma_shape {
    typedef E_ E;
    static constexpr int DP = DP_; /* head size, rounded up with zeros */
    static constexpr int M = M_, N = N_, WARPS = WARPS_, THREADS = 32 * WARPS;
    static constexpr int WARP_ROWS = 16 * M, OWN = WARPS * WARP_ROWS;
    static constexpr int ROW = DP + 8;
    static constexpr int OWN_TILE = OWN * ROW, OTHER_TILE = N * ROW;
    static constexpr int COLUMNS = N / 8, D_COLUMNS = DP / 8;
};

/* --- tiles ---------------------------------------------------------------- */

/* Copies rows first .. first + ROWS - 1 of `from`, with zeros beyond `count`
 * rows and D. A thread copies a chunk of every STEP-th row by advancing a
 * pointer: the compiler would keep precomputed row offsets in registers during
 * the caller's loop. */
template <typename S, int ROWS, typename E>
__device__ __forceinline__ void tile_fetch(
        E *tile, const E *from, int64_t stride, int first, int count, int D)
{
    constexpr int CHUNKS = S::DP / 8, STEP = S::THREADS / CHUNKS;
    int r = (int)threadIdx.x / CHUNKS, d = (int)threadIdx.x % CHUNKS * 8;
    const E *row = from + (first + r) * stride + d;
    tile += r * S::ROW + d;
    if (r >= STEP)
        return;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, row += STEP * stride)
        if (ROWS % STEP == 0 || r + i < ROWS)
            copy_async_16(
                    tile + i * S::ROW, row, first + r + i < count && d < D);
}

/* score = (this warp's rows of `own`) (rows of `other`)' */
template <typename S, typename E>
__device__ __forceinline__ void rows_dot(
        float (&score)[S::M][S::COLUMNS][4], const E *own, const E *other)
{
    int lane = threadIdx.x & 31;
    own += ((int)threadIdx.x / 32 * S::WARP_ROWS + (lane & 15)) * S::ROW +
           (lane >> 4) * 8;
    other += ((lane >> 4) * 8 + (lane & 7)) * S::ROW + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[m][n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < S::DP; d += 16) {
        uint32_t a[S::M][4], b[4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            ldmatrix_x4(a[m], own + m * 16 * S::ROW + d);
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n += 2) {
            ldmatrix_x4(b, other + n * 8 * S::ROW + d);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma_16x8x16(E(), score[m][n], a[m], b[0], b[1]);
                mma_16x8x16(E(), score[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum += weight (rows of `other`), weights rounded to E. */
template <typename S, typename E>
__device__ __forceinline__ void rows_add(
        float (&sum)[S::M][S::D_COLUMNS][4],
        const float (&weight)[S::M][S::COLUMNS][4], const E *other)
{
    int lane = threadIdx.x & 31;
    other += (lane & 15) * S::ROW + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < S::N; k += 16) {
        uint32_t a[S::M][4], b[4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *w = &weight[m][k / 8 + i / 2][i % 2 * 2];
                a[m][i] = two_elements(E(), w[0], w[1]);
            }
#pragma unroll
        for (int d = 0; d < S::D_COLUMNS; d += 2) {
            ldmatrix_x4_trans(b, other + k * S::ROW + d * 8);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma_16x8x16(E(), sum[m][d], a[m], b[0], b[1]);
                mma_16x8x16(E(), sum[m][d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Stores this warp's sums, each row times its factor (a thread has two rows per
 * m), to its rows of `to`. They pass through the warp's own rows of `tile`,
 * which no other warp reads any more, so that stores are whole packs. */
template <typename S, typename E>
__device__ __forceinline__ void rows_store(
        E *to, int64_t stride, int first, int count, int D, E *tile,
        const float (&sum)[S::M][S::D_COLUMNS][4],
        const float (&factor)[S::M][2])
{
    constexpr int PACK = 8, CHUNKS = S::DP / PACK;
    int lane = threadIdx.x & 31, row0 = (int)threadIdx.x / 32 * S::WARP_ROWS;
    tile += row0 * S::ROW;
    __syncwarp(ALL_LANES);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::D_COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                E *at = tile + (m * 16 + i * 8 + lane / 4) * S::ROW + n * 8 +
                        lane % 4 * 2;
                *(uint32_t *)at = two_elements(
                        E(), factor[m][i] * sum[m][n][2 * i],
                        factor[m][i] * sum[m][n][2 * i + 1]);
            }
    __syncwarp(ALL_LANES);
    for (int i = lane; i < S::WARP_ROWS * CHUNKS; i += 32) {
        int r = i / CHUNKS, d = i % CHUNKS * PACK, row = first + row0 + r;
        if (row < count && d < D)
            store_pack<PACK>(
                    to + row * stride + d,
                    load_pack<PACK>(tile + r * S::ROW + d));
    }
}

template <int M, int N>
__device__ __forceinline__ void sums_clear(float (&sum)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0.0f;
}

/* Row i (0, 1) of this thread in tile m of its warp; its columns are 8 n +
 * column_of_thread() + 0, 1. */
template <typename S> __device__ __forceinline__ int own_row(int m, int i)
{
    int warp = (int)threadIdx.x / 32, lane = threadIdx.x & 31;
    return warp * S::WARP_ROWS + m * 16 + i * 8 + lane / 4;
}

__device__ __forceinline__ int column_of_thread(void)
{
    return (int)threadIdx.x % 4 * 2;
}

/* tanh x within 2e-7, by two approximate instructions. */
__device__ __forceinline__ float fast_tanh(float x)
{
    return 1.0f - __fdividef(2.0f, 1.0f + fast_exp2(2.0f * LOG2E * x));
}

template <typename S>
__device__ __forceinline__ void scores_cap(
        float (&score)[S::M][S::COLUMNS][4],
        const attention_pass<typename S::E> &p)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[m][n][i] =
                        p.cap_out * fast_tanh(p.cap_in * score[m][n][i]);
}

/* dp adjusted so that dp - delta is multiplied by the cap's slope. */
template <typename E>
__device__ __forceinline__ float sloped(
        const attention_pass<E> &p, float dp, float delta, float score)
{
    return fmaf(dp - delta, cap_slope(p, score), delta);
}

/* Facts of a tile of queries, for a loop that has no registers for them. They
 * are stored after the tile's first row, in its 16 bytes of padding. */
struct tile_facts {
    int token, end; /* the first row's token; the end of keys seen */
    int last_first; /* all rows see the keys from here to `token` */
};

/* The rows of k and v for the tile; stored after its second row. */
template <typename E> struct tile_sources {
    const E *k, *v;
};

/* One thread writes the facts; valid after the next barrier. Returns the first
 * key of the first tile of keys that the queries see. */
template <typename S>
__device__ __forceinline__ int facts_begin(
        typename S::E *tile, const attention_pass<typename S::E> &p,
        const int32_t *starts, int q0)
{
    int last = min(q0 + S::OWN, p.Q) - 1;
    if (threadIdx.x == 0)
        *(tile_facts *)(tile + S::DP) = {
                token_of(p, q0), token_of(p, last) + 1,
                first_of(p, starts, last)};
    return first_of(p, starts, q0) / S::N * S::N;
}

template <typename S>
__device__ __forceinline__ bool is_masked(tile_facts facts, int k0)
{
    return k0 + S::N - 1 > facts.token || k0 < facts.last_first;
}

/* Sets the scores of keys that a row does not see to -inf. starts: doc_start of
 * the sample. */
template <typename S>
__device__ __forceinline__ void scores_mask(
        float (&score)[S::M][S::COLUMNS][4],
        const attention_pass<typename S::E> &p, const int32_t *starts, int q0,
        int k0)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = q0 + own_row<S>(m, i), key0 = k0 + column_of_thread();
            int first = row < p.Q ? first_of(p, starts, row) : p.T;
            int last = token_of(p, row) - key0;
            first -= key0;
#pragma unroll
            for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    if (8 * n + j < first || 8 * n + j > last)
                        score[m][n][2 * i + j] = -INFINITY;
        }
}
