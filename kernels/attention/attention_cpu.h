/* attention_cpu.h - what attention on the CPU borrows. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cpu/simd.h"

/* Floats of scratch that attention needs on the threads now set, and its
 * backward alone. */
size_t FAST(attention_floats)(const struct attention_shape *shape);
size_t FAST(attention_backward_floats)(const struct attention_shape *shape);
