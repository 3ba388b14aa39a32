/* matmul_cpu.h - our own matmuls of one type and instruction set. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/matmul/matmul_shape.h"

/* Of a few rows. */
void FAST(rows_run)(const struct matmul *m);
/* False: no side is short, and nothing was done. */
bool FAST(narrow_run)(const struct matmul *m);

/* Bytes that a matmul on so many threads borrows (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);
