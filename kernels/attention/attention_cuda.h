/* attention_cuda.h - selects the attention of a GPU's table and sizes its
 * scratch. */
#pragma once

#include "kernels/attention/attention_choice.h"

/* Our own kernels, by enum dtype. */
extern attention_fn *const attention_forward_cuda[3];
extern attention_fn *const attention_backward_cuda[3];
extern attention_decode_fn *const attention_decode_cuda[3];

/* The function to use instead of our own kernels of that type in both
 * directions on the current device, according to kernels_attention(); NULL:
 * none. *name_out: "cuDNN 9.19 attention", or "own attention"; static.
 * ZD_ERR_UNFIT, E1224: cuDNN was requested and is not available. */
enum zd_status attention_cuda_choose(
        enum dtype dtype, attention_fn **attention_out, const char **name_out);
/* The facts of the thread's current device, or of an assumed GPU on a machine
 * without one. */
struct attention_facts attention_cuda_facts(enum dtype dtype);
/* Opens cuDNN; false: *why says what is missing. */
bool attention_open_cudnn(
        const char **name_out, int *version_out, char *why, size_t why_bytes);
/* The scratch of our own kernels plus that of cuDNN: as cuDNN reports it if
 * there is a device, else an upper bound. */
size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype);

/* Whether only one block of our own tensor-core kernels (four warps,
 * `block_bytes` of shared memory) fits on a multiprocessor with `shared_bytes`,
 * so that eight warps of one row tile each are faster
 * (attention_mma_tiles.cuh). */
bool attention_takes_eight_warps(size_t block_bytes, size_t shared_bytes);
