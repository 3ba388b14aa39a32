/* codec_tables.h - the numbers of the two dynamic maps. Private to the codec.
 *
 * Classes of a magnitude y = |x| / scale, in rising order:
 *   0     rounds to the entry 0 (m only; a v above 0 is at least class 1)
 *   1..7  the decades; class k covers 10^(k-8) .. 10^(k-7) in n_k bins,
 *         n_k = 2^(k-1) for m and 2^k for v
 *   8     rounds to the entry 1 */
#pragma once

enum { CODEC_CLASSES = 9 };

/* Scales between which every product below stays a normal number; vector code
 * hands any other qblock (but scale 0 when it decodes) to the plain code. */
#define CODEC_TAME_MIN 0x1p-80f
#define CODEC_TAME_MAX 0x1p28f

/* The end of class k, and its bins. */
#define CODEC_END_1  1e-6
#define CODEC_END_2  1e-5
#define CODEC_END_3  1e-4
#define CODEC_END_4  1e-3
#define CODEC_END_5  1e-2
#define CODEC_END_6  1e-1
#define CODEC_END_7  1.0
#define CODEC_END(k) CODEC_END_##k

#define CODEC_M_BINS(k) ((double)(1 << (k)) / 2)
#define CODEC_V_BINS(k) ((double)(1 << (k)))

/* decode: x = A f + B within class k, f = 2^(k-1) .. (m), 2^k .. (v). */
#define CODEC_A(k, bins) ((float)(0.9 * CODEC_END(k) / (bins)))
#define CODEC_B(k, bins) ((float)(CODEC_END(k) * (0.45 / (bins)-0.8)))

/* encode: f / 2^i = y D + 8/9. Class 8 has one entry, that of f = 128 (m), 256
 * (v): any D will do that leaves y D + 8/9 a little above 1. */
#define CODEC_D(k)  ((float)(1.0 / (0.9 * CODEC_END(k))))
#define CODEC_D_ONE 0.1125f
#define CODEC_START (8.0f / 9.0f)
#define CODEC_LIMIT 0x1.fffffep0f /* the largest fp32 below 2 */

/* Where class k gives way to k + 1: in the middle between the last entry of k,
 * END (1 - 0.45 / bins), and the first of k + 1, END (1 + 2.25 / bins). */
#define CODEC_T(k, bins) ((float)(CODEC_END(k) * (1.0 + 0.9 / (bins))))
#define CODEC_M_T_ZERO   2.75e-7f /* half the smallest entry */
#define CODEC_M_T_ONE    ((float)(1.0 - 0.225 / 64))
#define CODEC_V_T_ONE    ((float)(1.0 - 0.225 / 128))
/* A v is at least this, which rounds to the smallest entry, 3.25e-7. */
#define CODEC_V_LEAST 2e-7f

/* Rows of the tables of classes: a number for each decade. */
#define CODEC_OF_DECADES(MACRO, BINS)                                          \
    MACRO(1, BINS(1)), MACRO(2, BINS(2)), MACRO(3, BINS(3)),                   \
            MACRO(4, BINS(4)), MACRO(5, BINS(5)), MACRO(6, BINS(6)),           \
            MACRO(7, BINS(7))
#define CODEC_REACH                                                            \
    CODEC_D(1), CODEC_D(2), CODEC_D(3), CODEC_D(4), CODEC_D(5), CODEC_D(6),    \
            CODEC_D(7), CODEC_D_ONE
#define CODEC_T_OF_SIX(BINS)                                                   \
    CODEC_T(1, BINS(1)), CODEC_T(2, BINS(2)), CODEC_T(3, BINS(3)),             \
            CODEC_T(4, BINS(4)), CODEC_T(5, BINS(5)), CODEC_T(6, BINS(6))
/* Of m and of v: a and b to decode, d to encode, and t, where class k + 1
 * begins; the last one begins nowhere. v is never in class 0. */
#define CODEC_NOWHERE 0x1p127f
#define CODEC_ROWS                                                             \
    {{0, CODEC_OF_DECADES(CODEC_A, CODEC_M_BINS), 1.0f / 128},                 \
     {0, CODEC_OF_DECADES(CODEC_B, CODEC_M_BINS), 0},                          \
     {0, CODEC_REACH},                                                         \
     {CODEC_M_T_ZERO, CODEC_T_OF_SIX(CODEC_M_BINS), CODEC_M_T_ONE,             \
      CODEC_NOWHERE}},                                                         \
    {                                                                          \
        {0, CODEC_OF_DECADES(CODEC_A, CODEC_V_BINS), 1.0f / 256},              \
                {0, CODEC_OF_DECADES(CODEC_B, CODEC_V_BINS), 0},               \
                {0, CODEC_REACH},                                              \
                {0, CODEC_T_OF_SIX(CODEC_V_BINS), CODEC_V_T_ONE,               \
                 CODEC_NOWHERE}                                                \
    }
