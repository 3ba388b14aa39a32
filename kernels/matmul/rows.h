/* rows.h - products of a few rows, which do not pack the matrix. */
#ifndef ZD_KERNELS_MATMUL_ROWS_H
#define ZD_KERNELS_MATMUL_ROWS_H

#include "base/number/dtype.h"

#include <stdbool.h>

/* From more on packing wins (bench/gemm). ROWS_TOGETHER are multiplied as the
 * matrix is read; all others while it is in the caches. */
enum { MATMUL_ROWS_MAX = 8, ROWS_TOGETHER = 2 };

static inline bool rows_are_few(int M, bool trans_a)
{
    return M <= MATMUL_ROWS_MAX && (!trans_a || M == 1);
}

/* As matmul_fn; a is not transposed, M at most MATMUL_ROWS_MAX. */
struct rows_product {
    void *out;
    enum dtype out_type;
    const void *a, *b, *bias;
    int M, N, K;
    bool trans_b, accumulate;
};

#endif
