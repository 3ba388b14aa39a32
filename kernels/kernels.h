/* kernels.h - the table of operations, chosen once for a device and a compute
 * type, so that no caller depends on either.
 *
 * Conventions for every operation in this folder:
 *   N = B*T tokens, C channels, V vocabulary; row-major, no padding unless a
 *   stride parameter says so. `void *` arrays are of the table's compute type
 *   (fp32, bf16 or fp16); `float *` arrays are fp32 whatever the compute type.
 *   Sums, softmax, norms and losses accumulate in fp32 or wider. Results are
 *   rounded once, to nearest even, when they are stored in a narrower type.
 *   The order of reductions depends only on the shapes, so equal calls give
 *   equal bits with any number of threads.
 *   Gradients of parameters are fp32; with `accumulate` they are added to the
 *   array, else they overwrite it.
 *   The caller owns every array; nothing is kept. An operation that needs
 *   scratch gets it as an argument; <op>_scratch_bytes returns the size, so
 *   that it is planned.
 *   Work is queued on `stream`; CPU twins have finished when they return.
 * Errors: ZD_ERR_DEVICE if a launch is refused; shapes are asserted. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/threads.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/magnitudes.h"
#include "kernels/elementwise/masked.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/fp8.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/losses.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/quant/dequantize.h"
#include "kernels/rope/rope.h"

/* Every operation with one function per type. */
#define KERNELS_EACH(OP)                                                       \
    OP(norm_forward)                                                           \
    OP(norm_backward)                                                          \
    OP(rope)                                                                   \
    OP(attention_forward)                                                      \
    OP(attention_backward)                                                     \
    OP(attention_decode)                                                       \
    OP(gelu_forward)                                                           \
    OP(gelu_backward)                                                          \
    OP(gated_forward)                                                          \
    OP(gated_backward)                                                         \
    OP(embedding_forward)                                                      \
    OP(embedding_backward)                                                     \
    OP(cross_entropy)                                                          \
    OP(row_scores)                                                             \
    OP(row_losses)                                                             \
    OP(add)                                                                    \
    OP(reduce_rows)                                                            \
    OP(scale_rows)                                                             \
    OP(row_gains)                                                              \
    OP(scale_columns)                                                          \
    OP(column_dots)                                                            \
    OP(dequantize)                                                             \
    OP(fp8_amax)                                                               \
    OP(fp8_cast)

struct kernels {
    enum dtype dtype;        /* compute type of every `void *` array */
    enum dtype logits_dtype; /* type of logits: fp32 on the CPU; the compute
                                type on a GPU, where dlogits may overwrite
                                them */
    bool adds_narrow; /* matmul scales, and accumulates to the compute type */
    const char *name; /* for the banner: "cpu fp32 (oneDNN, AVX2)" */
    matmul_fn *matmul;
    add_losses_fn *add_losses;
    head_norm_rope_forward_fn *head_norm_rope_forward; /* NULL: apart */
    head_norm_rope_backward_fn *head_norm_rope_backward;
#define OP(op) op##_fn *op;
    KERNELS_EACH(OP)
#undef OP
};

/* Norms the heads of q and k and rotates them, between projection and
 * attention: in one pass if the table can, else in separate passes with the
 * same bits. Backward may overwrite dout. */
enum zd_status kernels_head_norm_rope_forward(
        const struct kernels *kernels, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles);
enum zd_status kernels_head_norm_rope_backward(
        const struct kernels *kernels, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles);
/* Rotates the H heads of q and the KV heads of k; in one call if k's heads
 * follow q's in every row. */
struct rope_pair {
    void *q, *k;
    int H, KV;
    int64_t q_stride, k_stride;
};
enum zd_status kernels_rope_pair(
        const struct kernels *kernels, struct rope_pair heads,
        const struct rope_angles *of_q, const struct rope_angles *of_k, int N,
        int D, bool backward);

/* The table of the thread's current device; kernels_cuda on a GPU. */
enum zd_status kernels_device(
        enum dtype dtype, const struct kernels **table_out);

/* The CPU table for a compute type: the fastest paths that this machine can run
 * (AMX, AVX-512, AVX2, baseline). */
enum zd_status kernels_cpu(enum dtype dtype, const struct kernels **table_out);
/* The plain definitions, for tests: loops on one thread, no library. */
enum zd_status kernels_plain(
        enum dtype dtype, const struct kernels **table_out);

/* The CUDA table (kernels_cuda.c). The first call on a device opens cuBLASLt
 * and, for the fast attention, cuDNN. ZD_ERR_UNFIT: cuBLASLt is not available.
 */
enum zd_status kernels_cuda(enum dtype dtype, const struct kernels **table_out);
/* Preloads cuBLASLt: it has half a gigabyte, and the dynamic linker needs a
 * tenth of a second for it. Call it on any thread while another opens the GPU;
 * kernels_cuda reports a failure. Does nothing without CUDA. */
void kernels_open_libraries(void);
/* matmul_algorithms and matmul_take_algorithms (kernels/matmul/matmul_cuda.h)
 * of the thread's device; on the CPU NULL. */
char *kernels_products_text(void);
const char *kernels_products_take(const char *text);
/* "cuBLASLt 13.1.0", static; ZD_ERR_UNFIT: it cannot be opened. */
enum zd_status kernels_products_library(const char **name_out);

/* The workspace of operations on a GPU: partial sums, and what matmuls use. All
 * share one block, because they run one after the other on the compute stream.
 * model plans it (span "kernels.workspace") and passes it before the first
 * operation. 0 on the CPU. */
size_t kernels_workspace_bytes(
        int N,        /* tokens of the largest pass */
        int C,        /* widest row of a norm */
        int columns); /* widest row of a bias's gradient */
/* Sets the workspace of the thread's current device. The caller owns the
 * memory. */
void kernels_set_workspace(void *device, size_t bytes);

/* Allows TF32 (10 bits of fraction) for fp32 matmuls on a GPU; off by default.
 * No effect on the CPU. Call before the first operation. */
void kernels_allow_tf32(bool allowed);

/* Multiprocessors that matmuls leave to NCCL's kernels; 0: none. No effect on
 * the CPU. Call before the first operation. */
void kernels_leave_multiprocessors(int count);
