/* matmul_cpu.h - our own CPU matmuls of one type and instruction set. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/matmul/matmul_shape.h"

/* For few rows. */
void FAST(rows_run)(const struct matmul *m);
/* False: no side is short; nothing was done. */
bool FAST(narrow_run)(const struct matmul *m);

/* Bytes of scratch for a matmul on this many threads (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);
