/* attention_cuda.h - which attention a table on a GPU has, and what it borrows.
 */
#pragma once

#include "kernels/attention/attention_choice.h"

/* Our own, by enum dtype. */
extern attention_fn *const attention_forward_cuda[3];
extern attention_fn *const attention_backward_cuda[3];
extern attention_decode_fn *const attention_decode_cuda[3];

/* What does attention in both directions in the place of our own kernels of
 * that type, as kernels_attention() says, for the current device; NULL:
 * nothing. *name_out: "cuDNN 9.19 attention", or "own attention"; static.
 * ZD_ERR_UNFIT, E1224: cuDNN was asked for and is not there. */
enum zd_status attention_cuda_choose(
        enum dtype dtype, attention_fn **attention_out, const char **name_out);
/* What is known of the thread's current device, or of a GPU that is planned for
 * where there is none. */
struct attention_facts attention_cuda_facts(enum dtype dtype);
/* What our own kernels use and, after it, what cuDNN uses: as it says where
 * there is a device, else a bound. */
size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype);

/* Whether a block of four warps of our own kernels on tensor cores, with so
 * much shared memory, is alone on a multiprocessor that has `shared_bytes`, and
 * eight warps with a row tile each are better (attention_mma_tiles.cuh). */
bool attention_takes_eight_warps(size_t block_bytes, size_t shared_bytes);
