/* column_sums.cuh - the second stage of sums over rows: partial sums, one row
 * of them for each block of the first stage, added in a fixed order. */
#ifndef ZD_KERNELS_CUDA_COLUMN_SUMS_CUH
#define ZD_KERNELS_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/cuda.cuh"

enum { SUMS_BLOCK = 256, SUMS_WARPS = SUMS_BLOCK / WARP };

/* out(C) [+]= the first C columns of `partials` (pieces, stride), out2(C) [+]=
 * the next C. Either may be NULL. 32 columns to a block; its warps take every
 * eighth piece. */
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

#endif
