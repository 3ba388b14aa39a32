/* packs.cuh - element types on a GPU, and loads and stores of several elements
 * at once. Include cuda.cuh instead: it defines CUDA's types first. */
#pragma once

/* --- element types -------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};
struct fp16 {
    uint16_t bits;
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

/* The conversions of base/number/dtype.h without a branch, bit for bit (to
 * nearest even; NaN stays NaN, with the upper bits of its payload). */
__host__ __device__ inline uint16_t bf16_bits(float f)
{
    uint32_t bits = bits_of_float(f);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(is_nan ? (bits >> 16) | 0x40u : rounded);
}

__host__ __device__ inline uint16_t fp16_bits(float f)
{
#ifdef __CUDA_ARCH__
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint16_t nan = (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(f));
    return magnitude > 0x7f800000u ? nan : half;
#else
    return float_to_fp16(f);
#endif
}

__host__ __device__ inline float fp16_float(uint16_t half)
{
#ifdef __CUDA_ARCH__
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    float nan =
            float_of_bits(sign | 0x7fc00000u | (uint32_t)(half & 0x3ffu) << 13);
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(half));
    return (half & 0x7fffu) > 0x7c00u ? nan : f;
#else
    return fp16_to_float(half);
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

/* f rounded to T and converted back. */
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

/* The unsigned integer type that moves a pack. */
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

/* p must be aligned to the size of the pack. */
template <int W, typename T> __device__ inline pack<T, W> load_pack(const T *p)
{
    typedef typename pack<T, W>::word word;
    pack<T, W> x;
    x.whole = *(const word *)p;
    return x;
}

/* For data that is read once: marked to leave the caches first. */
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

/* For data that is not read again soon. */
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

/* Rounds two values into the lower and upper half of a word. NaN stays NaN; on
 * a GPU its payload may differ from the CPU's. */
__device__ __forceinline__ uint32_t two_elements(bf16, float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return bf16_bits(low) | (uint32_t)bf16_bits(high) << 16;
#endif
}

__device__ __forceinline__ uint32_t two_elements(fp16, float low, float high)
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
    if constexpr (W == 8 && sizeof(T) == 2) {
        x.whole.x = two_elements(T(), in[0], in[1]);
        x.whole.y = two_elements(T(), in[2], in[3]);
        x.whole.z = two_elements(T(), in[4], in[5]);
        x.whole.w = two_elements(T(), in[6], in[7]);
    } else {
#pragma unroll
        for (int i = 0; i < W; i++)
            x.at[i] = from_float<T>(in[i]);
    }
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

/* W floats in 16-byte accesses, for fp32 arrays beside packs of another type. W
 * is 1, or a multiple of 4 with p aligned to 16 bytes. */
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

/* Host: may this address be accessed 16 bytes at a time? */
inline bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

template <typename... Pointers> inline bool are_aligned(Pointers... p)
{
    return (is_aligned(p) && ...);
}
