/* matmul_cpu.h - our own matmuls of one type and instruction set. */
#ifndef ZD_KERNELS_MATMUL_MATMUL_CPU_H
#define ZD_KERNELS_MATMUL_MATMUL_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/matmul/matmul_shape.h"

/* Of a few rows. */
void FAST(rows_run)(const struct matmul *m);
/* False: no side is short, and nothing was done. */
bool FAST(narrow_run)(const struct matmul *m);

/* Bytes that a matmul on so many threads borrows (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);

/* Columns [begin, begin + count) of a row, made by the calling thread. */
struct gemm_rows {
    void (*make)(const void *ctx, elem *out, int row, int begin, int count);
    const void *ctx;
};

/* matmul with b made of such rows while it is packed: N of them if b is
 * transposed, else K. Never by few rows or a short side. */
enum zd_status FAST(gemm_made)(
        const struct matmul *m, const struct gemm_rows *rows);

#endif
