/* narrow_cpu.h - the same of one type and instruction set. */
#ifndef ZD_KERNELS_MATMUL_NARROW_CPU_H
#define ZD_KERNELS_MATMUL_NARROW_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/matmul/narrow.h"

/* False: it is none of them, and nothing was done. */
bool FAST(narrow_run)(const struct narrow_product *product);

#endif
