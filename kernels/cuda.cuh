/* cuda.cuh - what CUDA kernels share: element types, 16-byte packs, sums of
 * warps and blocks, launches.
 *
 * Written in the C of CUDA: templates over the element type, no library but the
 * runtime's. Also compiled by g++ with tests/cuda/emulate.h in front
 * (ZD_EMULATE), where grids are loops; so kernels use no intrinsic that is not
 * in that header.
 *
 *   ZD_LAUNCH((kernel<bf16, 8>), grid, block, shared_bytes, stream, args...)
 *
 * queues a kernel on a cudaStream_t and returns from the calling function when
 * the launch is refused. Its dynamic shared memory is ZD_SHARED(float, name).
 *
 * Every sum here is taken in an order that the block's shape alone decides. */
#ifndef ZD_KERNELS_CUDA_CUH
#define ZD_KERNELS_CUDA_CUH

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
#include "base/device_cuda.h"
#include "base/dtype.h"
}

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

enum { WARP = 32, MAX_WARPS = 32 };
static const unsigned ALL_LANES = 0xffffffffu;

/* --- element types -------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};
struct fp16 {
    uint16_t bits;
};

template <typename T> struct dtype_of;
template <> struct dtype_of<float> {
    static const enum dtype value = DTYPE_FP32;
};
template <> struct dtype_of<bf16> {
    static const enum dtype value = DTYPE_BF16;
};
template <> struct dtype_of<fp16> {
    static const enum dtype value = DTYPE_FP16;
};

__host__ __device__ inline float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

__host__ __device__ inline uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The conversions of base/dtype.h, bit for bit (to nearest even; NaN stays NaN,
 * with the upper bits of its payload). */
__host__ __device__ inline uint16_t bf16_bits(float f)
{
    uint32_t bits = bits_of_float(f);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(is_nan ? (bits >> 16) | 0x40u : rounded);
}

__host__ __device__ inline uint16_t fp16_bits(float f)
{
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint16_t nan = (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
#ifdef __CUDA_ARCH__
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(f));
    return magnitude > 0x7f800000u ? nan : half; /* no branch */
#else
    if (magnitude > 0x7f800000u)
        return nan;
    if (magnitude >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* subnormal: the addition rounds */
        float shifted = float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_of_float(shifted) - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
#endif
}

__host__ __device__ inline float fp16_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t fraction = half & 0x3ffu;
    float nan = float_of_bits(sign | 0x7fc00000u | (fraction << 13));
#ifdef __CUDA_ARCH__
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(half));
    return (half & 0x7fffu) > 0x7c00u ? nan : f; /* no branch */
#else
    uint32_t exponent = (half >> 10) & 0x1fu;
    if (exponent == 0x1f)
        return fraction ? nan : float_of_bits(sign | 0x7f800000u);
    if (exponent)
        return float_of_bits(
                sign | ((exponent + 112) << 23) | (fraction << 13));
    return float_of_bits(sign | bits_of_float((float)fraction * 0x1p-24f));
#endif
}

__host__ __device__ inline float to_float(float x)
{
    return x;
}

__host__ __device__ inline float to_float(bf16 x)
{
    return float_of_bits((uint32_t)x.bits << 16);
}

__host__ __device__ inline float to_float(fp16 x)
{
    return fp16_float(x.bits);
}

template <typename T> __host__ __device__ inline T from_float(float f);
template <> __host__ __device__ inline float from_float<float>(float f)
{
    return f;
}
template <> __host__ __device__ inline bf16 from_float<bf16>(float f)
{
    bf16 x = {bf16_bits(f)};
    return x;
}
template <> __host__ __device__ inline fp16 from_float<fp16>(float f)
{
    fp16 x = {fp16_bits(f)};
    return x;
}

/* What f reads as after being stored in a T. */
template <typename T> __host__ __device__ inline float rounded_to(float f)
{
    return to_float(from_float<T>(f));
}

/* --- packs: W elements in one access of at most 16 bytes -------------------
 */

/* Elements of one 16-byte access. */
template <typename T> struct full_width {
    static const int value = 16 / (int)sizeof(T);
};

/* The unsigned integer vector that a pack is moved as. */
template <int BYTES> struct word_of;
template <> struct word_of<2> {
    typedef uint16_t type;
};
template <> struct word_of<4> {
    typedef uint32_t type;
};
template <> struct word_of<8> {
    typedef uint2 type;
};
template <> struct word_of<16> {
    typedef uint4 type;
};

template <typename T, int W> struct pack {
    typedef typename word_of<W *(int)sizeof(T)>::type word;
    union {
        word whole;
        T at[W];
    };
};

template <typename T, int W> __device__ inline pack<T, W> zero_pack(void)
{
    typedef typename pack<T, W>::word word;
    pack<T, W> x;
    x.whole = word();
    return x;
}

/* p is aligned to the size of the pack. */
template <int W, typename T> __device__ inline pack<T, W> load_pack(const T *p)
{
    typedef typename pack<T, W>::word word;
    pack<T, W> x;
    x.whole = *(const word *)p;
    return x;
}

/* Read once: it need not stay in a cache. */
template <int W, typename T>
__device__ inline pack<T, W> load_pack_once(const T *p)
{
    typedef typename pack<T, W>::word word;
    pack<T, W> x;
    x.whole = __ldcs((const word *)p);
    return x;
}

template <int W, typename T>
__device__ inline void store_pack(T *p, pack<T, W> x)
{
    typedef typename pack<T, W>::word word;
    *(word *)p = x.whole;
}

/* Not read again soon. */
template <int W, typename T>
__device__ inline void store_pack_once(T *p, pack<T, W> x)
{
    typedef typename pack<T, W>::word word;
    __stcs((word *)p, x.whole);
}

template <typename T, int W>
__device__ inline void unpack(float (&out)[W], pack<T, W> x)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        out[i] = to_float(x.at[i]);
}

/* Two at a time in the lower and upper half of a word. A NaN stays a NaN; on a
 * GPU its payload may be another one than the CPU's. */
__device__ inline uint32_t two_bf16(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return bf16_bits(low) | (uint32_t)bf16_bits(high) << 16;
#endif
}

__device__ inline uint32_t two_fp16(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return fp16_bits(low) | (uint32_t)fp16_bits(high) << 16;
#endif
}

template <typename T, int W>
__device__ inline pack<T, W> packed(const float (&in)[W])
{
    pack<T, W> x;
#pragma unroll
    for (int i = 0; i < W; i++)
        x.at[i] = from_float<T>(in[i]);
    return x;
}

template <>
__device__ inline pack<bf16, 8> packed<bf16, 8>(const float (&in)[8])
{
    pack<bf16, 8> x;
    x.whole.x = two_bf16(in[0], in[1]);
    x.whole.y = two_bf16(in[2], in[3]);
    x.whole.z = two_bf16(in[4], in[5]);
    x.whole.w = two_bf16(in[6], in[7]);
    return x;
}

template <>
__device__ inline pack<fp16, 8> packed<fp16, 8>(const float (&in)[8])
{
    pack<fp16, 8> x;
    x.whole.x = two_fp16(in[0], in[1]);
    x.whole.y = two_fp16(in[2], in[3]);
    x.whole.z = two_fp16(in[4], in[5]);
    x.whole.w = two_fp16(in[6], in[7]);
    return x;
}

/* W elements as floats, and back. */
template <int W, typename T>
__device__ inline void load_floats(float (&out)[W], const T *p)
{
    unpack(out, load_pack<W>(p));
}

template <int W, typename T>
__device__ inline void store_floats(T *p, const float (&in)[W])
{
    store_pack<W>(p, packed<T, W>(in));
}

/* fp32 arrays beside packs of another type: W floats in 16-byte accesses (W is
 * 1, or a multiple of 4 and p aligned to 16 bytes). */
template <int W>
__device__ inline void read_fp32(float (&out)[W], const float *p)
{
    if (W % 4 == 0) {
#pragma unroll
        for (int i = 0; i < W; i += 4) {
            float4 x = *(const float4 *)(p + i);
            out[i] = x.x;
            out[(i + 1) % W] = x.y;
            out[(i + 2) % W] = x.z;
            out[(i + 3) % W] = x.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < W; i++)
            out[i] = p[i];
    }
}

template <int W>
__device__ inline void write_fp32(float *p, const float (&in)[W])
{
    if (W % 4 == 0) {
#pragma unroll
        for (int i = 0; i < W; i += 4)
            *(float4 *)(p + i) = make_float4(
                    in[i], in[(i + 1) % W], in[(i + 2) % W], in[(i + 3) % W]);
    } else {
#pragma unroll
        for (int i = 0; i < W; i++)
            p[i] = in[i];
    }
}

/* Host: may these places be accessed 16 bytes at a time? */
inline bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

template <typename... Pointers> inline bool are_aligned(Pointers... p)
{
    return (is_aligned(p) && ...);
}

/* --- indices -------------------------------------------------------------- */

__device__ inline int lane_of_warp(void)
{
    return (int)threadIdx.x % WARP;
}

__device__ inline int warp_of_block(void)
{
    return (int)threadIdx.x / WARP;
}

/* Of a one-dimensional grid. */
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

/* Blocks for `work` threads' worth of items, at most `most`: kernels loop over
 * what is left. */
inline unsigned grid_for(int64_t work, int block, int64_t most)
{
    int64_t blocks = ceil_div(work, block);
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Most blocks of a grid that loops: the largest that every GPU takes. */
static const int64_t GRID_MOST = 0x7fffffff;

/* Queues a kernel<T, W> that works in packs of W elements: whole ones of 16
 * bytes, or where `is_packed` is false (an address, a row) single elements. */
#define ZD_LAUNCH_PACKED(kernel, T, is_packed, grid, block, stream, ...)       \
    do {                                                                       \
        if (is_packed)                                                         \
            ZD_LAUNCH(                                                         \
                    (kernel<T, full_width<T>::value>), grid, block, 0, stream, \
                    __VA_ARGS__);                                              \
        else                                                                   \
            ZD_LAUNCH((kernel<T, 1>), grid, block, 0, stream, __VA_ARGS__);    \
    } while (0)

/* The grid of one that loops over `count` elements, and over those behind the
 * last whole pack. */
template <typename T>
inline unsigned grid_of_packs(
        int64_t count, bool is_packed, int block, int64_t most)
{
    int64_t packs = is_packed ? count / full_width<T>::value + 1 : count;
    return grid_for(packs, block, most);
}

/* --- reductions ----------------------------------------------------------- */

/* Over groups of `lanes` neighbours (a power of two up to 32); every lane of
 * the warp calls it and gets its group's result. */
template <typename T> __device__ inline T lanes_sum(T v, int lanes)
{
#ifdef ZD_EMULATE /* the lanes meet once, for the same sums */
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

/* Over a block of whole warps; every thread calls it and gets the result.
 * `shared`: MAX_WARPS values, free again when it returns. */
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

/* What is good enough depends on the type that results are rounded to. */
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

#endif
