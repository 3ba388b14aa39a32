/* cuda.cuh - shared by all CUDA kernels: element types and 16-byte packs
 * (packs.cuh), launches, indices, sums over warps and blocks.
 *
 * Kernels are C with templates over the element type, and use no library
 * besides the runtime. g++ also compiles them after tests/cuda/emulate.h
 * (ZD_EMULATE), where grids are loops; so kernels use only the intrinsics of
 * that header.
 *
 *   ZD_LAUNCH((kernel<bf16, 8>), grid, block, shared_bytes, stream, args...)
 *
 * queues a kernel on a cudaStream_t and returns from the calling function when
 * the launch is refused. Its dynamic shared memory is ZD_SHARED(float, name).
 *
 * The order of every sum depends only on the block's shape. */
#pragma once

#ifndef ZD_EMULATE
#include <cuda_runtime.h>
#endif

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "base/device/device_cuda.h"
#include "base/number/dtype.h"
}

#include "kernels/cuda/packs.cuh"

#ifdef ZD_EMULATE
#undef ZD_LAUNCH
#define ZD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)              \
    ZD_CUDA(zd_emulate_launch(                                                 \
            #kernel, kernel, (grid), (block), (shared_bytes), (stream),        \
            __VA_ARGS__))
#else
#define ZD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)              \
    do {                                                                       \
        kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);    \
        ZD_CUDA(cudaGetLastError());                                           \
    } while (0)
#define ZD_SHARED(type, name)                                                  \
    extern __shared__ __align__(16) unsigned char zd_shared_bytes[];           \
    type *name = (type *)zd_shared_bytes
#endif

/* Defines an operation's table by type (kernels.h): the functions for fp32,
 * bf16 and fp16, or op_any<T>. */
#define CUDA_DEFINE_AS(op, ...)                                                \
    extern "C" {                                                               \
    extern op##_fn *const op##_cuda[3];                                        \
    }                                                                          \
    op##_fn *const op##_cuda[] = {__VA_ARGS__}
#define CUDA_DEFINE(op)                                                        \
    CUDA_DEFINE_AS(op, op##_any<float>, op##_any<bf16>, op##_any<fp16>)

enum { WARP = 32, MAX_WARPS = 32 };
static const unsigned ALL_LANES = 0xffffffffu;

/* --- indices and grids ---------------------------------------------------- */

__device__ inline int lane_of_warp(void)
{
    return (int)threadIdx.x % WARP;
}

__device__ inline int warp_of_block(void)
{
    return (int)threadIdx.x / WARP;
}

/* For a one-dimensional grid. */
__device__ inline int64_t thread_of_grid(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline int64_t threads_of_grid(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for one thread per item of `work`, at most `most`: kernels loop over
 * the rest. */
inline unsigned grid_for(int64_t work, int block, int64_t most)
{
    int64_t blocks = ceil_div(work, block);
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* The largest grid of a kernel that loops: every GPU accepts it. */
static const int64_t GRID_MOST = 0x7fffffff;

/* A number as a type, for RUN below. */
template <int N> struct constant {
    static const int value = N;
};

/* Calls `run` with the width of a pack: 16 bytes, or one element if `is_packed`
 * is false (an address or a row is not aligned). */
template <typename T, typename RUN>
static inline enum zd_status by_width(bool is_packed, const RUN &run)
{
    return is_packed ? run(constant<full_width<T>::value>())
                     : run(constant<1>());
}

/* Queues a kernel<T, W> that works in packs of W elements: 16 bytes, or one
 * element if `is_packed` is false (an address or a row is not aligned). */
#define ZD_LAUNCH_PACKED(kernel, T, is_packed, grid, block, stream, ...)       \
    do {                                                                       \
        if (is_packed)                                                         \
            ZD_LAUNCH(                                                         \
                    (kernel<T, full_width<T>::value>), grid, block, 0, stream, \
                    __VA_ARGS__);                                              \
        else                                                                   \
            ZD_LAUNCH((kernel<T, 1>), grid, block, 0, stream, __VA_ARGS__);    \
    } while (0)

/* The grid of a kernel that loops over the packs of `count` elements and over
 * the elements after the last whole pack. */
template <typename T>
inline unsigned grid_of_packs(
        int64_t count, bool is_packed, int block, int64_t most)
{
    int64_t packs = is_packed ? count / full_width<T>::value + 1 : count;
    return grid_for(packs, block, most);
}

/* The body of a kernel<T, W> that adds two arrays: packs, then the elements
 * after the last whole pack. `out` may be `a` or `b`. */
template <int W, typename T>
__device__ inline void add_arrays(T *out, const T *a, const T *b, int64_t count)
{
    int64_t whole = count / W * W;
    for (int64_t i = thread_of_grid() * W; i < whole;
         i += threads_of_grid() * W) {
        float x[W], y[W];
        load_floats<W>(x, a + i);
        load_floats<W>(y, b + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] += y[j];
        store_floats<W>(out + i, x);
    }
    int64_t rest = whole + thread_of_grid();
    if (rest < count)
        out[rest] = from_float<T>(to_float(a[rest]) + to_float(b[rest]));
}

/* --- reductions ----------------------------------------------------------- */

/* Sums over groups of `lanes` neighbors (a power of two up to 32). Every lane
 * of the warp must call it, and gets its group's result. */
template <typename T> __device__ inline T lanes_sum(T v, int lanes)
{
#ifdef ZD_EMULATE /* one exchange instead of five, same sums */
    return zd_emulate_sum(v, lanes);
#endif
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, offset);
    return v;
}

template <typename T> __device__ inline T warp_sum(T v)
{
#ifdef ZD_EMULATE
    return zd_emulate_sum(v, WARP);
#endif
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, offset);
    return v;
}

__device__ inline float warp_max(float v)
{
#ifdef ZD_EMULATE
    return zd_emulate_max(v, WARP);
#endif
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, offset));
    return v;
}

/* Sums over a block of whole warps. Every thread must call it, and gets the
 * result. `shared`: MAX_WARPS values, reusable after it returns. */
template <typename T> __device__ inline T block_sum(T v, T *shared)
{
    int warps = (int)blockDim.x / WARP;
    v = warp_sum(v);
    if (lane_of_warp() == 0)
        shared[warp_of_block()] = v;
    __syncthreads();
    v = lane_of_warp() < warps ? shared[lane_of_warp()] : (T)0;
    __syncthreads();
    return warp_sum(v);
}

__device__ inline float block_max(float v, float *shared)
{
    int warps = (int)blockDim.x / WARP;
    v = warp_max(v);
    if (lane_of_warp() == 0)
        shared[warp_of_block()] = v;
    __syncthreads();
    v = shared[lane_of_warp() < warps ? lane_of_warp() : 0];
    __syncthreads();
    return warp_max(v);
}

/* --- arithmetic ----------------------------------------------------------- */

/* As precise as the type that results are rounded to needs. */
template <typename T> __device__ inline float exp_for(float x)
{
    return __expf(x);
}
template <> __device__ inline float exp_for<float>(float x)
{
    return expf(x);
}

template <typename T> __device__ inline float sigmoid_for(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}
template <> __device__ inline float sigmoid_for<float>(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
