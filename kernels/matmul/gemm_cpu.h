/* gemm_cpu.h - what our own matrix product borrows, and the product with a
 * matrix whose rows are made as they are packed. */
#ifndef ZD_KERNELS_MATMUL_GEMM_CPU_H
#define ZD_KERNELS_MATMUL_GEMM_CPU_H

#include "base/status.h"
#include "kernels/cpu/simd.h"

/* Bytes that a matrix product on so many threads borrows (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);

/* Columns [begin, begin + count) of a row, by the calling thread. */
struct gemm_rows {
    void (*make)(const void *ctx, elem *out, int row, int begin, int count);
    const void *ctx;
};

/* As matmul_fn, with b of such rows: N of them with trans_b, else K. Never
 * by way of few rows or a short side. */
enum zd_status FAST(gemm_made)(
        void *out, enum dtype out_type, const void *a,
        const struct gemm_rows *rows, const void *bias, int M, int N, int K,
        bool trans_b, bool accumulate);

#endif
