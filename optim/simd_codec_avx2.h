/* simd_codec_avx2.h - values of 8-bit codes and back, 8 at a time. Private to
 * simd.c. */
#pragma once

#include "optim/codec_tables.h"
#include "optim/simd_vector.h"

/* f = 4 (code - 127) for m and code + 1 for v, so that its exponent, modulo 8,
 * is a place in these tables:
 *   m   0: entries 0 and 1    1..7: the decades
 *   v   0..6: the decades     7: entries 0 (negative, to be raised) and 1 */
#define M_A(k, bins) (CODEC_A(k, bins) / 4)
static const float decode_a[2][8] = {
        {1.0f / 512, CODEC_OF_DECADES(M_A, CODEC_M_BINS)},
        {CODEC_OF_DECADES(CODEC_A, CODEC_V_BINS), 1.0f / 128}};
static const float decode_b[2][8] = {
        {0, CODEC_OF_DECADES(CODEC_B, CODEC_M_BINS)},
        {CODEC_OF_DECADES(CODEC_B, CODEC_V_BINS), -1}};
#undef M_A

struct decoder {
    vf a, b; /* times the scale */
};

INLINED struct decoder decoder_of(enum optim_lane lane, float scale)
{
    vf s = vf_set(scale);
    return (struct decoder){
            vf_load(decode_a[lane]) * s, vf_load(decode_b[lane]) * s};
}

/* Vector k of a group of codes. */
INLINED vf
decode(enum optim_lane lane, const struct decoder *decoder,
       const uint8_t *codes, int k)
{
    __m128i half = _mm_loadu_si128((const void *)(codes + 16 * (k / 2)));
    words index = ((words){UP_TO_LAST} + 8 * (k % 2)) | (int)0x80808000;
    vf f = _mm256_cvtepi32_ps(
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half), (vi)index));
    if (lane == OPTIM_M)
        f = vf_fma(f, vf_set(4), vf_set(-4 * 127));
    else
        f = f + vf_set(1);
    vi place = _mm256_srli_epi32(BITS(f), 23);
    vf a = _mm256_permutevar8x32_ps(decoder->a, place);
    vf b = _mm256_permutevar8x32_ps(decoder->b, place);
    if (lane == OPTIM_M)
        return vf_fma(a, f, _mm256_xor_ps(b, _mm256_and_ps(f, vf_set(-0.0f))));
    return _mm256_max_ps(vf_fma(a, f, b), vf_set(0));
}

/* y is scaled by 2^-98, so that its exponent field is 0 .. 29. Two binades make
 * a window, field / 2; no window has more than one of the thresholds. The class
 * is that at the window's start, or the next one where y reaches its
 * threshold. Class 8 uses place 0, which class 0 of m (y D of nearly 0) shares;
 * a v is never in class 0. f is halved for m. */
static const int8_t encode_start[2][16] = {
        {0, 0, 0, 0, 1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8},
        {0, 1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7, 8}};
#define T_(k, bins) (CODEC_T(k, bins) * 0x1p-98f)
#define T_OF_SIX(BINS)                                                         \
    T_(1, BINS(1)), T_(2, BINS(2)), T_(3, BINS(3)), T_(4, BINS(4)),            \
            T_(5, BINS(5)), T_(6, BINS(6))
static const float encode_t[2][8] = {
        {CODEC_M_T_ZERO * 0x1p-98f, T_OF_SIX(CODEC_M_BINS),
         CODEC_M_T_ONE * 0x1p-98f},
        {0, T_OF_SIX(CODEC_V_BINS), CODEC_V_T_ONE * 0x1p-98f}};
#undef T_OF_SIX
#undef T_
#define D_(k) (CODEC_D(k) * 0x1p98f)
static const float encode_d[8] = {
        CODEC_D_ONE * 0x1p98f, D_(1), D_(2), D_(3), D_(4), D_(5), D_(6), D_(7)};
#undef D_

struct encoder {
    vi start;
    vf t, d, c, limit;
    vf inverse; /* of the scale, times 2^-98; of m, negative */
};

INLINED struct encoder encoder_of(enum optim_lane lane)
{
    float half = lane == OPTIM_M ? 0.5f : 1.0f;
    return (struct encoder){
            .start = _mm256_broadcastsi128_si256(
                    _mm_loadu_si128((const void *)encode_start[lane])),
            .t = vf_load(encode_t[lane]),
            .d = vf_load(encode_d) * half,
            .c = vf_set(CODEC_START * half),
            .limit = vf_set(CODEC_LIMIT * half)};
}

INLINED void encoder_scale(
        struct encoder *encoder, enum optim_lane lane, float scale)
{
    float inverse = 1.0f / scale * 0x1p-98f;
    encoder->inverse = vf_set(lane == OPTIM_M ? -inverse : inverse);
}

/* The rank of a magnitude. */
INLINED vi rank_of(const struct encoder *e, vf y)
{
    vi window = _mm256_srli_epi32(BITS(y), 24);
    vi class = _mm256_shuffle_epi8(e->start, window);
    vf t = _mm256_permutevar8x32_ps(e->t, class);
    class = _mm256_sub_epi32(class, BITS(_mm256_cmp_ps(y, t, _CMP_GE_OQ)));
    vf f = vf_fma(y, _mm256_permutevar8x32_ps(e->d, class), e->c);
    f = _mm256_min_ps(f, e->limit);
    return _mm256_cvttps_epi32(
            FLOATS(_mm256_add_epi32(BITS(f), _mm256_slli_epi32(class, 23))));
}

/* Ranks below 0 for positive m; of v, 2 is the least rank above 0. */
INLINED vi encode_ranks(enum optim_lane lane, const struct encoder *e, vf x)
{
    const vf least = vf_set(CODEC_V_LEAST * 0x1p-98f);
    vf y = x * e->inverse;
    if (lane == OPTIM_M)
        return _mm256_sign_epi32(
                rank_of(e, _mm256_andnot_ps(vf_set(-0.0f), y)), BITS(y));
    return _mm256_add_epi32(
            rank_of(e, _mm256_max_ps(y, least)),
            _mm256_cmpeq_epi32(BITS(x), vi_set(0)));
}
