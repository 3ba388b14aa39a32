/* gemm_tile.h - the kernel that every matmul is made of: a tile
 * of MR x NR sums that stays in registers while it runs over K.
 *
 * Source: van Zee, van de Geijn 2015, "BLIS", doi:10.1145/2764454, section 3.
 * 6 x 16 floats fill 12 of AVX2's 16 registers, which leaves two for a row of b
 * and one for an element of a; 12 x 32 fill 24 of AVX-512's 32; 32 x 32 fill
 * half of AMX's tiles (amx.h). */
#pragma once

#include "kernels/cpu/simd.h"

/* What is multiplied lies in words of 32 bits: a float, or where the CPU
 * multiplies bf16 and a file asks for it (TILE_OF_PAIRS) two of them that
 * follow each other along K, and a sum takes both (AVX512_BF16, AMX; products
 * are exact, sums fp32, subnormals 0). */
#if defined(TILE_OF_PAIRS) && HAS_BF16
#define IN_PAIRS 1
enum { PAIR = 2 };
#else
#define IN_PAIRS 0
enum { PAIR = 1 };
#endif
#if IN_PAIRS && (defined(__AMX_BF16__) || defined(AMX_IN_SOFTWARE))
#define IN_AMX 1
#include "kernels/cpu/amx.h"
#else
#define IN_AMX 0
#endif

enum { NV = 2, NR = NV * VL, MR = IN_AMX ? 32 : VL == 16 ? 12 : 6 };

/* sum + a b, for each word. */
ALWAYS_INLINE vf word_multiply(vf sum, vf a, vf b)
{
#if IN_PAIRS
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
    return sum + a * b;
#endif
}

/* Stays in registers, which memset of it does not (gcc 12: 5 % of a matmul).
 */
ALWAYS_INLINE void tile_clear(vf acc[MR][NV])
{
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            acc[i][j] = vf_all(0);
}

/* acc[i][j] += sum_k a(i, k) b(k, j), with a(i, k) at a[i * row + k * step] and
 * b(k, j) at b[k * b_step + j]. K words in order. */
ALWAYS_INLINE void tile_multiply(
        vf acc[MR][NV], const float *a, int64_t row, int64_t step,
        const float *b, int64_t b_step, int K)
{
#pragma GCC unroll 4
    for (int k = 0; k < K; k++) {
        vf bv[NV];
        for (int j = 0; j < NV; j++)
            bv[j] = vf_load(b + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            vf av = vf_all(a[i * row]);
            for (int j = 0; j < NV; j++)
                acc[i][j] = word_multiply(acc[i][j], av, bv[j]);
        }
        a += step;
        b += b_step;
    }
}

#if VL == 16

/* The first `count` lanes, by a mask: a panel of MR rows is no whole vector. */
ALWAYS_INLINE void store_lanes(float *p, vf v, int count)
{
    if (count >= VL)
        vf_store(p, v);
    else
        _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v);
}

ALWAYS_INLINE vf load_lanes(const elem *p, int count)
{
    if (count >= VL)
        return load(p);
    __mmask16 some = (__mmask16)((1u << count) - 1);
#if KERNEL_TYPE == KERNEL_FP32
    return _mm512_maskz_loadu_ps(some, p);
#else
    elem lanes[VL];
    _mm256_storeu_si256((__m256i *)lanes, _mm256_maskz_loadu_epi16(some, p));
    return load(lanes);
#endif
}

/* The first `count` elements of a row as 16 words. */
ALWAYS_INLINE vf row_words(const elem *in, int count)
{
#if IN_PAIRS
    __mmask32 some = count < 32 ? (1u << count) - 1 : ~0u;
    return (vf)_mm512_maskz_loadu_epi16(some, in);
#else
    return load_lanes(in, count);
#endif
}

ALWAYS_INLINE void transpose_16(vf r[16])
{
    vf q[4][4]; /* q[g][j]: of rows 4g.., words j, j + 4, .. */
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512d a = (__m512d)_mm512_unpacklo_ps(r[4 * g], r[4 * g + 1]);
        __m512d b = (__m512d)_mm512_unpackhi_ps(r[4 * g], r[4 * g + 1]);
        __m512d c = (__m512d)_mm512_unpacklo_ps(r[4 * g + 2], r[4 * g + 3]);
        __m512d d = (__m512d)_mm512_unpackhi_ps(r[4 * g + 2], r[4 * g + 3]);
        q[g][0] = (vf)_mm512_unpacklo_pd(a, c);
        q[g][1] = (vf)_mm512_unpackhi_pd(a, c);
        q[g][2] = (vf)_mm512_unpacklo_pd(b, d);
        q[g][3] = (vf)_mm512_unpackhi_pd(b, d);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        vf a = _mm512_shuffle_f32x4(q[0][j], q[1][j], 0x44);
        vf b = _mm512_shuffle_f32x4(q[0][j], q[1][j], 0xee);
        vf c = _mm512_shuffle_f32x4(q[2][j], q[3][j], 0x44);
        vf d = _mm512_shuffle_f32x4(q[2][j], q[3][j], 0xee);
        r[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[4 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[8 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* out[k * width + r] = word k of row r, for 16 rows of up to 16 words; rows
 * from `rows` on are 0, and those from `lanes` on are not stored. For AMX,
 * words from `count` on are stored too, as 0: a tile is whole. */
ALWAYS_INLINE void pack_16(
        float *out, int width, int lanes, const elem *in, int64_t in_row,
        int rows, int count)
{
    vf r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = i < rows ? row_words(in + i * in_row, count) : (vf){0};
    transpose_16(r);
#pragma GCC unroll 16
    for (int k = 0; k < 16; k++)
        if (IN_AMX || k * PAIR < count)
            store_lanes(out + k * width, r[k], lanes);
}

/* out[k * width + r] = word k of row r, r < rows, of K elements a row; the
 * other columns up to `width` become 0. */
ALWAYS_INLINE void pack_transposed(
        float *out, int width, const elem *in, int64_t in_row, int rows, int K)
{
    enum { STEP = 16 * PAIR };
    for (int r = 0; r < width; r += 16)
        for (int k = 0; k < K; k += STEP) {
            float *to = out + (int64_t)(k / PAIR) * width + r;
            const elem *from = in + r * in_row + k;
            if (rows - r >= width - r && K - k >= STEP)
                pack_16(to, width, width - r, from, in_row,
                        width - r < 16 ? width - r : 16, STEP);
            else
                pack_16(to, width, width - r, from, in_row, rows - r, K - k);
        }
}

#else

typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t v4h __attribute__((vector_size(8)));
typedef uint16_t v4h_any __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t v4u __attribute__((vector_size(16)));

/* 4 words of a row. */
ALWAYS_INLINE v4 load4(const elem *p)
{
#if KERNEL_TYPE == KERNEL_BF16
    v4h narrow = *(const v4h_any *)p;
    return (v4)(__builtin_convertvector(narrow, v4u) << 16);
#elif KERNEL_TYPE == KERNEL_FP16 && defined(__F16C__)
    return (v4)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p));
#elif KERNEL_TYPE == KERNEL_FP16
    return fp16_widen(*(const vh_any *)p);
#else
    return *(const v4_any *)p;
#endif
}

/* out[k * out_step + r] = word k of row r for r, k < 4. */
ALWAYS_INLINE void transpose_4x4(
        float *out, int64_t out_step, const elem *in, int64_t in_row)
{
    v4 r0 = load4(in), r1 = load4(in + in_row);
    v4 r2 = load4(in + 2 * in_row), r3 = load4(in + 3 * in_row);
    v4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
    v4 b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    v4 c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
    v4 d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(v4_any *)out = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    *(v4_any *)(out + out_step) = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    *(v4_any *)(out + 2 * out_step) = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    *(v4_any *)(out + 3 * out_step) = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* out[k * width + r] = word k of row r, r < rows, of K elements a row; the
 * other columns up to `width` become 0. */
ALWAYS_INLINE void pack_transposed(
        float *out, int width, const elem *in, int64_t in_row, int rows, int K)
{
    int r = 0;
    for (; r + 4 <= rows; r += 4) {
        const elem *from = in + r * in_row;
        int k = 0;
        for (; k + 4 <= K; k += 4)
            transpose_4x4(
                    out + (int64_t)k * width + r, width, from + k, in_row);
        for (; k < K; k++)
            for (int i = 0; i < 4; i++)
                out[(int64_t)k * width + r + i] =
                        elem_to_float(from[i * in_row + k]);
    }
    for (; r < width; r++)
        for (int k = 0; k < K; k++)
            out[(int64_t)k * width + r] =
                    r < rows ? elem_to_float(in[r * in_row + k]) : 0.0f;
}

#endif

#if IN_PAIRS
/* 16 words, each of a bf16 of `a` and the one of b beside it; and the words of
 * the 16 after them. */
ALWAYS_INLINE vf pairs_low(__m512i a, __m512i b)
{
    const __m512i at = _mm512_set_epi16(
            47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
            38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return (vf)_mm512_permutex2var_epi16(a, at, b);
}

ALWAYS_INLINE vf pairs_high(__m512i a, __m512i b)
{
    const __m512i at = _mm512_set_epi16(
            63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55,
            23, 54, 22, 53, 21, 52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
    return (vf)_mm512_permutex2var_epi16(a, at, b);
}

/* Words of `columns` columns, at most NR, of a row and the row after it. */
ALWAYS_INLINE void pack_row(
        float *out, int width, const elem *in, int64_t in_row, int columns,
        int count)
{
    __mmask32 some = columns < 32 ? (1u << columns) - 1 : ~0u;
    __m512i a = _mm512_maskz_loadu_epi16(some, in);
    __m512i b = _mm512_maskz_loadu_epi16(count > 1 ? some : 0, in + in_row);
    store_lanes(out, pairs_low(a, b), width);
    if (width > VL)
        store_lanes(out + VL, pairs_high(a, b), width - VL);
}
#elif VL == 16
ALWAYS_INLINE void pack_row(
        float *out, int width, const elem *in, int64_t in_row, int columns,
        int count)
{
    for (int c = 0; c < width; c += VL)
        store_lanes(
                out + c,
                columns > c ? load_lanes(in + c, columns - c) : (vf){0},
                width - c);
}
#else
ALWAYS_INLINE void pack_row(
        float *out, int width, const elem *in, int64_t in_row, int columns,
        int count)
{
    int c = 0;
    for (; c + VL <= columns; c += VL)
        vf_store(out + c, load(in + c));
    for (; c < width; c++)
        out[c] = c < columns ? elem_to_float(in[c]) : 0;
}
#endif

/* out[k * width + c] = word k of column c, c < columns, of K elements a column,
 * which lie in_row apart; the other columns up to `width` become 0. */
ALWAYS_INLINE void pack_rows(
        float *out, int width, const elem *in, int64_t in_row, int columns,
        int K)
{
    enum { AHEAD = 32 * PAIR }; /* rows: no prefetcher sees so wide a stride */
    for (int k = 0; k < K; k += PAIR) {
        for (int i = 0; i < PAIR && k + AHEAD + i < K; i++)
            __builtin_prefetch(in + (AHEAD + i) * in_row);
        pack_row(out, width, in, in_row, columns, K - k);
        in += PAIR * in_row;
        out += width;
    }
}
