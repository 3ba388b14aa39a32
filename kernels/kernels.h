/* kernels.h - the table of operations, chosen once for a device and a compute
 * type; no call site asks which of them it is on.
 *
 * Conventions for every operation in this folder:
 *   N = B*T tokens, C channels, V vocabulary; row-major, no padding unless a
 *   stride parameter says so. `void *` arrays are of the table's compute type
 *   (fp32, bf16 or fp16); `float *` arrays are fp32 whatever the compute type.
 *   Sums, softmax, norms and losses accumulate in fp32 or wider. Results are
 *   rounded once, to nearest even, when they are stored in a narrower type.
 *   Reductions have an order that depends on the shapes and nothing else, so
 *   the same call gives the same bits again (also at another thread count).
 *   Gradients of parameters are fp32; with `accumulate` they are added to what
 *   is there, else they overwrite it.
 *   The caller owns every array; nothing is kept. Scratch that an operation
 *   needs is asked for by <op>_scratch_bytes and passed in, so it is planned.
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

/* Every operation that is a function per type. */
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
    enum dtype logits_dtype; /* what logits are made and read in: fp32 on the
                                CPU, the compute type on a GPU, where dlogits
                                may take their place */
    bool adds_narrow; /* matmul takes a scale, and adds to the compute type */
    const char *name; /* "cpu fp32 (oneDNN, AVX2)": for the banner */
    matmul_fn *matmul;
    add_losses_fn *add_losses;
    head_norm_rope_forward_fn *head_norm_rope_forward; /* NULL: in parts */
    head_norm_rope_backward_fn *head_norm_rope_backward;
#define OP(op) op##_fn *op;
    KERNELS_EACH(OP)
#undef OP
};

/* q and k from their projection to attention: norms of their heads, then
 * rotated, in one pass where the table can, else in turn, to the same bits.
 * Backward rotates dout back in place, or leaves it as it was: it is scratch.
 */
enum zd_status kernels_head_norm_rope_forward(
        const struct kernels *kernels, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles);
enum zd_status kernels_head_norm_rope_backward(
        const struct kernels *kernels, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles);
/* The heads of q and k, each H and KV of them, rotated: in one call where those
 * of k follow those of q in every row. */
struct rope_pair {
    void *q, *k;
    int H, KV;
    int64_t q_stride, k_stride;
};
enum zd_status kernels_rope_pair(
        const struct kernels *kernels, struct rope_pair heads,
        const struct rope_angles *of_q, const struct rope_angles *of_k, int N,
        int D, bool backward);

/* The table of the thread's current device. Where ZD_HAVE_CUDA, on a GPU:
 * kernels_cuda. */
enum zd_status kernels_device(
        enum dtype dtype, const struct kernels **table_out);

/* The CPU table for a compute type: the fast paths this machine can run (AMX,
 * AVX-512, AVX2, plain), chosen here. */
enum zd_status kernels_cpu(enum dtype dtype, const struct kernels **table_out);
/* The plain definitions, for tests: loops, one thread, no library. */
enum zd_status kernels_plain(
        enum dtype dtype, const struct kernels **table_out);

/* The CUDA table (kernels_cuda.c). The first call on a device opens cuBLASLt
 * and, for the fast attention, cuDNN. ZD_ERR_UNFIT: cuBLASLt is not there. */
enum zd_status kernels_cuda(enum dtype dtype, const struct kernels **table_out);
/* Opens cuBLASLt, half a gigabyte that the dynamic linker works on for a tenth
 * of a second: on any thread, while another opens the GPU. A failure is told by
 * kernels_cuda. Nothing where there is no CUDA. */
void kernels_open_libraries(void);
/* matmul_algorithms and matmul_take_algorithms (kernels/matmul/matmul_cuda.h)
 * of the thread's device; on the CPU NULL. */
char *kernels_products_text(void);
const char *kernels_products_take(const char *text);
/* "cuBLASLt 13.1.0", static; ZD_ERR_UNFIT: it cannot be opened. */
enum zd_status kernels_products_library(const char **name_out);

/* What operations on a device borrow while they run: partial sums, sort orders,
 * the workspace of matmuls. One block for all, because they run one after the
 * other on the compute stream; planned by model (span "kernels.workspace") and
 * handed over before the first operation. Nothing on the CPU. */
size_t kernels_workspace_bytes(
        int N,        /* tokens of the largest pass */
        int C,        /* widest row that is normed */
        int columns); /* widest row of a bias's gradient */
/* For the thread's current device; the memory is the caller's and outlives it.
 */
void kernels_set_workspace(void *device, size_t bytes);

/* fp32 matmuls on a GPU may use TF32 (10 bits of fraction): off
 * until allowed. Nothing on the CPU. Before the first operation. */
void kernels_allow_tf32(bool allowed);

/* Multiprocessors of a GPU that matmuls leave to others, NCCL's kernels; 0:
 * none. Nothing on the CPU. Before the first operation. */
void kernels_leave_multiprocessors(int count);
