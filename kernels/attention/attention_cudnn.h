/* attention_cudnn.h - attention by cuDNN where attention_choose allows it, else
 * by our own kernels. Only with ZD_HAVE_CUDNN. */
#pragma once

#include "kernels/attention/attention_choice.h"
#include "kernels/attention/attention_cuda.h"

/* Runs backward if `dq` is set, else forward; bf16 and fp16. */
attention_fn *attention_cudnn(enum dtype dtype);
/* Scratch besides that of our own kernels: the most that cuDNN's graphs of this
 * shape ask for on the thread's current device, with one document per sample or
 * with several. After many shapes in one process: the bound of
 * attention_choose. */
size_t attention_cudnn_bytes(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
