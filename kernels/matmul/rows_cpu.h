/* rows_cpu.h - the same of one type and instruction set. */
#ifndef ZD_KERNELS_MATMUL_ROWS_CPU_H
#define ZD_KERNELS_MATMUL_ROWS_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/matmul/rows.h"

void FAST(rows_run)(const struct rows_product *product);

#endif
