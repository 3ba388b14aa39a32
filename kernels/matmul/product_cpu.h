/* product_cpu.h - products with a way of their own (product.h), of one type and
 * instruction set. */
#ifndef ZD_KERNELS_MATMUL_PRODUCT_CPU_H
#define ZD_KERNELS_MATMUL_PRODUCT_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/matmul/product.h"

/* Of a few rows; a is not transposed. */
void FAST(rows_run)(const struct cpu_product *product);
/* False: it has no short side, and nothing was done. No bias. */
bool FAST(narrow_run)(const struct cpu_product *product);

#endif
