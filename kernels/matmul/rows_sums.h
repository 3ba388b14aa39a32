/* rows_sums.h - the sums of matmuls of a few rows (matmul_shape.h), one row of
 * the matrix at a time: what one element sums, and in which order, depends on K
 * alone, wherever the row's elements come from. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/matmul/matmul_shape.h"

/* Sums side by side hide the latency of an addition. */
enum { ROWS_SUMS = 4, ROWS_STEP = ROWS_SUMS * VL };

struct rows_sums {
    vf of[ROWS_SUMS][ROWS_TOGETHER];
};

ALWAYS_INLINE void rows_step(
        vf sum[ROWS_TOGETHER], const elem *a, int64_t a_row, int rows,
        const elem *b, int count)
{
    vf bv = load_some(b, count);
    for (int m = 0; m < rows; m++)
        sum[m] += load_some(a + m * a_row, count) * bv;
}

/* sums += a(m, 0..count) . b(0..count), rows of a `a_row` apart. A row of the
 * matrix may come in pieces: of a multiple of ROWS_STEP but for the last. */
ALWAYS_INLINE void rows_add(
        struct rows_sums *sums, const elem *a, int64_t a_row, int rows,
        const elem *b, int count)
{
    int k = 0;
    for (; k + ROWS_STEP <= count; k += ROWS_STEP)
        for (int s = 0; s < ROWS_SUMS; s++)
            rows_step(
                    sums->of[s], a + k + s * VL, a_row, rows, b + k + s * VL,
                    VL);
    for (; k < count; k += VL)
        rows_step(sums->of[0], a + k, a_row, rows, b + k, count - k);
}

ALWAYS_INLINE float rows_total(const struct rows_sums *sums, int m)
{
    static_assert(ROWS_SUMS == 4, "the order of these");
    return vf_sum(
            (sums->of[0][m] + sums->of[1][m]) +
            (sums->of[2][m] + sums->of[3][m]));
}

/* The sums of `count` columns [+ bias], rounded into out, or as fp32 written or
 * added to it. */
ALWAYS_INLINE void rows_put(
        void *out, enum dtype out_type, const elem *bias, bool accumulate,
        const float *sums, int count)
{
    for (int i = 0; i < count; i += VL) {
        vf sum = vf_load_some(sums + i, count - i);
        if (bias)
            sum += load_some(bias + i, count - i);
        if (out_type == DTYPE_FP32) {
            float *to = (float *)out + i;
            if (accumulate)
                sum += vf_load_some(to, count - i);
            vf_store_some(to, sum, count - i);
        } else {
            store_some((elem *)out + i, sum, count - i);
        }
    }
}
