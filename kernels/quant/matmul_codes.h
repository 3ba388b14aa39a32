/* matmul_codes.h - matmul whose b is quantized: it is decoded in strips while
 * it is packed, and never written out.
 *
 * b has the rows of the parts, one part after the other: N of K columns
 * (transposed), or K of N columns. a is not transposed; no gaps, no epilogue.
 * Each element is that of dequantize, rounded to the compute type. Bits: those
 * of dequantize and matmul, except for a few rows of a with b not transposed.
 * A library packs b itself: where one is used there is no such operation, and b
 * is decoded whole. */
#ifndef ZD_KERNELS_QUANT_MATMUL_CODES_H
#define ZD_KERNELS_QUANT_MATMUL_CODES_H

#include "kernels/matmul/matmul.h"
#include "kernels/quant/dequantize.h"

/* A quantized matrix: (rows, columns), the linear's (out, in). Borrowed. */
struct codes_view {
    const void *codes, *scales;
    const struct quant_matrix *matrix;
};

enum { CODES_PARTS = 3 }; /* of a matmul at most: q, k, v */

typedef enum zd_status matmul_codes_fn(
        struct stream *stream, const struct matmul *matmul, /* b.data unused */
        const struct codes_view *parts, int part_count);

#endif
