/* fp8.h - tensors in 8 bits for matmuls: their greatest magnitude, and the cast
 * to codes and scales, of the tensor and of its transpose in one pass.
 *
 *   scale  = amax / MAX            what a code is multiplied by; MAX: 448,
 * 57344 code   = encode(x (MAX / amax))   the quotient and the product in fp32
 *   amax < 2^-100 counts as 0: scale and factor are 1, and codes round to 0
 *
 * amax is the greatest |x| of what shares a scale; NaN is left out of it and
 * becomes a code that is NaN. Infinity makes the scale infinite and its own
 * code NaN, so that it does not get lost. Codes: base/number/dtype.h.
 *
 * Source:  Micikevicius et al. 2022, arXiv:2209.05433; blocks: DeepSeek-V3,
 *          arXiv:2412.19437, section 3.3. Layouts of scales: cuBLASLt 12.9.
 * Shapes:  a tensor of rows x columns, of which columns is the contiguous side
 *          and a matmul's K; its transpose has K = padded rows.
 *            TENSOR    one scale
 *            1X128     one for 128 elements along K of a row, by blocks of K:
 *                      (ceil(K / 128), rows rounded down to 4), then
 *                      (ceil(K / 128), 4) of the last rows % 4, since cuBLASLt
 *                      takes whole fours of rows alone
 *            128X128   one for a tile:
 *                      (ceil(rows / 128), ceil(K / 128) rounded up to 4)
 *          What rounds a side up to 4 is not written and never read.
 * Types:   x is of the table's type. On a GPU bf16: x and codes 16-byte
 *          aligned, stride % 8 == 0, columns % 16 == 0.
 * Bits:    the CPU's and the GPU's are equal. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"

/* A job's train.fp8: E4M3 with blocks; or one scale a tensor, of gradients
 * E5M2. */
enum fp8_mode { FP8_NONE, FP8_TENSORWISE, FP8_BLOCKWISE };

enum scale_layout { SCALES_NONE, SCALES_TENSOR, SCALES_1X128, SCALES_128X128 };

enum {
    FP8_BLOCK = 128,
    FP8_ALIGN = 16 /* K of a matmul of codes is a multiple of it */
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

/* `rows` of a tensor as K of its transpose. */
static inline ZD_HOST_DEVICE int fp8_padded(int rows)
{
    return (rows + FP8_ALIGN - 1) / FP8_ALIGN * FP8_ALIGN;
}

enum { FP8_ROWS = 4 }; /* whose scales lie together (1X128) */

static inline ZD_HOST_DEVICE size_t fp8_whole_rows(size_t rows)
{
    return rows / FP8_ROWS * FP8_ROWS;
}

static inline ZD_HOST_DEVICE size_t fp8_fours(size_t count)
{
    return (count + FP8_ROWS - 1) / FP8_ROWS * FP8_ROWS;
}

/* Floats that scales take. */
static inline ZD_HOST_DEVICE size_t
fp8_scale_count(enum scale_layout layout, size_t rows, size_t columns)
{
    return layout == SCALES_TENSOR ? 1
           : layout == SCALES_1X128
                   ? fp8_blocks(columns) * fp8_fours(rows)
                   : fp8_blocks(rows) * fp8_fours(fp8_blocks(columns));
}

/* Of 1X128. */
static inline ZD_HOST_DEVICE size_t
fp8_scale_of_row(size_t rows, size_t columns, size_t row, size_t column)
{
    size_t whole = fp8_whole_rows(rows), block = column / FP8_BLOCK;
    return row < whole ? block * whole + row
                       : fp8_blocks(columns) * whole + block * FP8_ROWS + row -
                                 whole;
}

/* Which of them is (row, column)'s. */
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

/* amax[0] = max |x|, of x of the table's type or fp32; `merge`: and of what is
 * there. 0 of NaN alone. */
typedef enum zd_status fp8_amax_fn(
        struct stream *stream, float *amax, /* (1) */
        const void *x,                      /* (rows, columns) */
        enum dtype type, int rows, int columns, int stride, bool merge);

/* Codes of x, and of its transpose:
 *   TENSOR    both have the codes and the scale that *amax says
 *   128X128   both have the codes and scales of tiles
 *   1X128     blocks run along the columns of each, so each is a cast of its
 *             own
 * Rows of x from `rows` up to `padded` are zero codes of the transpose; a block
 * that has no other has scale 1.
 *
 * Of codes (from = to = E4M3, 128X128): x is (rows, columns) without gaps and
 * `from_scales` is dense, (ceil(rows / 128), ceil(columns / 128)), as
 * model/quantized has them. Codes move as they are, and scales to their layout;
 * `codes` is NULL. */
struct fp8_cast {
    const void *x;   /* (rows, columns) */
    enum dtype from; /* the table's, or E4M3 */
    int rows, columns;
    int stride; /* of x, in elements */
    enum dtype to;
    enum scale_layout layout;
    const float *amax; /* (1), of TENSOR; else NULL: taken in the pass */
    const float *from_scales;
    uint8_t *codes;      /* (rows, columns); NULL: not wanted */
    float *scales;       /* of codes, or with from_scales alone */
    uint8_t *transposed; /* (columns, padded); NULL: not wanted */
    float *transposed_scales;
    int padded; /* >= rows, % FP8_ALIGN == 0 */
};

typedef enum zd_status fp8_cast_fn(
        struct stream *stream, const struct fp8_cast *cast);
