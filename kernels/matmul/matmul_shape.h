/* matmul_shape.h - shapes that our own CPU code computes even if there is a
 * library: few rows, for which the matrix is not packed (rows_cpu.c), and one
 * short side, as in adapters (narrow_cpu.c). */
#pragma once

#include "kernels/matmul/matmul.h"

enum { MATMUL_ROWS_MAX = 8 }; /* above this packing is faster (bench/gemm) */

static inline bool rows_are_few(const struct matmul *m)
{
    return m->M <= MATMUL_ROWS_MAX && (!m->a.transposed || m->M == 1);
}

enum {
    NARROW_MOST = 32,  /* above this packing is faster (bench/gemm) */
    NARROW_LEAST = 256 /* the least of the other two sides */
};

enum narrow {
    NARROW_NONE,
    NARROW_SUMS,   /* out(M, r) = a(M, K) b(K, r) */
    NARROW_SPREAD, /* out(M, N) [+]= a(M, r) b(r, N) */
    NARROW_GRADS   /* out(r, N) or out(M, r) [+]= a^T b over K rows */
};

/* Depends only on the shape. */
static inline enum narrow narrow_kind(const struct matmul *m)
{
    bool tall = m->M >= NARROW_LEAST, wide = m->N >= NARROW_LEAST;
    bool deep = m->K >= NARROW_LEAST;
    if (m->bias)
        return NARROW_NONE;
    if (m->a.transposed)
        return !m->b.transposed && m->out.type == DTYPE_FP32 && deep &&
                               ((m->M <= NARROW_MOST && wide) ||
                                (m->N <= NARROW_MOST && tall))
                       ? NARROW_GRADS
                       : NARROW_NONE;
    if (tall && deep && m->N <= NARROW_MOST && !m->accumulate)
        return NARROW_SUMS;
    return tall && wide && m->K <= NARROW_MOST ? NARROW_SPREAD : NARROW_NONE;
}
