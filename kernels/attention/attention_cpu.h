/* attention_cpu.h - what attention on the CPU borrows. */
#ifndef ZD_KERNELS_ATTENTION_ATTENTION_CPU_H
#define ZD_KERNELS_ATTENTION_ATTENTION_CPU_H

#include "kernels/attention/attention.h"
#include "kernels/cpu/simd.h"

/* Floats of scratch that attention needs on the threads now set, and its
 * backward alone. */
size_t FAST(attention_floats)(const struct attention_shape *shape);
size_t FAST(attention_backward_floats)(const struct attention_shape *shape);

#endif
