/* gemm_tile.h - the kernel that every matmul is made of: a tile
 * of MR x NR sums that stays in registers while it runs over K.
 *
 * Source: van Zee, van de Geijn 2015, "BLIS", doi:10.1145/2764454, section 3.
 * 6 x 16 floats fill 12 of AVX2's 16 registers, which leaves two for a row of b
 * and one for an element of a; 12 x 32 fill 24 of AVX-512's 32. */
#pragma once

#include "kernels/cpu/simd.h"

enum { NV = 2, NR = NV * VL, MR = VL == 16 ? 12 : 6 };

/* What is multiplied lies in words of 32 bits: a float, or where the CPU
 * multiplies bf16 and a file asks for it (TILE_OF_PAIRS) two of them that
 * follow each other along K, and a sum takes both (AVX512_BF16; products are
 * exact, sums fp32, subnormals 0). */
#if defined(TILE_OF_PAIRS) && HAS_BF16
#define IN_PAIRS 1
enum { PAIR = 2 };
#else
#define IN_PAIRS 0
enum { PAIR = 1 };
#endif

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

typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
/* Where a pair of elements begins. */
typedef float v4_pairs
        __attribute__((vector_size(16), aligned(sizeof(elem)), may_alias));
typedef uint16_t v4h __attribute__((vector_size(8)));
typedef uint16_t v4h_any __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t v4u __attribute__((vector_size(16)));

/* 4 words of a row. */
ALWAYS_INLINE v4 load4(const elem *p)
{
#if IN_PAIRS
    return *(const v4_pairs *)p;
#elif KERNEL_TYPE == KERNEL_BF16
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

/* The word of `count` elements at p, the last of its row when they are fewer
 * than a word has. */
ALWAYS_INLINE float word_at(const elem *p, int count)
{
#if IN_PAIRS
    uint32_t bits = p[0] | (count > 1 ? (uint32_t)p[1] << 16 : 0);
    float word;
    memcpy(&word, &bits, sizeof word);
    return word;
#else
    return elem_to_float(*p);
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
    int r = 0, words = (K + PAIR - 1) / PAIR;
    for (; r + 4 <= rows; r += 4) {
        const elem *from = in + r * in_row;
        int k = 0;
        for (; (k + 4) * PAIR <= K; k += 4)
            transpose_4x4(
                    out + (int64_t)k * width + r, width, from + k * PAIR,
                    in_row);
        for (; k < words; k++)
            for (int i = 0; i < 4; i++)
                out[(int64_t)k * width + r + i] =
                        word_at(from + i * in_row + k * PAIR, K - k * PAIR);
    }
    for (; r < width; r++)
        for (int k = 0; k < words; k++)
            out[(int64_t)k * width + r] =
                    r < rows ? word_at(in + r * in_row + k * PAIR, K - k * PAIR)
                             : 0.0f;
}

/* Words of VL columns: of a row, or of it and the row after it. */
ALWAYS_INLINE vf words_at(const elem *in, int64_t in_row, int count)
{
#if IN_PAIRS
    vu low = __builtin_convertvector(*(const vh_any *)in, vu), high = {0};
    if (count > 1)
        high = __builtin_convertvector(*(const vh_any *)(in + in_row), vu);
    return (vf)(low | high << 16);
#else
    return load(in);
#endif
}

/* out[k * width + c] = word k of column c, c < columns, of K elements a column,
 * which lie in_row apart; the other columns up to `width` become 0. */
ALWAYS_INLINE void pack_rows(
        float *out, int width, const elem *in, int64_t in_row, int columns,
        int K)
{
    for (int k = 0; k < K; k += PAIR) {
        int c = 0, count = K - k < PAIR ? K - k : PAIR;
        for (; c + VL <= columns; c += VL)
            vf_store(out + c, words_at(in + c, in_row, count));
        for (; c < width; c++) {
            elem column[2] = {0};
            for (int i = 0; i < count && c < columns; i++)
                column[i] = in[i * in_row + c];
            out[c] = word_at(column, PAIR);
        }
        in += PAIR * in_row;
        out += width;
    }
}
