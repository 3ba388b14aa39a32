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
#include "kernels/quant/codes_rows.h"
#include "kernels/quant/dequantize.h"
#include "kernels/rope/rope.h"

struct kernels {
    enum dtype dtype;        /* compute type of every `void *` array */
    enum dtype logits_dtype; /* what logits are made and read in: fp32 on the
                                CPU, the compute type on a GPU, where dlogits
                                may take their place */
    bool adds_narrow; /* matmul takes a scale, and adds to the compute type */
    const char *name; /* "cpu fp32 (oneDNN, AVX2)": for the banner */
    matmul_fn *matmul;
    norm_forward_fn *norm_forward;
    norm_backward_fn *norm_backward;
    rope_fn *rope;
    head_norm_rope_forward_fn *head_norm_rope_forward;
    head_norm_rope_backward_fn *head_norm_rope_backward;
    attention_forward_fn *attention_forward;
    attention_backward_fn *attention_backward;
    attention_decode_fn *attention_decode;
    gelu_forward_fn *gelu_forward;
    gelu_backward_fn *gelu_backward;
    gated_forward_fn *gated_forward;
    gated_backward_fn *gated_backward;
    embedding_forward_fn *embedding_forward;
    embedding_backward_fn *embedding_backward;
    cross_entropy_fn *cross_entropy;
    row_scores_fn *row_scores;
    row_losses_fn *row_losses;
    add_fn *add;
    reduce_rows_fn *reduce_rows;
    scale_rows_fn *scale_rows;
    row_gains_fn *row_gains;
    scale_columns_fn *scale_columns;
    column_dots_fn *column_dots;
    add_losses_fn *add_losses;
    dequantize_fn *dequantize;
    codes_rows_fn *codes_rows;
    fp8_amax_fn *fp8_amax;
    fp8_cast_fn *fp8_cast;
};

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
struct kernels_request {
    enum device_backend backend; /* resolved */
    enum dtype dtype;
    int N;       /* tokens of the largest pass */
    int C;       /* widest row that is normed */
    int columns; /* widest row of a bias's gradient */
    int V;
};
size_t kernels_workspace_bytes(const struct kernels_request *request);
/* For the thread's current device; the memory is the caller's and outlives it.
 */
void kernels_set_workspace(void *device, size_t bytes);

/* fp32 matmuls on a GPU may use TF32 (10 bits of fraction): off
 * until allowed. Nothing on the CPU. Before the first operation. */
void kernels_allow_tf32(bool allowed);

/* Multiprocessors of a GPU that matmuls leave to others, NCCL's kernels; 0:
 * none. Nothing on the CPU. Before the first operation. */
void kernels_leave_multiprocessors(int count);
