/* attention_cudnn.h - attention by cuDNN where attention_choose says so, and by
 * our own kernels else. Where ZD_HAVE_CUDNN. */
#pragma once

#include "kernels/attention/attention_choice.h"
#include "kernels/attention/attention_cuda.h"

/* Both directions, by `dq`; bf16 and fp16. */
attention_fn *attention_cudnn(enum dtype dtype);
/* After what our own kernels use: what cuDNN's graphs of this shape ask for on
 * the thread's current device, with one document a sample and with several.
 * Where a process has asked for many shapes: the bound of attention_choose. */
size_t attention_cudnn_bytes(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
