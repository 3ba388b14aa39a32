/* fast.h - what the fast CPU paths share: their names, their threads.
 *
 * A fast path divides its rows, columns or tiles among threads in any way it
 * likes; what one row, column or tile sums, and in which order, depends on the
 * shapes alone. So the bits do not depend on the number of threads. */
#ifndef ZD_KERNELS_CPU_FAST_H
#define ZD_KERNELS_CPU_FAST_H

#include "kernels/backend.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

/* Threads worth waking for `work` elements: waking them costs microseconds,
 * and much more where ranks share cores. */
static inline int threads_for(size_t work)
{
    return work < 32768 ? 1 : kernels_threads();
}

matmul_fn FAST(matmul);
layernorm_forward_fn FAST(layernorm_forward);
layernorm_backward_fn FAST(layernorm_backward);
rmsnorm_forward_fn FAST(rmsnorm_forward);
rmsnorm_backward_fn FAST(rmsnorm_backward);
head_norm_forward_fn FAST(head_norm_forward);
head_norm_backward_fn FAST(head_norm_backward);
rope_fn FAST(rope);
attention_forward_fn FAST(attention_forward);
attention_backward_fn FAST(attention_backward);
attention_decode_fn FAST(attention_decode);
gelu_forward_fn FAST(gelu_forward);
gelu_backward_fn FAST(gelu_backward);
swiglu_forward_fn FAST(swiglu_forward);
swiglu_backward_fn FAST(swiglu_backward);
embedding_forward_fn FAST(embedding_forward);
embedding_backward_fn FAST(embedding_backward);
cross_entropy_fn FAST(cross_entropy);
add_fn FAST(add);
reduce_rows_fn FAST(reduce_rows);

/* Floats of scratch that attention needs on the threads now set. */
size_t FAST(attention_floats)(const struct attention_shape *shape);
/* Bytes that a matrix product on so many threads borrows (scratch.h). */
size_t FAST(gemm_scratch_bytes)(int threads);

#endif
