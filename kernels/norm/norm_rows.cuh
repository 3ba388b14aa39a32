/* norm_rows.cuh - how the threads of a block divide the rows of a norm.
 *
 * A row belongs to a team of `lanes` neighboring threads (a power of two) and
 * stays in their registers: thread i of the team has the packs i, i + lanes,
 * ... of W elements, PACKS of them at most. A block of 256 threads has 256 /
 * lanes teams with a row each. Rows of q and k norms (64 elements) have teams
 * of 8 threads, rows of 4096 teams of 128.
 *
 * Teams of at most 32 sum by shuffles. Larger ones use shared memory and
 * barriers, which all threads of the block must reach, also those without a
 * row. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/norm/norm.h"
}

enum {
    NORM_BLOCK = 256,
    NORM_WARPS = NORM_BLOCK / WARP,
    NORM_COLUMNS = 32,          /* most per thread, in packs */
    NORM_BACKWARD_COLUMNS = 16, /* the same where sums need registers too */
    NORM_SINGLES = 8, /* most per thread if rows cannot be read in packs */
    NORM_MIN_LANES = 8
};

/* Sums of two values over a team. shared: 2 NORM_WARPS floats. */
static __device__ inline void team_sum(
        float *a, float *b, int lanes, float (*shared)[NORM_WARPS])
{
    int within = lanes < WARP ? lanes : WARP;
    *a = lanes_sum(*a, within);
    *b = lanes_sum(*b, within);
    if (lanes <= WARP)
        return;
    int warp = warp_of_block(), warps = lanes / WARP;
    __syncthreads(); /* earlier sums have been read */
    if (lane_of_warp() == 0) {
        shared[0][warp] = *a;
        shared[1][warp] = *b;
    }
    __syncthreads();
    int first = warp / warps * warps;
    *a = *b = 0.0f;
    for (int w = first; w < first + warps; w++) {
        *a += shared[0][w];
        *b += shared[1][w];
    }
}

/* The smallest team whose threads hold a row of C elements in packs of W with
 * at most `columns` each; the largest team may hold more. 0: the row is too
 * long (use the kernels of long rows). */
static inline int norm_lanes(int C, int W, int columns)
{
    int64_t most = W == 1 ? NORM_SINGLES : columns;
    int lanes = NORM_MIN_LANES;
    while (lanes < NORM_BLOCK && lanes * most < C)
        lanes *= 2;
    return lanes * (int64_t)(W == 1 ? NORM_SINGLES : NORM_COLUMNS) < C ? 0
                                                                       : lanes;
}

/* Packs of a thread: those of the row divided among the team. */
static inline int norm_packs(int C, int W, int lanes)
{
    return (int)ceil_div(ceil_div(C, W), lanes);
}

/* The factor of an rmsnorm weight, and x * rstd times it. */
static __device__ inline float norm_factor(float weight, enum rmsnorm_form form)
{
    return form == RMSNORM_ONE_PLUS ? 1.0f + weight : weight;
}

template <typename T>
static __device__ inline float norm_scaled(
        float x, float weight, enum rmsnorm_form form)
{
    float xhat = form == RMSNORM_ROUND_FIRST ? rounded_to<T>(x) : x;
    return xhat * norm_factor(weight, form);
}

/* The token of head row n. */
static __device__ inline int64_t norm_token(int64_t n, int heads)
{
    return (unsigned)n / (unsigned)heads;
}

/* Calls `run` with the smallest compiled count of packs per thread that is at
 * least `packs`, as a type. */
template <typename T, typename RUN>
static enum zd_status by_packs(int packs, const RUN &run)
{
    const int MOST = NORM_COLUMNS / full_width<T>::value;
    if (packs <= MOST / 4)
        return run(constant<MOST / 4>());
    if (packs <= MOST / 2)
        return run(constant<MOST / 2>());
    if (packs <= MOST / 4 * 3)
        return run(constant<MOST / 4 * 3>());
    return run(constant<MOST>());
}
