/* fp8_lanes.h - FP8 codes in vectors, with the bits of base/number/dtype.h. */
#pragma once

#include "kernels/cpu/simd.h"

/* Widens VL bytes to words; the next stores the low bytes of words. */
ALWAYS_INLINE vu widen_bytes(const uint8_t *bytes)
{
#if defined(__AVX512F__)
    return (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
#elif defined(__AVX2__)
    return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
#else
    vu v;
    for (int i = 0; i < VL; i++)
        v[i] = bytes[i];
    return v;
#endif
}

ALWAYS_INLINE void narrow_bytes(uint8_t *bytes, vu words)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)bytes, _mm512_cvtepi32_epi8((__m512i)words));
#elif defined(__AVX2__)
    __m128i low = _mm256_castsi256_si128((__m256i)words);
    __m128i high = _mm256_extracti128_si256((__m256i)words, 1);
    __m128i halves = _mm_packus_epi32(low, high);
    _mm_storel_epi64((__m128i *)bytes, _mm_packus_epi16(halves, halves));
#else
    for (int i = 0; i < VL; i++)
        bytes[i] = (uint8_t)words[i];
#endif
}

ALWAYS_INLINE vu vu_select(vu mask, vu yes, vu no)
{
    return (mask & yes) | (~mask & no);
}

ALWAYS_INLINE vf e4m3_values(const uint8_t *codes)
{
    vu bits = widen_bytes(codes), magnitude = bits & 0x7fu;
    vf value = (vf)(magnitude << 20) * 0x1p120f;
    vu nan = (vu)(magnitude == 0x7fu) & 0x7fc00000u;
    return (vf)((vu)value | nan | (bits & 0x80u) << 24);
}

ALWAYS_INLINE vf e5m2_values(const uint8_t *codes)
{
    vu bits = widen_bytes(codes), magnitude = bits & 0x7fu;
    vu value = (vu)((vf)(magnitude << 21) * 0x1p112f);
    value = vu_select((vu)(magnitude >= 0x7cu), value | 0x7f800000u, value);
    value = vu_select((vu)(magnitude > 0x7cu), value * 0 + 0x7fc00000u, value);
    return (vf)(value | (bits & 0x80u) << 24);
}

/* Compares as ints, which is also right for positive floats. */
ALWAYS_INLINE vu vu_min(vu a, vu b)
{
#if defined(__AVX512F__)
    return (vu)_mm512_min_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vu)_mm256_min_epi32((__m256i)a, (__m256i)b);
#else
    return vu_select((vu)((vi)a < (vi)b), a, b);
#endif
}

ALWAYS_INLINE vu vu_max(vu a, vu b)
{
#if defined(__AVX512F__)
    return (vu)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vu)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return vu_select((vu)((vi)a > (vi)b), a, b);
#endif
}

/* 0x7f where x is NaN, else `code`. */
ALWAYS_INLINE vu fp8_nan(vf x, vu code)
{
    vu nan = code * 0 + 0x7fu;
#if defined(__AVX512F__)
    return (vu)_mm512_mask_mov_epi32(
            (__m512i)code, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
            (__m512i)nan);
#else
    return vu_select((vu)(x != x), nan, code);
#endif
}

/* The codes of x in the low bytes of words, without branches. p is the power of
 * two below x, or the smallest normal number. Adding 2^20 p (2^21 p for E5M2)
 * rounds as codes do, and the sum's last bits count code steps above 0 or p. If
 * x is a product, it is not fused with that sum, because its bits are also
 * used. */
ALWAYS_INLINE vu fp8_codes(vf x, bool is_e5m2)
{
    const uint32_t shift = is_e5m2 ? 21 : 20;
    const uint32_t most = is_e5m2 ? 0x47600000u : 0x43e00000u;
    const uint32_t least = is_e5m2 ? 0x38800000u : 0x3c800000u;
    vu bits = (vu)x, zero = {0};
    vu a = vu_min(bits & 0x7fffffffu, zero + most);
    vu p = vu_max(a & 0x7f800000u, zero + least);
    vu magic = p + (shift << 23);
    vu steps = (vu)((vf)a + (vf)magic) - magic;
    vu code = steps + ((p - least) >> shift);
    return fp8_nan(x, code | (bits >> 24 & 0x80u));
}

/* Decodes `count` codes to elements, exactly in every compute type. */
ALWAYS_INLINE void fp8_widen(
        elem *out, const uint8_t *codes, enum dtype type, int count)
{
    bool is_e5m2 = type == DTYPE_E5M2;
    int i = 0;
    for (; i + VL <= count; i += VL)
        store(out + i,
              is_e5m2 ? e5m2_values(codes + i) : e4m3_values(codes + i));
    if (i < count) {
        uint8_t rest[VL] = {0};
        memcpy(rest, codes + i, (size_t)(count - i));
        store_some(
                out + i, is_e5m2 ? e5m2_values(rest) : e4m3_values(rest),
                count - i);
    }
}
