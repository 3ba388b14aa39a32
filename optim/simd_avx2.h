/* simd_avx2.h - the vocabulary of simd.c in AVX2 with FMA and F16C. */
#ifndef ZD_OPTIM_SIMD_AVX2_H
#define ZD_OPTIM_SIMD_AVX2_H

#include "optim/codec_tables.h"
#include "optim/isa.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m256 vf;
enum { LANES = 8 }; /* a group is four vectors: 32 elements */

#define SIGN_BIT (-0x7fffffff - 1)

INLINED vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

INLINED vf vf_load(const float *at)
{
    return _mm256_loadu_ps(at);
}

INLINED void vf_store(float *at, vf x)
{
    _mm256_storeu_ps(at, x);
}

INLINED vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

INLINED vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

INLINED vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINED vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

INLINED vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

INLINED bool vf_has_nan(vf a)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}

INLINED vf vf_from_bf16(const uint16_t *at)
{
    /* each into the upper half of a word, with one shuffle */
    const __m256i upper = _mm256_setr_epi32(
            0x01008080, 0x03028080, 0x05048080, 0x07068080, 0x09088080,
            0x0b0a8080, 0x0d0c8080, 0x0f0e8080);
    __m128i x = _mm_loadu_si128((const void *)at);
    return _mm256_castsi256_ps(
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(x), upper));
}

INLINED vf vf_from_fp16(const uint16_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
}

/* Rounded to nearest even, in the low halves; not right for NaN. */
INLINED __m256i bits_of_bf16(vf a)
{
    __m256i bits = _mm256_castps_si256(a);
    __m256i odd =
            _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    odd = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, odd), 16);
}

INLINED void store_or_stream(uint16_t *at, __m256i x, bool stream)
{
    if (stream)
        _mm256_stream_si256((void *)at, x);
    else
        _mm256_storeu_si256((void *)at, x);
}

INLINED void vf_to_bf16(uint16_t *at, vf a, vf b, bool stream)
{
    __m256i both = _mm256_packus_epi32(bits_of_bf16(a), bits_of_bf16(b));
    store_or_stream(at, _mm256_permute4x64_epi64(both, 0xd8), stream);
}

INLINED void vf_to_fp16(uint16_t *at, vf a, vf b, bool stream)
{
    __m128i low = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    store_or_stream(at, _mm256_set_m128i(high, low), stream);
}

/* --- largest magnitude ---------------------------------------------------- */

typedef __m256i vmax; /* bits of magnitudes: NaN is above infinity */

INLINED vmax vmax_none(void)
{
    return _mm256_setzero_si256();
}

INLINED vmax vmax_signed(vmax max, vf x)
{
    __m256i magnitude = _mm256_and_si256(
            _mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epu32(max, magnitude);
}

INLINED vmax vmax_unsigned(vmax max, vf x)
{
    return _mm256_max_epu32(max, _mm256_castps_si256(x));
}

INLINED uint32_t vmax_bits(vmax max)
{
    __m128i m = _mm_max_epu32(
            _mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* --- decode --------------------------------------------------------------- */

/* f = 4 (code - 127) for m and code + 1 for v, so that its exponent, modulo 8,
 * is a place in these tables:
 *   m   0: entries 0 and 1    1..7: the decades
 *   v   0..6: the decades     7: entries 0 (negative, to be raised) and 1 */
#define OF_DECADES(MACRO, BINS)                                                \
    MACRO(1, BINS(1)), MACRO(2, BINS(2)), MACRO(3, BINS(3)),                   \
            MACRO(4, BINS(4)), MACRO(5, BINS(5)), MACRO(6, BINS(6)),           \
            MACRO(7, BINS(7))
#define M_A(k, bins) (CODEC_A(k, bins) / 4)

static const float decode_a[2][8] = {
        {1.0f / 512, OF_DECADES(M_A, CODEC_M_BINS)},
        {OF_DECADES(CODEC_A, CODEC_V_BINS), 1.0f / 128}};
static const float decode_b[2][8] = {
        {0, OF_DECADES(CODEC_B, CODEC_M_BINS)},
        {OF_DECADES(CODEC_B, CODEC_V_BINS), -1}};

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

/* Codes 8 k .. 8 k + 7 as floats. */
INLINED vf codes_float(const uint8_t *codes, int k)
{
    __m128i half = _mm_loadu_si128((const void *)(codes + 16 * (k / 2)));
    __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    index = _mm256_add_epi32(index, _mm256_set1_epi32(8 * (k % 2)));
    index = _mm256_or_si256(index, _mm256_set1_epi32((int)0x80808000));
    return _mm256_cvtepi32_ps(
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half), index));
}

INLINED void decode_m(
        const struct decoder *decoder, const uint8_t *codes, vf out[4])
{
    const vf sign = vf_set(-0.0f);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf f = vf_fma(codes_float(codes, k), vf_set(4), vf_set(-4 * 127));
        __m256i place = _mm256_srli_epi32(_mm256_castps_si256(f), 23);
        vf b = _mm256_permutevar8x32_ps(decoder->b, place);
        b = _mm256_xor_ps(b, _mm256_and_ps(f, sign));
        out[k] = vf_fma(_mm256_permutevar8x32_ps(decoder->a, place), f, b);
    }
}

INLINED void decode_v(
        const struct decoder *decoder, const uint8_t *codes, vf out[4])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf f = vf_add(codes_float(codes, k), vf_set(1));
        __m256i place = _mm256_srli_epi32(_mm256_castps_si256(f), 23);
        vf x =
                vf_fma(_mm256_permutevar8x32_ps(decoder->a, place), f,
                       _mm256_permutevar8x32_ps(decoder->b, place));
        out[k] = _mm256_max_ps(x, vf_set(0));
    }
}

/* --- encode --------------------------------------------------------------- */

/* y is scaled by 2^-98, so that its exponent field is 0 .. 29. Two binades make
 * a window, field / 2; no window has more than one of the thresholds. The class
 * is that at the window's start, or the next one where y reaches its
 * threshold. Class 8 uses place 0, which class 0 of m (y D of nearly 0) shares;
 * a v is never in class 0. f is halved for m. */
static const int8_t encode_start[2][16] = {
        {0, 0, 0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8},
        {0, 1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7, 8}};
#define T_(k, bins) (CODEC_T(k, bins) * 0x1p-98f)
static const float encode_t[2][8] = {
        {CODEC_M_T_ZERO * 0x1p-98f, OF_DECADES(T_, CODEC_M_BINS)},
        {0, OF_DECADES(T_, CODEC_V_BINS)}};
#undef T_
#define D_(k) (CODEC_D(k) * 0x1p98f)
static const float encode_d[8] = {
        CODEC_D_ONE * 0x1p98f, D_(1), D_(2), D_(3), D_(4), D_(5), D_(6), D_(7)};
#undef D_

struct encoder {
    __m256i start;
    vf t, d, c, limit;
    vf inverse; /* of the scale, times 2^-98; of m, negative */
};

INLINED struct encoder encoder_of(int lane)
{
    float half = lane ? 1.0f : 0.5f;
    vf t = vf_load(encode_t[lane]);
    vf one = vf_set((lane ? CODEC_V_T_ONE : CODEC_M_T_ONE) * 0x1p-98f);
    return (struct encoder){
            .start = _mm256_broadcastsi128_si256(
                    _mm_loadu_si128((const void *)encode_start[lane])),
            .t = _mm256_blend_ps(t, one, 0x80),
            .d = vf_mul(vf_load(encode_d), vf_set(half)),
            .c = vf_set(CODEC_START * half),
            .limit = vf_set(CODEC_LIMIT * half)};
}

INLINED void encoder_scale(struct encoder *encoder, int lane, float scale)
{
    float inverse = 1.0f / scale * 0x1p-98f;
    encoder->inverse = vf_set(lane ? inverse : -inverse);
}

/* The rank of a magnitude. */
INLINED __m256i rank_of(const struct encoder *e, vf y)
{
    __m256i window = _mm256_srli_epi32(_mm256_castps_si256(y), 24);
    __m256i class = _mm256_shuffle_epi8(e->start, window);
    vf reached =
            _mm256_cmp_ps(y, _mm256_permutevar8x32_ps(e->t, class), _CMP_GE_OQ);
    class = _mm256_sub_epi32(class, _mm256_castps_si256(reached));
    vf f = vf_fma(y, _mm256_permutevar8x32_ps(e->d, class), e->c);
    f = _mm256_min_ps(f, e->limit);
    return _mm256_cvttps_epi32(_mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_castps_si256(f), _mm256_slli_epi32(class, 23))));
}

/* 32 bytes in order from the two lanes that packing leaves interleaved. */
INLINED __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(
            packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Ranks below 0 for positive m: -128 .. 127, so that packing, which saturates,
 * turns -1.0 (128) into the entry next to it. */
INLINED void encode_m(const struct encoder *e, const vf in[4], uint8_t *codes)
{
    __m256i rank[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf y = vf_mul(in[k], e->inverse);
        rank[k] = rank_of(e, _mm256_andnot_ps(vf_set(-0.0f), y));
        rank[k] = _mm256_sign_epi32(rank[k], _mm256_castps_si256(y));
    }
    __m256i low = _mm256_packs_epi32(rank[0], rank[1]);
    __m256i high = _mm256_packs_epi32(rank[2], rank[3]);
    __m256i all = in_order(_mm256_packs_epi16(low, high));
    all = _mm256_xor_si256(all, _mm256_set1_epi8(0x7f)); /* 127 - rank */
    _mm256_storeu_si256((void *)codes, all);
}

INLINED void encode_v(const struct encoder *e, const vf in[4], uint8_t *codes)
{
    const vf least = vf_set(CODEC_V_LEAST * 0x1p-98f);
    __m256i rank[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vf y = _mm256_max_ps(vf_mul(in[k], e->inverse), least);
        __m256i nothing = _mm256_cmpeq_epi32(
                _mm256_castps_si256(in[k]), _mm256_setzero_si256());
        /* 2 is the least rank above 0 */
        rank[k] = _mm256_add_epi32(rank_of(e, y), nothing);
    }
    const __m256i minus_one = _mm256_set1_epi16(-1);
    __m256i low = _mm256_packus_epi32(rank[0], rank[1]);
    __m256i high = _mm256_packus_epi32(rank[2], rank[3]);
    low = _mm256_add_epi16(low, minus_one);
    high = _mm256_add_epi16(high, minus_one);
    _mm256_storeu_si256(
            (void *)codes, in_order(_mm256_packus_epi16(low, high)));
}

#endif
