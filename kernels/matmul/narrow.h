/* narrow.h - products with one short side, as adapters have them. */
#ifndef ZD_KERNELS_MATMUL_NARROW_H
#define ZD_KERNELS_MATMUL_NARROW_H

#include "base/number/dtype.h"

#include <stdbool.h>

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

/* As matmul_fn, without a bias. */
struct narrow_product {
    void *out;
    enum dtype out_type;
    const void *a, *b;
    int M, N, K;
    bool trans_a, trans_b, accumulate;
};

/* Which of them a product is; its shape alone decides. */
static inline enum narrow narrow_kind(const struct narrow_product *p)
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
