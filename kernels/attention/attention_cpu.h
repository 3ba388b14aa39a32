/* attention_cpu.h - the scratch of attention on the CPU. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cpu/simd.h"

/* Floats of scratch for attention in both directions with the current number of
 * threads; the second: for backward only. */
size_t FAST(attention_floats)(const struct attention_shape *shape);
size_t FAST(attention_backward_floats)(const struct attention_shape *shape);
