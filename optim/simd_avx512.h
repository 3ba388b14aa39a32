/* simd_avx512.h - the vocabulary of simd.c in AVX-512 (F, BW, DQ, VL), with
 * VBMI where the compiler may use it. */
#ifndef ZD_OPTIM_SIMD_AVX512_H
#define ZD_OPTIM_SIMD_AVX512_H

#include "optim/codec_tables.h"
#include "optim/isa.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 vf;
enum { LANES = 16 }; /* a group is four vectors: 64 elements */

#define SIGN_BIT (-0x7fffffff - 1)

INLINED vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

INLINED vf vf_load(const float *at)
{
    return _mm512_loadu_ps(at);
}

INLINED void vf_store(float *at, vf x)
{
    _mm512_storeu_ps(at, x);
}

INLINED vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

INLINED vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINED vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

INLINED vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

INLINED bool vf_has_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
}

INLINED vf vf_from_bf16(const uint16_t *at)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

INLINED vf vf_from_fp16(const uint16_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

/* Two vectors rounded to nearest even; not right for NaN. */
INLINED __m512i bits_of_bf16(vf a)
{
    __m512i bits = _mm512_castps_si512(a);
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_add_epi32(bits, odd, bits, _mm512_set1_epi32(1));
}

INLINED void store_or_stream(uint16_t *at, __m512i x, bool stream)
{
    if (stream)
        _mm512_stream_si512((void *)at, x);
    else
        _mm512_storeu_si512((void *)at, x);
}

INLINED void vf_to_bf16(uint16_t *at, vf a, vf b, bool stream)
{
    const __m512i upper = _mm512_set_epi16(
            63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
            29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    store_or_stream(
            at,
            _mm512_permutex2var_epi16(bits_of_bf16(a), upper, bits_of_bf16(b)),
            stream);
}

INLINED void vf_to_fp16(uint16_t *at, vf a, vf b, bool stream)
{
    __m256i low = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    store_or_stream(
            at, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1),
            stream);
}

/* --- largest magnitude ---------------------------------------------------- */

typedef __m512i vmax; /* bits of magnitudes: NaN is above infinity */

INLINED vmax vmax_none(void)
{
    return _mm512_setzero_si512();
}

INLINED vmax vmax_signed(vmax max, vf x)
{
    __m512i magnitude = _mm512_and_si512(
            _mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epu32(max, magnitude);
}

INLINED vmax vmax_unsigned(vmax max, vf x)
{
    return _mm512_max_epu32(max, _mm512_castps_si512(x));
}

INLINED uint32_t vmax_bits(vmax max)
{
    return _mm512_reduce_max_epu32(max);
}

/* --- decode --------------------------------------------------------------- */

/* f = (code - 127) 2^24 for m and ((code + 1) mod 256) 2^8 for v, so that its
 * exponent, modulo 16, is a place in these tables:
 *   m   0: entry 0     7..13: the decades    14: entry 1, where f is -2^31
 *   v   0: entry 1     7: entry 0            8..14: the decades */
#define OF_DECADES(MACRO, BINS)                                                \
    MACRO(1, BINS(1)), MACRO(2, BINS(2)), MACRO(3, BINS(3)),                   \
            MACRO(4, BINS(4)), MACRO(5, BINS(5)), MACRO(6, BINS(6)),           \
            MACRO(7, BINS(7))
#define M_A(k, bins) (CODEC_A(k, bins) * 0x1p-24f)
#define V_A(k, bins) (CODEC_A(k, bins) * 0x1p-8f)

static const float decode_a[2][16] = {
        {0, 0, 0, 0, 0, 0, 0, OF_DECADES(M_A, CODEC_M_BINS), -0x1p-31f},
        {0, 0, 0, 0, 0, 0, 0, 0, OF_DECADES(V_A, CODEC_V_BINS)}};
static const float decode_b[2][16] = {
        {0, 0, 0, 0, 0, 0, 0, OF_DECADES(CODEC_B, CODEC_M_BINS)},
        {1, 0, 0, 0, 0, 0, 0, 0, OF_DECADES(CODEC_B, CODEC_V_BINS)}};

struct decoder {
    vf a, b; /* times the scale */
};

INLINED struct decoder decoder_of(int lane, float scale)
{
    vf s = vf_set(scale);
    return (struct decoder){
            vf_mul(vf_load(decode_a[lane]), s),
            vf_mul(vf_load(decode_b[lane]), s)};
}

/* Codes 16 k .. 16 k + 15 of 64 into byte `place` of each 32-bit word. */
#if defined(__AVX512VBMI__)
typedef __m512i codes64;

INLINED codes64 codes_load(const uint8_t *codes)
{
    return _mm512_loadu_si512((const void *)codes);
}

INLINED codes64 codes_add(codes64 codes, int x)
{
    return _mm512_add_epi8(codes, _mm512_set1_epi8((char)x));
}

INLINED __m512i codes_spread(codes64 codes, int k, int place)
{
    const __m512i count_up = _mm512_set_epi32(
            15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i index = _mm512_slli_epi32(
            _mm512_add_epi32(count_up, _mm512_set1_epi32(16 * k)), 8 * place);
    return _mm512_maskz_permutexvar_epi8(
            0x1111111111111111ull << place, index, codes);
}
#else
typedef struct {
    __m512i quarter[4]; /* 16 codes, four times over */
} codes64;

INLINED codes64 codes_load(const uint8_t *codes)
{
    codes64 c;
    for (int k = 0; k < 4; k++)
        c.quarter[k] = _mm512_broadcast_i32x4(
                _mm_loadu_si128((const void *)(codes + 16 * k)));
    return c;
}

INLINED codes64 codes_add(codes64 codes, int x)
{
    for (int k = 0; k < 4; k++)
        codes.quarter[k] =
                _mm512_add_epi8(codes.quarter[k], _mm512_set1_epi8((char)x));
    return codes;
}

INLINED __m512i codes_spread(codes64 codes, int k, int place)
{
    const __m512i count_up = _mm512_set_epi32(
            15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i index = _mm512_slli_epi32(count_up, 8 * place);
    return _mm512_maskz_shuffle_epi8(
            0x1111111111111111ull << place, codes.quarter[k], index);
}
#endif

INLINED void decode_m(
        const struct decoder *decoder, const uint8_t *codes, vf out[4])
{
    codes64 c = codes_add(codes_load(codes), -127);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf f = _mm512_cvtepi32_ps(codes_spread(c, k, 3));
        __m512i bits = _mm512_castps_si512(f);
        __m512i place = _mm512_srli_epi32(bits, 23);
        __m512i b =
                _mm512_castps_si512(_mm512_permutexvar_ps(place, decoder->b));
        b = _mm512_ternarylogic_epi32(/* b ^ (bits & sign) */
                                      b, bits, _mm512_set1_epi32(SIGN_BIT),
                                      0x78);
        out[k] =
                vf_fma(_mm512_permutexvar_ps(place, decoder->a), f,
                       _mm512_castsi512_ps(b));
    }
}

INLINED void decode_v(
        const struct decoder *decoder, const uint8_t *codes, vf out[4])
{
    codes64 c = codes_add(codes_load(codes), 1);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf f = _mm512_cvtepi32_ps(codes_spread(c, k, 1));
        __m512i place = _mm512_srli_epi32(_mm512_castps_si512(f), 23);
        out[k] =
                vf_fma(_mm512_permutexvar_ps(place, decoder->a), f,
                       _mm512_permutexvar_ps(place, decoder->b));
    }
}

/* --- encode --------------------------------------------------------------- */

/* y is scaled by 2^-98, so that its exponent field is 0 .. 29; what is below
 * 2^-28 shares a place. Two binades make a window, w = field / 2; no window has
 * more than one of the thresholds T. Adding 2^24 - T % 2^24 to the bits of y
 * carries into the next window where y >= T, and the class of a y in window w
 * after that is the class at the window's start:
 *   m   0 0 0 0 1 2 2 3 3 4 5 5 6 7 7 8
 *   v   1 1 1 1 1 2 2 3 4 4 5 5 6 7 7 8     (without an entry 0)
 * f = min(y D + C, U) with D, C, U of the class, times 2^i. */
#define PER_WINDOW_M(X)                                                        \
    X(0), X(0), X(0), X(0), X(1), X(2), X(2), X(3), X(3), X(4), X(5), X(5),    \
            X(6), X(7), X(7), X(8)
#define PER_WINDOW_V(X)                                                        \
    X(0), X(0), X(0), X(0), X(1), X(2), X(2), X(3), X(4), X(4), X(5), X(5),    \
            X(6), X(7), X(7), X(8)

#define D_0    0.0f
#define D_1    CODEC_D(1)
#define D_2    CODEC_D(2)
#define D_3    CODEC_D(3)
#define D_4    CODEC_D(4)
#define D_5    CODEC_D(5)
#define D_6    CODEC_D(6)
#define D_7    CODEC_D(7)
#define D_8    CODEC_D_ONE
#define M_D(k) (D_##k * 0x1p98f * (1 << k) / 2)
#define V_D(k) (D_##k * 0x1p98f * (1 << k))
#define M_C(k) (k == 0 ? 0.0f : CODEC_START * (1 << k) / 2)
#define V_C(k) (k == 0 ? 2.0f : CODEC_START * (1 << k))
#define M_U(k) (CODEC_LIMIT * (1 << k) / 2)
#define V_U(k) (k == 0 ? 2.0f : CODEC_LIMIT * (1 << k))

static const float encode_d[2][16] = {{PER_WINDOW_M(M_D)}, {PER_WINDOW_V(V_D)}};
static const float encode_c[2][16] = {{PER_WINDOW_M(M_C)}, {PER_WINDOW_V(V_C)}};
static const float encode_u[2][16] = {{PER_WINDOW_M(M_U)}, {PER_WINDOW_V(V_U)}};

/* T 2^-98 by window; 2^-96 and more: none. */
#define T_(k, bins) (CODEC_T(k, bins) * 0x1p-98f)
static const float encode_t[2][16] = {
        {1, 1, 1, CODEC_M_T_ZERO * 0x1p-98f, T_(1, 1), 1, T_(2, 2), 1, T_(3, 4),
         T_(4, 8), 1, T_(5, 16), T_(6, 32), 1, CODEC_M_T_ONE * 0x1p-98f, 1},
        {1, 1, 1, 1, T_(1, 2), 1, T_(2, 4), T_(3, 8), 1, T_(4, 16), 1,
         T_(5, 32), T_(6, 64), 1, CODEC_V_T_ONE * 0x1p-98f, 1}};
#undef T_

struct encoder {
    __m512i t; /* what to add to the bits */
    vf d, c, u;
    vf inverse; /* of the scale, times 2^-98; of m, negative */
};

INLINED struct encoder encoder_of(int lane)
{
    __m512i t = _mm512_loadu_si512((const void *)encode_t[lane]);
    __mmask16 none = _mm512_cmpgt_epi32_mask(t, _mm512_set1_epi32(0x3f000000));
    __m512i low = _mm512_and_si512(t, _mm512_set1_epi32(0xffffff));
    __m512i carry = _mm512_sub_epi32(_mm512_set1_epi32(0x1000000), low);
    return (struct encoder){
            .t = _mm512_mask_mov_epi32(carry, none, _mm512_setzero_si512()),
            .d = vf_load(encode_d[lane]),
            .c = vf_load(encode_c[lane]),
            .u = vf_load(encode_u[lane])};
}

INLINED void encoder_scale(struct encoder *encoder, int lane, float scale)
{
    float inverse = 1.0f / scale * 0x1p-98f;
    encoder->inverse = vf_set(lane ? inverse : -inverse);
}

/* The window of y (its sign, in a higher bit, is ignored). */
INLINED __m512i window_of(const struct encoder *encoder, vf y)
{
    __m512i bits = _mm512_castps_si512(y);
    __m512i carry =
            _mm512_permutexvar_epi32(_mm512_srli_epi32(bits, 24), encoder->t);
    return _mm512_srli_epi32(_mm512_add_epi32(bits, carry), 24);
}

/* 64 bytes in order from the four lanes that packing leaves interleaved. */
INLINED __m512i in_order(__m512i packed)
{
    const __m512i order = _mm512_set_epi32(
            15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(order, packed);
}

/* Ranks below 0 for positive m: -128 .. 127, so that packing, which saturates,
 * turns -1.0 (128) into the entry next to it. */
INLINED void encode_m(const struct encoder *e, const vf in[4], uint8_t *codes)
{
    __m512i rank[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf y = vf_mul(in[k], e->inverse);
        __m512i w = window_of(e, y);
        __m512i c = _mm512_castps_si512(_mm512_permutexvar_ps(w, e->c));
        c = _mm512_ternarylogic_epi32(/* c | (y & sign) */
                                      c, _mm512_castps_si512(y),
                                      _mm512_set1_epi32(SIGN_BIT), 0xf8);
        vf f = vf_fma(
                y, _mm512_permutexvar_ps(w, e->d), _mm512_castsi512_ps(c));
        /* the lesser magnitude, with the sign of f */
        f = _mm512_range_ps(f, _mm512_permutexvar_ps(w, e->u), 2);
        rank[k] = _mm512_cvttps_epi32(f);
    }
    __m512i low = _mm512_packs_epi32(rank[0], rank[1]);
    __m512i high = _mm512_packs_epi32(rank[2], rank[3]);
    __m512i all = in_order(_mm512_packs_epi16(low, high));
    all = _mm512_xor_si512(all, _mm512_set1_epi8(0x7f)); /* 127 - rank */
    _mm512_storeu_si512((void *)codes, all);
}

INLINED void encode_v(const struct encoder *e, const vf in[4], uint8_t *codes)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i rank[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf y = vf_mul(in[k], e->inverse);
        __m512i w = window_of(e, y);
        vf f =
                vf_fma(y, _mm512_permutexvar_ps(w, e->d),
                       _mm512_permutexvar_ps(w, e->c));
        f = _mm512_min_ps(f, _mm512_permutexvar_ps(w, e->u));
        __m512i x = _mm512_castps_si512(in[k]);
        rank[k] =
                _mm512_mask_cvttps_epi32(one, _mm512_test_epi32_mask(x, x), f);
    }
    const __m512i minus_one = _mm512_set1_epi16(-1);
    __m512i low = _mm512_packus_epi32(rank[0], rank[1]);
    __m512i high = _mm512_packus_epi32(rank[2], rank[3]);
    low = _mm512_add_epi16(low, minus_one);
    high = _mm512_add_epi16(high, minus_one);
    _mm512_storeu_si512(
            (void *)codes, in_order(_mm512_packus_epi16(low, high)));
}

#endif
