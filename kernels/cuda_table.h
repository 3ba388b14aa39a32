/* cuda_table.h - the CUDA twins by their names, for kernels_cuda.c, and what
 * they borrow. Private to this folder.
 *
 * A family X has X_cuda.cu with one function for each operation and type. What
 * an operation borrows while it runs lies at the beginning of the workspace
 * (kernels.h): operations follow each other on the compute stream. */
#ifndef ZD_KERNELS_CUDA_TABLE_H
#define ZD_KERNELS_CUDA_TABLE_H

#include "kernels/kernels.h"

/* The names of the operations of one type. */
#define CUDA_NAME(op, type) op##_cuda_##type
#define CUDA_DECLARE(op)                                                       \
    op##_fn CUDA_NAME(op, fp32);                                               \
    op##_fn CUDA_NAME(op, bf16);                                               \
    op##_fn CUDA_NAME(op, fp16);

CUDA_DECLARE(layernorm_forward)
CUDA_DECLARE(layernorm_backward)
CUDA_DECLARE(rmsnorm_forward)
CUDA_DECLARE(rmsnorm_backward)
CUDA_DECLARE(head_norm_forward)
CUDA_DECLARE(head_norm_backward)
CUDA_DECLARE(add_layernorm_forward)
CUDA_DECLARE(add_rmsnorm_forward)
CUDA_DECLARE(rope)
CUDA_DECLARE(head_norm_rope_forward)
CUDA_DECLARE(head_norm_rope_backward)
CUDA_DECLARE(gelu_forward)
CUDA_DECLARE(gelu_backward)
CUDA_DECLARE(swiglu_forward)
CUDA_DECLARE(swiglu_backward)
CUDA_DECLARE(embedding_forward)
CUDA_DECLARE(embedding_backward)
CUDA_DECLARE(cross_entropy)
CUDA_DECLARE(add)
CUDA_DECLARE(reduce_rows)
add_losses_fn add_losses_cuda;

/* attention_cuda*.cu */
CUDA_DECLARE(attention_forward)
CUDA_DECLARE(attention_backward)
CUDA_DECLARE(attention_decode)
/* Replaces the attention of `table` as kernels_attention() says, for the
 * current device; *name_out: "cuDNN 9.19 attention", or "own attention";
 * static. ZD_ERR_UNFIT, E1224: cuDNN was asked for and is not there. */
enum zd_status attention_cuda_choose(
        struct kernels *table, const char **name_out);
size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype);
/* The front of it, which our own kernels use. */
size_t attention_own_scratch_bytes(const struct attention_shape *shape);

/* matmul_cuda*.c: cuBLASLt. */
CUDA_DECLARE(matmul)
CUDA_DECLARE(matmul_strided)
CUDA_DECLARE(matmul_gelu)
CUDA_DECLARE(matmul_dgelu)
CUDA_DECLARE(matmul_weight_grads)
/* Opens the library for the current device, once; ZD_ERR_UNFIT: it is not
 * there. *name_out: "cuBLASLt 13.1"; static. A product that this type or GPU
 * does not have is set to NULL in `table` (fused.h composes it). */
enum zd_status matmul_cuda_open(struct kernels *table, const char **name_out);
/* Of the workspace; the same on every GPU. */
size_t matmul_cuda_workspace_bytes(enum dtype dtype);

#undef CUDA_DECLARE

/* --- the workspace of the thread's current device ------------------------- */

/* At least `bytes`, aligned to 256; NULL where less was handed over, which is
 * our own mistake: the caller asserts. */
void *cuda_workspace(size_t bytes);
size_t cuda_workspace_size(void);

/* What each family needs of it. */
size_t norm_cuda_workspace_bytes(int C);
size_t embedding_cuda_workspace_bytes(int N, int C);

#endif
