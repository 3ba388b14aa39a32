/* matmul_codes.h - a product with matrices in codes, which are decoded in
 * strips while they are packed: nothing of them is written out.
 *
 *   out(M, N) [+]= a(M, K) op(W) [+ bias(N) per row]
 *
 * W has the rows of the parts, one part behind the other: N of K columns, of
 * which op is the transpose (trans_b), or K of N columns. Each element is that
 * of dequantize, rounded to the compute type. Bits: those of dequantize and
 * matmul, but for a few rows that are not transposed. Where a library makes the
 * products, which packs itself, there is none, and W is decoded whole. */
#ifndef ZD_KERNELS_QUANT_MATMUL_CODES_H
#define ZD_KERNELS_QUANT_MATMUL_CODES_H

#include "base/number/dtype.h"
#include "kernels/quant/dequantize.h"

/* A matrix in codes: (rows, columns), the linear's (out, in). Borrowed. */
struct codes_view {
    const void *codes, *scales;
    const struct quant_matrix *matrix;
};

enum { CODES_PARTS = 3 }; /* that a product has at most: q, k, v */

typedef enum zd_status matmul_codes_fn(
        struct stream *stream, void *out, /* (M, N) */
        enum dtype out_type, /* compute type or fp32; accumulate: fp32 */
        const void *a,       /* (M, K) */
        const struct codes_view *parts, int part_count,
        const void *bias, /* (N) or NULL */
        int M, int N, int K, bool trans_b, bool accumulate);

#endif
