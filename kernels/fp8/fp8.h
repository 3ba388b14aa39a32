/* fp8.h - tensors in 8 bits for matmuls: their largest magnitude, and the cast
 * of a tensor and its transpose to codes and scales in one pass.
 *
 *   scale = amax / MAX               multiplies codes; MAX: 448 or 57344
 *   code  = encode(x (MAX / amax))   quotient and product in fp32
 *   amax < 2^-100 counts as 0: scale and factor are 1, and codes round to 0
 *
 * amax is the largest |x| among the elements that share a scale, except NaN,
 * which becomes a NaN code. Infinity makes the scale infinite and its own code
 * NaN, so that it is not lost. Codes: base/number/dtype.h.
 *
 * Source:  Micikevicius et al. 2022, arXiv:2209.05433; blocks: DeepSeek-V3,
 *          arXiv:2412.19437, section 3.3. Layouts of scales: cuBLASLt 12.9.
 * Shapes:  a tensor of rows x columns; columns are contiguous and a matmul's
 *          K. Its transpose has K = padded rows.
 *            TENSOR    one scale
 *            1X128     one per 128 elements along K of a row, by blocks of K:
 *                      (ceil(K / 128), rows rounded down to 4), then
 *                      (ceil(K / 128), 4) for the last rows % 4, because
 *                      cuBLASLt supports only multiples of 4 rows
 *            128X128   one per tile:
 *                      (ceil(rows / 128), ceil(K / 128) rounded up to 4)
 *          Padding to a multiple of 4 is neither written nor read.
 * Types:   x has the table's type. On a GPU only bf16: x and codes 16-byte
 *          aligned, stride % 8 == 0, columns % 16 == 0.
 * Bits:    equal on CPU and GPU. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"

/* A job's train.fp8. BLOCKWISE: E4M3 with a scale per block; TENSORWISE: one
 * scale per tensor, gradients in E5M2. */
enum fp8_mode { FP8_NONE, FP8_TENSORWISE, FP8_BLOCKWISE };

enum scale_layout { SCALES_NONE, SCALES_TENSOR, SCALES_1X128, SCALES_128X128 };

enum {
    FP8_BLOCK = 128,
    FP8_ALIGN = 16 /* K of an FP8 matmul is a multiple of this */
};
#define FP8_LEAST_AMAX 0x1p-100f

static inline ZD_HOST_DEVICE float fp8_scale(float amax, enum dtype to)
{
    return amax < FP8_LEAST_AMAX ? 1.0f : amax / fp8_largest(to);
}

static inline ZD_HOST_DEVICE float fp8_factor(float amax, enum dtype to)
{
    return amax < FP8_LEAST_AMAX ? 1.0f : fp8_largest(to) / amax;
}

static inline ZD_HOST_DEVICE size_t fp8_blocks(size_t count)
{
    return (count + FP8_BLOCK - 1) / FP8_BLOCK;
}

/* K of a tensor's transpose: its rows, padded. */
static inline ZD_HOST_DEVICE int fp8_padded(int rows)
{
    return (rows + FP8_ALIGN - 1) / FP8_ALIGN * FP8_ALIGN;
}

enum { FP8_ROWS = 4 }; /* rows whose scales are contiguous (1X128) */

static inline ZD_HOST_DEVICE size_t fp8_whole_rows(size_t rows)
{
    return rows / FP8_ROWS * FP8_ROWS;
}

static inline ZD_HOST_DEVICE size_t fp8_fours(size_t count)
{
    return (count + FP8_ROWS - 1) / FP8_ROWS * FP8_ROWS;
}

/* Floats in the array of scales. */
static inline ZD_HOST_DEVICE size_t
fp8_scale_count(enum scale_layout layout, size_t rows, size_t columns)
{
    return layout == SCALES_TENSOR ? 1
           : layout == SCALES_1X128
                   ? fp8_blocks(columns) * fp8_fours(rows)
                   : fp8_blocks(rows) * fp8_fours(fp8_blocks(columns));
}

/* The index of a scale with 1X128. */
static inline ZD_HOST_DEVICE size_t
fp8_scale_of_row(size_t rows, size_t columns, size_t row, size_t column)
{
    size_t whole = fp8_whole_rows(rows), block = column / FP8_BLOCK;
    return row < whole ? block * whole + row
                       : fp8_blocks(columns) * whole + block * FP8_ROWS + row -
                                 whole;
}

/* The index of the scale of (row, column). */
static inline ZD_HOST_DEVICE size_t fp8_scale_at(
        enum scale_layout layout, size_t rows, size_t columns, size_t row,
        size_t column)
{
    return layout == SCALES_TENSOR ? 0
           : layout == SCALES_1X128
                   ? fp8_scale_of_row(rows, columns, row, column)
                   : row / FP8_BLOCK * fp8_fours(fp8_blocks(columns)) +
                             column / FP8_BLOCK;
}

/* amax[0] = max |x|; x has the table's type or fp32. `merge`: maximum with the
 * previous amax[0]. 0 if all are NaN. */
typedef enum zd_status fp8_amax_fn(
        struct stream *stream, float *amax, /* (1) */
        const void *x,                      /* (rows, columns) */
        enum dtype type, int rows, int columns, int stride, bool merge);

/* Casts x, and its transpose, to codes:
 *   TENSOR    both have the same codes, and the scale of *amax
 *   128X128   both have the codes and scales of tiles
 *   1X128     blocks run along the columns of each, so the casts differ
 * In the transpose rows of x from `rows` up to `padded` are zero codes; a block
 * of only such rows has scale 1.
 *
 * If x already is codes (from = to = E4M3, 128X128): x is a dense (rows,
 * columns), and `from_scales` a dense (ceil(rows / 128), ceil(columns / 128)),
 * as in model/quantized. Codes are only transposed, and scales get the layout;
 * `codes` is NULL. */
struct fp8_cast {
    const void *x;   /* (rows, columns) */
    enum dtype from; /* the table's type, or E4M3 */
    int rows, columns;
    int stride; /* of x, in elements */
    enum dtype to;
    enum scale_layout layout;
    const float *amax; /* (1) for TENSOR; else NULL: computed in the pass */
    const float *from_scales;
    uint8_t *codes;      /* (rows, columns); NULL: not wanted */
    float *scales;       /* of codes; with from_scales also without codes */
    uint8_t *transposed; /* (columns, padded); NULL: not wanted */
    float *transposed_scales;
    int padded; /* >= rows, % FP8_ALIGN == 0 */
};

typedef enum zd_status fp8_cast_fn(
        struct stream *stream, const struct fp8_cast *cast);
