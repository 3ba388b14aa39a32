/* product.h - a matrix product on a CPU as one argument, and which products
 * have a way of their own: those of a few rows, which do not pack the matrix
 * (rows_cpu.c), and those with one short side, as adapters have them
 * (narrow_cpu.c). */
#ifndef ZD_KERNELS_MATMUL_PRODUCT_H
#define ZD_KERNELS_MATMUL_PRODUCT_H

#include "base/number/dtype.h"

#include <stdbool.h>

struct cpu_product { /* as matmul_fn */
    void *out;
    enum dtype out_type;
    const void *a, *b, *bias;
    int M, N, K;
    bool trans_a, trans_b, accumulate;
};

/* From more rows on packing wins (bench/gemm). ROWS_TOGETHER are multiplied as
 * the matrix is read; all others while it is in the caches. */
enum { MATMUL_ROWS_MAX = 8, ROWS_TOGETHER = 2 };

static inline bool rows_are_few(int M, bool trans_a)
{
    return M <= MATMUL_ROWS_MAX && (!trans_a || M == 1);
}

enum {
    NARROW_MOST = 32,  /* beyond it packing pays (bench/gemm) */
    NARROW_LEAST = 256 /* the other two sides: a model's, not a test's */
};

enum narrow {
    NARROW_NONE,
    NARROW_SUMS,   /* out(M, r) = a(M, K) b(K, r) */
    NARROW_SPREAD, /* out(M, N) [+]= a(M, r) b(r, N) */
    NARROW_GRADS   /* out(r, N) or out(M, r) [+]= a^T b over K rows */
};

/* Which of them a product is; its shape alone decides. */
static inline enum narrow narrow_kind(const struct cpu_product *p)
{
    bool tall = p->M >= NARROW_LEAST, wide = p->N >= NARROW_LEAST;
    bool deep = p->K >= NARROW_LEAST;
    if (p->trans_a)
        return !p->trans_b && p->out_type == DTYPE_FP32 && deep &&
                               ((p->M <= NARROW_MOST && wide) ||
                                (p->N <= NARROW_MOST && tall))
                       ? NARROW_GRADS
                       : NARROW_NONE;
    if (tall && deep && p->N <= NARROW_MOST && !p->accumulate)
        return NARROW_SUMS;
    return tall && wide && p->K <= NARROW_MOST ? NARROW_SPREAD : NARROW_NONE;
}

#endif
