/* quant_cpu.h - the fast paths of one instruction set and type. Private to
 * kernels' tables. */
#ifndef ZD_KERNELS_QUANT_QUANT_CPU_H
#define ZD_KERNELS_QUANT_QUANT_CPU_H

#include "kernels/cpu/simd.h"
#include "kernels/quant/quant.h"

extern const struct quant_ops FAST(quant_ops);

#endif
