/* dequantize.h - a quantized matrix (quant.h), decoded whole for a matmul.
 *
 *   out = value of each code, times the scale of its block, row or tile,
 * rounded once to the compute type
 *
 * In `scales`, one after the other:
 *   nf4, fp4   absmax of each block
 *   nested     the offset; scales, one for each nested_block blocks; then in
 *              bytes the codes of absmax
 *   int8       scb of each row
 *   fp8        of each tile, by rows
 *
 * Shapes:  out and codes (rows, columns), the linear's (out, in). 4-bit codes
 *          and out begin at whole bytes, scales at a multiple of 4.
 * Bits:    those of quant.h's definitions on every device. */
#pragma once

#include "base/device/device.h"
#include "kernels/quant/quant.h"

struct quant_matrix {
    enum quant_format format;
    int64_t rows, columns; /* 0: no matrix */
    size_t block;          /* of nf4 and fp4 */
    size_t nested_block;   /* 0: absmax is fp32 */
};

static inline size_t quant_matrix_count(const struct quant_matrix *m)
{
    return (size_t)m->rows * (size_t)m->columns;
}
static inline bool quant_is_4bit(const struct quant_matrix *m)
{
    return m->format <= QUANT_FP4;
}
/* Blocks, rows or tiles: what has its own scale. */
size_t quant_scale_count(const struct quant_matrix *m);
/* The block, row or tile of element i. */
size_t quant_scale_of(const struct quant_matrix *m, size_t i);
/* The first element of one. */
size_t quant_scale_first(const struct quant_matrix *m, size_t scale);
size_t quant_code_bytes(const struct quant_matrix *m, size_t count);
size_t quant_scale_bytes(const struct quant_matrix *m);

/* The arrays in `scales`. */
struct quant_scales {
    float *values;        /* of blocks, rows or tiles; nested: of absmax */
    float *offset;        /* nested, else NULL */
    unsigned char *codes; /* likewise */
};
struct quant_scales quant_scales_of(const struct quant_matrix *m, void *scales);
/* `scales` as above, of what quant.h made of every block, row or tile, and
 * back: nested ones are what they decode to. */
void quant_store_scales(
        void *scales, const float *of_blocks, const struct quant_matrix *m);
void quant_read_scales(
        float *of_blocks, void *scales, const struct quant_matrix *m);
/* Element i. */
float quant_value(
        const void *codes, const void *scales, const struct quant_matrix *m,
        size_t i);

typedef enum zd_status dequantize_fn(
        struct stream *stream, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix);
