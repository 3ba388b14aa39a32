/* simd_codec_avx512.h - values of 8-bit codes and back, 16 at a time: tables of
 * 16 entries, which AVX2 has not (with those of 8 a step takes 15 % longer).
 * Private to simd.c. */
#pragma once

#include "optim/codec_tables.h"
#include "optim/simd_vector.h"

/* f = (code - 127) 2^24 for m and ((code + 1) mod 256) 2^8 for v, so that its
 * exponent, modulo 16, is a place in these tables:
 *   m   0: entry 0     7..13: the decades    14: entry 1, where f is -2^31
 *   v   0: entry 1     7: entry 0            8..14: the decades */
#define M_A(k, bins) (CODEC_A(k, bins) * 0x1p-24f)
#define V_A(k, bins) (CODEC_A(k, bins) * 0x1p-8f)

static const float decode_a[2][16] = {
        {0, 0, 0, 0, 0, 0, 0, CODEC_OF_DECADES(M_A, CODEC_M_BINS), -0x1p-31f},
        {0, 0, 0, 0, 0, 0, 0, 0, CODEC_OF_DECADES(V_A, CODEC_V_BINS)}};
static const float decode_b[2][16] = {
        {0, 0, 0, 0, 0, 0, 0, CODEC_OF_DECADES(CODEC_B, CODEC_M_BINS)},
        {1, 0, 0, 0, 0, 0, 0, 0, CODEC_OF_DECADES(CODEC_B, CODEC_V_BINS)}};

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
    int byte = lane == OPTIM_M ? 3 : 1;
    vi c = _mm512_broadcast_i32x4(
            _mm_loadu_si128((const void *)(codes + 16 * k)));
    c = _mm512_add_epi8(c, _mm512_set1_epi8(lane == OPTIM_M ? -127 : 1));
    vf f = _mm512_cvtepi32_ps(_mm512_maskz_shuffle_epi8(
            0x1111111111111111ull << byte, c,
            (vi)((words){UP_TO_LAST} << (8 * byte))));
    vi place = _mm512_srli_epi32(BITS(f), 23);
    vi b = BITS(_mm512_permutexvar_ps(place, decoder->b));
    if (lane == OPTIM_M) /* b ^ (f & sign) */
        b = _mm512_ternarylogic_epi32(b, BITS(f), vi_set(INT32_MIN), 0x78);
    return vf_fma(_mm512_permutexvar_ps(place, decoder->a), f, FLOATS(b));
}

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
    vi t; /* what to add to the bits */
    vf d, c, u;
    vf inverse; /* of the scale, times 2^-98; of m, negative */
};

INLINED struct encoder encoder_of(enum optim_lane lane)
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

INLINED void encoder_scale(
        struct encoder *encoder, enum optim_lane lane, float scale)
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

/* Ranks below 0 for positive m. */
INLINED vi encode_ranks(enum optim_lane lane, const struct encoder *e, vf x)
{
    vf y = x * e->inverse;
    vi w = window_of(e, y), c = BITS(_mm512_permutexvar_ps(w, e->c));
    vf u = _mm512_permutexvar_ps(w, e->u);
    if (lane == OPTIM_M) /* c | (y & sign) */
        c = _mm512_ternarylogic_epi32(c, BITS(y), vi_set(INT32_MIN), 0xf8);
    vf f = vf_fma(y, _mm512_permutexvar_ps(w, e->d), FLOATS(c));
    if (lane == OPTIM_M) /* the lesser magnitude, with the sign of f */
        return _mm512_cvttps_epi32(_mm512_range_ps(f, u, 2));
    return _mm512_mask_cvttps_epi32(
            vi_set(1), _mm512_test_epi32_mask(BITS(x), BITS(x)),
            _mm512_min_ps(f, u));
}
