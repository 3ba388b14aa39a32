/* simd_vector.h - vectors of simd.c: 8 floats with AVX2, FMA and F16C, 16 with
 * AVX-512 (F, BW, DQ, VL). Both have the same operations; OP(name) is the
 * compiler's for the width. */
#pragma once

#include "optim/isa.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __m256i vh; /* as many halves */
#define OP(op)      _mm512_##op
#define OP_BITS(op) _mm512_##op##_si512
#define FLOATS      _mm512_castsi512_ps
#define BITS        _mm512_castps_si512
#define UP_TO_LAST  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define UNPACKED    0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15
#else
enum { LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m128i vh;
#define OP(op)      _mm256_##op
#define OP_BITS(op) _mm256_##op##_si256
#define FLOATS      _mm256_castsi256_ps
#define BITS        _mm256_castps_si256
#define UP_TO_LAST  0, 1, 2, 3, 4, 5, 6, 7
#define UNPACKED    0, 4, 1, 5, 2, 6, 3, 7
#endif

typedef int32_t words __attribute__((vector_size(4 * LANES)));
enum { GROUP = 4 * LANES }; /* what is worked on at a time: four vectors */

INLINED vf vf_set(float x)
{
    return OP(set1_ps)(x);
}

INLINED vi vi_set(int x)
{
    return OP(set1_epi32)(x);
}

INLINED vf vf_load(const float *at)
{
    return OP(loadu_ps)(at);
}

INLINED void vf_store(float *at, vf x)
{
    OP(storeu_ps)(at, x);
}

INLINED vf vf_fma(vf a, vf b, vf c)
{
    return OP(fmadd_ps)(a, b, c);
}

INLINED bool vf_has_nan(vf a)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
#else
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
#endif
}

/* --- 16 bits -------------------------------------------------------------- */

INLINED vh vh_load(const uint16_t *at)
{
    vh x;
    memcpy(&x, at, sizeof x);
    return x;
}

INLINED vf vf_from_bf16(const uint16_t *at)
{
    return FLOATS(OP(slli_epi32)(OP(cvtepu16_epi32)(vh_load(at)), 16));
}

INLINED vf vf_from_fp16(const uint16_t *at)
{
    return OP(cvtph_ps)(vh_load(at));
}

/* 32-bit words in order; packing four vectors to one leaves them interleaved.
 */
INLINED vi in_order(vi packed)
{
#if defined(__AVX512F__)
    return _mm512_permutexvar_epi32((vi)(words){UNPACKED}, packed);
#else
    return _mm256_permutevar8x32_epi32(packed, (vi)(words){UNPACKED});
#endif
}

/* Two vectors rounded to nearest even; not right for NaN. */
#if defined(__AVX512F__)
INLINED vi rounded_bits(vf a) /* in the high halves */
{
    vi bits = BITS(a);
    __mmask16 odd = _mm512_test_epi32_mask(bits, vi_set(0x10000));
    bits = _mm512_add_epi32(bits, vi_set(0x7fff));
    return _mm512_mask_add_epi32(bits, odd, bits, vi_set(1));
}

INLINED vi two_bf16(vf a, vf b)
{
    const vi upper = _mm512_set_epi16(
            63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
            29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(rounded_bits(a), upper, rounded_bits(b));
}
#else
INLINED vi rounded_bits(vf a) /* in the low halves */
{
    vi bits = BITS(a);
    vi odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), vi_set(1));
    odd = _mm256_add_epi32(odd, vi_set(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, odd), 16);
}

INLINED vi two_bf16(vf a, vf b)
{
    vi both = _mm256_packus_epi32(rounded_bits(a), rounded_bits(b));
    return _mm256_permute4x64_epi64(both, 0xd8);
}
#endif

/* Two vectors; `streams`: past the caches. */
INLINED void vf_to_bf16(uint16_t *at, vf a, vf b, bool streams)
{
    if (streams)
        OP_BITS(stream)((void *)at, two_bf16(a, b));
    else
        OP_BITS(storeu)((void *)at, two_bf16(a, b));
}

INLINED void vf_to_fp16(uint16_t *at, vf a)
{
    vh half = OP(cvtps_ph)(a, _MM_FROUND_TO_NEAREST_INT);
    memcpy(at, &half, sizeof half);
}

/* --- largest magnitude ---------------------------------------------------- */

/* Of bits of magnitudes: NaN is above infinity. */
INLINED vi vmax_signed(vi max, vf x)
{
    return OP(max_epu32)(max, OP_BITS(and)(BITS(x), vi_set(0x7fffffff)));
}

INLINED vi vmax_unsigned(vi max, vf x)
{
    return OP(max_epu32)(max, BITS(x));
}

INLINED float vmax_float(vi max)
{
#if defined(__AVX512F__)
    __m256i half = _mm256_max_epu32(
            _mm512_castsi512_si256(max), _mm512_extracti64x4_epi64(max, 1));
#else
    __m256i half = max;
#endif
    __m128i m = _mm_max_epu32(
            _mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}
