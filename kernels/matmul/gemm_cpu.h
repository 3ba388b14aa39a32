/* gemm_cpu.h - what our own matrix product borrows. */
#ifndef ZD_KERNELS_MATMUL_GEMM_CPU_H
#define ZD_KERNELS_MATMUL_GEMM_CPU_H

#include "kernels/cpu/simd.h"

/* Bytes that a matrix product on so many threads borrows (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);

#endif
