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
#ifndef ZD_KERNELS_KERNELS_H
#define ZD_KERNELS_KERNELS_H

#include "base/device.h"
#include "base/dtype.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

struct kernels {
    enum dtype dtype; /* compute type of every `void *` array */
    const char *name; /* "cpu fp32 (oneDNN, AVX2)": for the banner */
    matmul_fn *matmul;
    layernorm_forward_fn *layernorm_forward;
    layernorm_backward_fn *layernorm_backward;
    rmsnorm_forward_fn *rmsnorm_forward;
    rmsnorm_backward_fn *rmsnorm_backward;
    rope_fn *rope;
    attention_forward_fn *attention_forward;
    attention_backward_fn *attention_backward;
    attention_decode_fn *attention_decode;
    gelu_forward_fn *gelu_forward;
    gelu_backward_fn *gelu_backward;
    swiglu_forward_fn *swiglu_forward;
    swiglu_backward_fn *swiglu_backward;
    embedding_forward_fn *embedding_forward;
    embedding_backward_fn *embedding_backward;
    cross_entropy_fn *cross_entropy;
    add_fn *add;
    reduce_rows_fn *reduce_rows;
};

/* The CPU table for a compute type: the fast paths this machine can run (AMX,
 * AVX-512, AVX2, plain), chosen here. */
enum zd_status kernels_cpu(enum dtype dtype, const struct kernels **table_out);
/* The plain definitions, for tests: loops, one thread, no library. */
enum zd_status kernels_plain(
        enum dtype dtype, const struct kernels **table_out);

/* Threads that CPU operations use (OpenMP), and every other OpenMP region of
 * the calling thread; call once at start. */
void kernels_set_threads(int threads);

#endif
