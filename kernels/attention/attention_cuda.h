/* attention_cuda.h - which attention a table on a GPU has, and what it borrows.
 */
#ifndef ZD_KERNELS_ATTENTION_ATTENTION_CUDA_H
#define ZD_KERNELS_ATTENTION_ATTENTION_CUDA_H

#include "kernels/attention/attention.h"

struct attention_pair {
    attention_forward_fn *forward;
    attention_backward_fn *backward;
};

/* Replaces `pair`, our own of that type, as kernels_attention() says, for the
 * current device; *name_out: "cuDNN 9.19 attention", or "own attention";
 * static. ZD_ERR_UNFIT, E1224: cuDNN was asked for and is not there. */
enum zd_status attention_cuda_choose(
        enum dtype dtype, struct attention_pair *pair, const char **name_out);
size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype);
/* The front of it, which our own kernels use. */
size_t attention_own_scratch_bytes(const struct attention_shape *shape);

#endif
