/* codes_rows.h - a matmul of one or two rows with a quantized matrix, which
 * is decoded as it is multiplied: what a decode step has, where nothing of the
 * matrix is used twice and writing it out would be most of the time.
 *
 *   out(M, N) = a(M, K) W(N, K)^T [+ bias(N) per row]      M <= ROWS_TOGETHER
 *
 * W is dequantize's (dequantize.h), rounded to the compute type. Rows of out
 * lie `stride` elements apart: W may be one of several that are joined. Bits:
 * on a CPU those of dequantize and matmul. On a GPU sums have another
 * order, which depends on K alone. */
#pragma once

#include "kernels/matmul/matmul_shape.h"
#include "kernels/quant/dequantize.h"

typedef enum zd_status codes_rows_fn(
        struct stream *stream, void *out, /* (M, N), rows `stride` apart */
        int64_t stride, const void *a,    /* (M, K) */
        const void *codes, const void *scales,
        const struct quant_matrix *matrix, /* N rows, K columns */
        const void *bias,                  /* (N) or NULL */
        int M);
