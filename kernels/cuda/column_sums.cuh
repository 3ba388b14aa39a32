/* column_sums.cuh - sums over rows in two stages: each block writes a row of
 * partial sums for a piece of the rows, then the partial sums are added in a
 * fixed order. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
}

enum { SUMS_BLOCK = 256, SUMS_WARPS = SUMS_BLOCK / WARP };

/* out(C) [+]= the first C columns of `partials` (pieces, stride), out2(C) [+]=
 * the next C. Either may be NULL. A block has 32 columns; each of its warps
 * adds every eighth piece. */
static __global__ void sum_pieces_kernel(
        float *out, float *out2, const float *partials, int pieces, int C,
        int stride, bool accumulate)
{
    __shared__ float sums[SUMS_WARPS][WARP];
    int lane = lane_of_warp(), warp = warp_of_block();
    int column = (int)blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (column < stride)
        for (int p = warp; p < pieces; p += SUMS_WARPS)
            sum += partials[(int64_t)p * stride + column];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= stride)
        return;
    for (int w = 1; w < SUMS_WARPS; w++)
        sum += sums[w][lane];
    float *to = column < C ? out : out2;
    if (!to)
        return;
    to += column < C ? column : column - C;
    *to = accumulate ? *to + sum : sum;
}

/* stride is C, or 2 C when there is an out2. */
static inline enum zd_status sum_pieces(
        cudaStream_t stream, float *out, float *out2, const float *partials,
        int pieces, int C, int stride, bool accumulate)
{
    ZD_LAUNCH(
            sum_pieces_kernel, (unsigned)ceil_div(stride, WARP), SUMS_BLOCK, 0,
            stream, out, out2, partials, pieces, C, stride, accumulate);
    return ZD_OK;
}

/* --- the first stage ------------------------------------------------------ */

enum { SUMS_MIN_ROWS = 32 }; /* per piece: four per warp */

/* A block sums a piece of the rows for a tile of columns: a warp covers 32
 * packs of W columns and every eighth row. ROWS has load(v, n, column), the
 * terms of row n for W columns, and factor(column), which multiplies a column's
 * sum. */
template <int W, typename ROWS>
static __global__ void __launch_bounds__(SUMS_BLOCK) column_sums_kernel(
        float *partials, const ROWS rows, int N, int C, int pieces)
{
    __shared__ float sums[SUMS_WARPS][WARP * W];
    int lane = lane_of_warp(), warp = warp_of_block();
    int tile = (int)blockIdx.x / pieces, piece = (int)blockIdx.x % pieces;
    int64_t count = (N + pieces - 1) / pieces, first = piece * count;
    int64_t end = first + count < N ? first + count : N;
    int column = (tile * WARP + lane) * W;
    float sum[W] = {0};
    if (column < C)
        for (int64_t n = first + warp; n < end; n += SUMS_WARPS) {
            float v[W];
            rows.load(v, n, column);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
#pragma unroll
    for (int j = 0; j < W; j++)
        sums[warp][lane * W + j] = sum[j];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < WARP * W; c += SUMS_BLOCK) {
        int at = tile * WARP * W + c;
        float total = 0.0f;
        for (int w = 0; w < SUMS_WARPS; w++)
            total += sums[w][c];
        if (at < C)
            partials[(int64_t)piece * C + at] = rows.factor(at) * total;
    }
}

/* out(C) [+]= the sums of N rows. */
template <int W, typename ROWS>
static enum zd_status column_sums(
        cudaStream_t stream, float *out, const ROWS &rows, int N, int C,
        bool accumulate)
{
    int64_t tiles = ceil_div(C, WARP * W), most = ceil_div(N, SUMS_MIN_ROWS);
    int64_t pieces = REDUCE_TILES / tiles;
    pieces = pieces < most ? pieces : most;
    pieces = pieces < 1 ? 1 : pieces;
    float *partials =
            (float *)cuda_workspace((size_t)pieces * C * sizeof(float));
    assert(partials);
    ZD_LAUNCH(
            (column_sums_kernel<W, ROWS>), (unsigned)(tiles * pieces),
            SUMS_BLOCK, 0, stream, partials, rows, N, C, (int)pieces);
    return sum_pieces(
            stream, out, NULL, partials, (int)pieces, C, C, accumulate);
}
