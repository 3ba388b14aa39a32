/* dequantize.h - decodes a whole quantized matrix (quant.h) for a matmul.
 *
 *   out = value of each code times the scale of its block, row or tile, rounded
 *         once to the compute type
 *
 * In `scales`, one after the other:
 *   nf4, fp4   absmax of each block
 *   nested     the offset; one scale per nested_block blocks; then the codes of
 *              absmax, one byte each
 *   int8       scb per row
 *   fp8        scale per tile, by rows
 *
 * Shapes:  out and codes (rows, columns), the linear's (out, in). scales are
 *          aligned to 4 bytes.
 * Bits:    as quant.h's definitions, on every device. */
#pragma once

#include "base/device/device.h"
#include "kernels/quant/quant.h"

struct quant_matrix {
    enum quant_format format;
    int64_t rows, columns; /* 0: no matrix */
    size_t block;          /* for nf4 and fp4 */
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
/* The number of blocks, rows or tiles, which each have a scale. */
size_t quant_scale_count(const struct quant_matrix *m);
/* The block, row or tile of element i. */
size_t quant_scale_of(const struct quant_matrix *m, size_t i);
/* The first element of a block, row or tile. */
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
/* Packs the scales that quant.h computed for every block, row or tile into
 * `scales` as above, and unpacks them; nested ones come back decoded. */
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
