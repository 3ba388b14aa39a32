/* simd.h - the vector words the fast CPU paths are written in.
 *
 * The fast files are compiled once for each instruction set and compute type
 * (see meson.build), with
 *
 *   KERNEL_ISA    the suffix of their names: base, avx2, .., amx (meson.build)
 *   KERNEL_TYPE   of the elements of `void *` arrays: KERNEL_FP32, _BF16, _FP16
 *
 * and are written with GCC's vector extensions, so one text serves all of
 * them and any other processor. VL floats are one vector `vf`. */
#pragma once

#include "base/number/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

#define KERNEL_FP32 0
#define KERNEL_BF16 1
#define KERNEL_FP16 2

#define JOIN4_(a, b, c, d) a##b##c##d
#define JOIN4(a, b, c, d)  JOIN4_(a, b, c, d)
#if KERNEL_TYPE == KERNEL_BF16
typedef uint16_t elem;
#define ELEM_DTYPE DTYPE_BF16
#define FAST(op)   JOIN4(op, _cpu_, bf16_, KERNEL_ISA)
#elif KERNEL_TYPE == KERNEL_FP16
typedef uint16_t elem;
#define ELEM_DTYPE DTYPE_FP16
#define FAST(op)   JOIN4(op, _cpu_, fp16_, KERNEL_ISA)
#else
typedef float elem;
#define ELEM_DTYPE DTYPE_FP32
#define FAST(op)   JOIN4(op, _cpu_, fp32_, KERNEL_ISA)
#endif

/* bf16 by instructions for it: rounding, products of pairs (AVX512_BF16). */
#if defined(__AVX512BF16__) && KERNEL_TYPE == KERNEL_BF16
#define HAS_BF16 1
#else
#define HAS_BF16 0
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
/* The same, anywhere in memory. */
typedef float vf_any
        __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint16_t vh_any
        __attribute__((vector_size(VL * 2), aligned(2), may_alias));
typedef uint32_t vu_any
        __attribute__((vector_size(VL * 4), aligned(2), may_alias));

/* x in every lane. (Minus zero: x + 0 is not x when x is -0, so the compiler
 * would have to keep the addition.) */
ALWAYS_INLINE vf vf_all(float x)
{
    return x - (vf){0};
}

ALWAYS_INLINE vf vf_load(const float *p)
{
    return *(const vf_any *)p;
}

ALWAYS_INLINE void vf_store(float *p, vf v)
{
    *(vf_any *)p = v;
}

ALWAYS_INLINE vf vf_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* a > b ? a : b, so b when either is no number. Written by hand where the
 * compiler would not find the one instruction that does it. */
ALWAYS_INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return vf_select(a > b, a, b);
#endif
}

/* a < b ? a : b, so b when either is no number. */
ALWAYS_INLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return vf_select(a < b, a, b);
#endif
}

/* Halves on halves: lane i and i + VL / 2 first. */
ALWAYS_INLINE float vf_sum(vf v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(v);
#else
    float sum[VL];
    memcpy(sum, &v, sizeof v);
#pragma GCC unroll 4
    for (int width = VL / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; i++)
            sum[i] += sum[i + width];
    return sum[0];
#endif
}

ALWAYS_INLINE float vf_top(vf v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(v);
#else
    float top = v[0];
    for (int i = 1; i < VL; i++)
        top = v[i] > top ? v[i] : top;
    return top;
#endif
}

/* bf16 bits of v, in the high halves; in the low ones, what rounding leaves. */
ALWAYS_INLINE vu round_to_bf16(vf v)
{
    vu bits = (vu)v;
    vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    vu nan = (vu)(v != v);
    return (nan & (bits | 0x400000u)) | (~nan & rounded);
}

/* bf16 to float and back. GCC 12 makes two to five instructions of each
 * conversion that is one. */
ALWAYS_INLINE vf bf16_widen(vh narrow)
{
#if defined(__AVX512F__)
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)narrow) << 16);
#elif defined(__AVX2__)
    return (vf)((vu)_mm256_cvtepu16_epi32((__m128i)narrow) << 16);
#else
    return (vf)(__builtin_convertvector(narrow, vu) << 16);
#endif
}

ALWAYS_INLINE vh bf16_narrow(vf v)
{
#if HAS_BF16 /* subnormals become 0 */
    return (vh)_mm512_cvtneps_pbh(v);
#elif defined(__AVX512F__)
    return (vh)_mm512_cvtepi32_epi16((__m512i)(round_to_bf16(v) >> 16));
#elif defined(__AVX2__)
    __m256i half = (__m256i)(round_to_bf16(v) >> 16);
    __m256i mixed = _mm256_packus_epi32(half, half); /* by 4: low high .. */
    mixed = _mm256_permute4x64_epi64(mixed, 0x08);
    return (vh)_mm256_castsi256_si128(mixed);
#else
    return __builtin_convertvector(round_to_bf16(v) >> 16, vh);
#endif
}

/* fp16 to float and back: one instruction, or where there is none the
 * selections of base/number/dtype.c. */
ALWAYS_INLINE vf fp16_widen(vh narrow)
{
#if defined(__AVX512F__)
    return _mm512_cvtph_ps((__m256i)narrow);
#elif defined(__AVX2__)
    return _mm256_cvtph_ps((__m128i)narrow);
#else
    vu half = __builtin_convertvector(narrow, vu);
    vu shifted = (half & 0x7fffu) << 13;
    vu special = (vu)(shifted >= 0x0f800000u);
    vu quiet = (vu)(shifted > 0x0f800000u) & 0x400000u;
    vu value = (vu)((vf)shifted * 0x1p112f);
    vu bits = (special & (shifted | quiet | 0x7f800000u)) | (~special & value);
    return (vf)(bits | (half & 0x8000u) << 16);
#endif
}

ALWAYS_INLINE vh fp16_narrow(vf v)
{
#if defined(__AVX512F__)
    return (vh)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX2__)
    return (vh)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#else
    vu a = (vu)v & 0x7fffffffu, sign = ((vu)v >> 16) & 0x8000u;
    vu small = (vu)((vf)a + 0.5f) - 0x3f000000u;
    vu rounded = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
    vu is_small = (vu)(a < 0x38800000u), is_large = (vu)(a >= 0x477ff000u);
    vu is_nan = (vu)(a > 0x7f800000u);
    vu nan = is_nan & (0x200u | ((a >> 13) & 0x3ffu));
    vu half = (is_small & small) | (~is_small & ~is_large & rounded) |
              (is_large & (0x7c00u | nan));
    return __builtin_convertvector(half | sign, vh);
#endif
}

/* VL elements of the compute type, widened and rounded to nearest even. */
ALWAYS_INLINE vf load(const elem *p)
{
#if KERNEL_TYPE == KERNEL_BF16
    return bf16_widen(*(const vh_any *)p);
#elif KERNEL_TYPE == KERNEL_FP16
    return fp16_widen(*(const vh_any *)p);
#else
    return vf_load(p);
#endif
}

ALWAYS_INLINE void store(elem *p, vf v)
{
#if KERNEL_TYPE == KERNEL_BF16
    *(vh_any *)p = bf16_narrow(v);
#elif KERNEL_TYPE == KERNEL_FP16
    *(vh_any *)p = fp16_narrow(v);
#else
    vf_store(p, v);
#endif
}

/* v as it reads after a store and a load. */
ALWAYS_INLINE vf round_to_elem(vf v)
{
#if KERNEL_TYPE == KERNEL_BF16
    return bf16_widen(bf16_narrow(v));
#elif KERNEL_TYPE == KERNEL_FP16
    return fp16_widen(fp16_narrow(v));
#else
    return v;
#endif
}

ALWAYS_INLINE float elem_to_float(elem x)
{
#if KERNEL_TYPE == KERNEL_BF16
    return bf16_to_float(x);
#elif KERNEL_TYPE == KERNEL_FP16
    return fp16_to_float(x);
#else
    return x;
#endif
}

/* The first `count` elements only, when they are fewer than VL; other lanes are
 * 0 and not stored. The arithmetic on a tail is then that of a whole vector, to
 * the bit. */
ALWAYS_INLINE vf load_some(const elem *p, int64_t count)
{
    if (count >= VL)
        return load(p);
    elem lanes[VL] = {0};
    memcpy(lanes, p, (size_t)count * sizeof *p);
    return load(lanes);
}

ALWAYS_INLINE void store_some(elem *p, vf v, int64_t count)
{
    elem lanes[VL];
    if (count >= VL) {
        store(p, v);
        return;
    }
    store(lanes, v);
    memcpy(p, lanes, (size_t)count * sizeof *p);
}

ALWAYS_INLINE vf vf_load_some(const float *p, int64_t count)
{
    if (count >= VL)
        return vf_load(p);
    float lanes[VL] = {0};
    memcpy(lanes, p, (size_t)count * sizeof *p);
    return vf_load(lanes);
}

ALWAYS_INLINE void vf_store_some(float *p, vf v, int64_t count)
{
    float lanes[VL];
    if (count >= VL) {
        vf_store(p, v);
        return;
    }
    vf_store(lanes, v);
    memcpy(p, lanes, (size_t)count * sizeof *p);
}

/* First v, then next. */
ALWAYS_INLINE void store_both(elem *p, vf v, vf next)
{
#if HAS_BF16
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(next, v));
#else
    store(p, v);
    store(p + VL, next);
#endif
}

/* Two vectors of elements that lie together: of bf16 those at even places, then
 * those at odd ones, which is a third of the work to widen and to narrow; of
 * others the first, then the second. */
struct two {
    vf a, b;
};

ALWAYS_INLINE struct two load_two(const elem *p)
{
#if KERNEL_TYPE == KERNEL_BF16
    vu both = *(const vu_any *)p;
    return (struct two){(vf)(both << 16), (vf)(both & 0xffff0000u)};
#else
    return (struct two){load(p), load(p + VL)};
#endif
}

ALWAYS_INLINE void store_two(elem *p, struct two v)
{
#if HAS_BF16
    static const uint16_t mixed[32] = {
            0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i in_turn = (__m512i)_mm512_cvtne2ps_pbh(v.b, v.a);
    _mm512_storeu_si512(
            p, _mm512_permutexvar_epi16(_mm512_loadu_si512(mixed), in_turn));
#elif KERNEL_TYPE == KERNEL_BF16
    *(vu_any *)p =
            round_to_bf16(v.a) >> 16 | (round_to_bf16(v.b) & 0xffff0000u);
#else
    store(p, v.a);
    store(p + VL, v.b);
#endif
}

/* The elements of `v`, the first VL of them and then the others. */
ALWAYS_INLINE struct two two_in_order(struct two v)
{
#if KERNEL_TYPE == KERNEL_BF16
    vi first, second;
    for (int i = 0; i < VL; i++) {
        first[i] = i / 2 + i % 2 * VL;
        second[i] = first[i] + VL / 2;
    }
    return (struct two){
            __builtin_shuffle(v.a, v.b, first),
            __builtin_shuffle(v.a, v.b, second)};
#else
    return v;
#endif
}

ALWAYS_INLINE struct two load_two_some(const elem *p, int64_t count)
{
    if (count >= 2 * VL)
        return load_two(p);
    elem lanes[2 * VL] = {0};
    memcpy(lanes, p, (size_t)count * sizeof *p);
    return load_two(lanes);
}

ALWAYS_INLINE void store_two_some(elem *p, struct two v, int64_t count)
{
    elem lanes[2 * VL];
    if (count >= 2 * VL) {
        store_two(p, v);
        return;
    }
    store_two(lanes, v);
    memcpy(p, lanes, (size_t)count * sizeof *p);
}

/* e^x within 2 units in the last place; 0 below -87, infinity from 88.4, NaN
 * for NaN. x = n ln 2 + r with |r| <= ln 2 / 2, then e^r as a polynomial
 * (Cephes' expf coefficients) times 2^n. Adding 1.5 * 2^23 rounds to an integer
 * and leaves n in the low bits. */
ALWAYS_INLINE vf vf_exp(vf x)
{
    const float shift = 12582912.0f, log2_e = 1.44269504f;
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    vf clamped = vf_min(vf_all(88.7f), vf_max(vf_all(-87.0f), x));
    vf shifted = clamped * log2_e + shift;
    vf n = shifted - shift;
    vf r = clamped - n * ln2_high;
    r = r - n * ln2_low;
    vf p = vf_all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vf power = (vf)(((vu)shifted << 23) + 0x3f800000u);
    return (vf)((vi)(p * power) & ~(x < -87.0f));
}

/* Where elements are bf16 and there are instructions for it: */
#if KERNEL_TYPE == KERNEL_BF16 && defined(__AVX512F__)
#define HAS_EXP2 1
/* The fraction 0 <= f < 1 of t, whose 2^f is a polynomial that is best in its
 * largest relative error; one instruction scales by powers of two. */
ALWAYS_INLINE vf vf_fraction(vf t)
{
    return _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* 2^t within 8e-5 of it, a 25th of what rounding to bf16 may change; and within
 * 3e-6, for sums. */
ALWAYS_INLINE vf vf_exp2_rough(vf t)
{
    vf f = vf_fraction(t);
    vf p = vf_all(7.80245206e-2f);
    p = p * f + 2.26067156e-1f;
    p = p * f + 6.95833538e-1f;
    p = p * f + 9.99925219e-1f;
    return _mm512_scalef_ps(p, t);
}

ALWAYS_INLINE vf vf_exp2_elem(vf t)
{
    vf f = vf_fraction(t);
    vf p = vf_all(1.35341679e-2f);
    p = p * f + 5.20114606e-2f;
    p = p * f + 2.41442757e-1f;
    p = p * f + 6.93003835e-1f;
    p = p * f + 1.00000259e+0f;
    return _mm512_scalef_ps(p, t);
}
#else
#define HAS_EXP2 0
#endif

/* e^(scale x - less) as well as elements can tell: by vf_exp2_elem, within 1e-5
 * of it, or vf_exp. */
ALWAYS_INLINE vf vf_exp_scaled(vf x, float scale, float less)
{
#if HAS_EXP2
    const float log2_e = 1.44269504f;
    return vf_exp2_elem(x * (scale * log2_e) - less * log2_e);
#else
    return vf_exp(x * scale - less);
#endif
}

/* e^(x - less), as near as an element that it becomes needs. */
ALWAYS_INLINE vf vf_exp_rough(vf x, float less)
{
#if HAS_EXP2
    const float log2_e = 1.44269504f;
    return vf_exp2_rough(x * log2_e - less * log2_e);
#else
    return vf_exp(x - less);
#endif
}

/* tanh x within 2 units in the last place: a polynomial (Cephes' tanhf) where
 * 1 - 2 / (e^2x + 1) would cancel. */
ALWAYS_INLINE vf vf_tanh(vf x)
{
    vu sign = (vu)x & 0x80000000u;
    vf a = (vf)((vu)x ^ sign), z = x * x;
    vf p = vf_all(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    vf large = 1.0f - 2.0f / (vf_exp(a + a) + 1.0f);
    return vf_select(a < 0.625f, x + x * z * p, (vf)((vu)large | sign));
}

/* 1 / d where that is normal. A division of 16 floats takes as long as all the
 * rest of a sigmoid; an estimate of 14 bits and a step of Newton's do not. */
ALWAYS_INLINE vf vf_reciprocal(vf d)
{
#if defined(__AVX512F__)
    vf r = _mm512_rcp14_ps(d);
    return r + r * (1.0f - d * r);
#else
    return 1.0f / d;
#endif
}
