/* matmul_cuda.h - matrix products on a GPU, as cuBLASLt sees them.
 *
 * Row-major out(M,N) = op(a) op(b) is the column-major product of the
 * transposes: D(m,n) with m = N, n = M, its A our b and its B our a. So a bias
 * per column of ours is one per row of D, which is what epilogues know.
 *
 *   matmul_cuda.c          the operations of matmul.h, and what is composed
 *   matmul_run_cuda.c      the plans of a GPU, kept for each shape
 *   matmul_plan_cuda.c     one of them: descriptors, an algorithm
 *   matmul_timing_cuda.c   which of the algorithms is the fastest here
 *   matmul_tuning.c        the file that remembers it
 *   matmul_own_cuda.cu     our own product, for what the library refuses
 *
 * Products are exact to the type: fp32 is multiplied in fp32 (TF32 only where
 * asked for), bf16 and fp16 are summed in fp32, and no partial sum is rounded
 * to the output's type or added by atomics. */
#ifndef ZD_KERNELS_MATMUL_MATMUL_CUDA_H
#define ZD_KERNELS_MATMUL_MATMUL_CUDA_H

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "kernels/matmul/matmul.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- settings of the process --------------------------------------------- */

/* Multiprocessors that products may count on; 0: all. For the time in which a
 * collective takes some. The next products are planned for that number. */
void products_set_sm_target(int multiprocessors);

/* TF32 for products of fp32; off until asked for. */
void products_set_tf32(bool allowed);

/* How an algorithm is chosen at a shape's first product. HEURISTIC: the
 * library's first, the same wherever the GPU and the library are the same, for
 * runs that must agree to the bit across hosts. LARGE: products of 2^30
 * operations or more are timed, unless the file knows them. ALL: also the small
 * ones, for tests. The environment variable ZEROD_MATMUL_TIMING = off, on, all
 * stands above this. */
enum products_timing { PRODUCTS_HEURISTIC, PRODUCTS_LARGE, PRODUCTS_ALL };
void products_set_timing(enum products_timing timing);

/* --- one product --------------------------------------------------------- */

enum product_epilogue {
    PRODUCT_PLAIN,
    PRODUCT_BIAS,
    PRODUCT_GELU_AUX,      /* aux = the product, D = gelu of it */
    PRODUCT_GELU_AUX_BIAS, /* the same of product + bias */
    PRODUCT_DGELU,         /* D = product * gelu'(aux) */
    PRODUCT_BGRADA,        /* bias[m] = sums of A's rows */
    PRODUCT_BGRADB,        /* bias[n] = sums of B's columns */
};

/* What a plan is made for; no padding: it is compared as bytes. */
struct product {
    int32_t m, n, k;
    int32_t sm_target;
    int32_t lda, ldb, ldd;   /* elements between columns; 0: there is no gap */
    uint8_t dtype, out_type; /* enum dtype: of A and B, of C and D */
    uint8_t trans_a, trans_b;
    uint8_t epilogue;
    uint8_t alignment; /* bytes that every pointer is a multiple of: 1-16 */
    uint8_t tf32;
    uint8_t spare[5];
};

struct product_operands {
    const void *a, *b;
    void *d;
    void *bias; /* read or written, as the epilogue says */
    void *aux;  /* (m, n) like D */
    bool accumulate;
};

enum product_outcome {
    PRODUCT_REFUSED, /* nothing was queued: the library has no algorithm for it
                        on this GPU, or in parts it is faster */
    PRODUCT_QUEUED,
    PRODUCT_UNDECIDED /* queued, and whether it is faster than its parts is to
                         be measured: product_decide */
};
/* The first product of a shape makes its plan, and may wait for the GPU to time
 * it. */
enum zd_status product_run(
        struct stream *stream, const struct product *product,
        const struct product_operands *operands,
        enum product_outcome *outcome_out);

/* Measures a product with an epilogue against `apart`, which queues the same in
 * parts, and remembers which is the faster. Both run several times: what they
 * write they must overwrite. */
typedef enum zd_status product_fn(const void *ctx);
enum zd_status product_decide(
        struct stream *stream, const struct product *product,
        const struct product_operands *operands, product_fn *apart,
        const void *ctx);

/* Opens the library for the thread's GPU, once. *name_out: "cuBLASLt 13.1.0";
 * static. ZD_ERR_UNFIT: it is not there. */
enum zd_status products_open(const char **name_out);

/* What an epilogue's own arrays may take of the workspace's beginning. 32 MiB
 * behind it are what NVIDIA recommends on sm_90; less loses the fastest
 * algorithms. */
enum {
    PRODUCT_BORROW_BYTES = 256 * 1024,
    LIBRARY_WORKSPACE_BYTES = 32 * 1024 * 1024,
};

/* Forgets what is kept for the thread's GPU: plans and the library's handle. */
void products_close(void);

/* The algorithms of this run's products on the thread's GPU, for who goes on
 * with it: a text, the caller's to free; NULL: there are none. Products that are
 * not timed have the library's first, and are not among them. */
char *products_text(void);
/* Those of such a text stand above what is timed, and above the file, for
 * products that come. NULL, or why they are not taken: static. */
const char *products_take(const char *text);

/* How products came to their algorithm since the start, for bench and tests. */
struct product_counters {
    uint64_t plans;   /* made */
    uint64_t timed;   /* of them by timing */
    uint64_t read;    /* of them from the file */
    uint64_t refused; /* of them without an algorithm */
};
struct product_counters product_counters(void);
/* The time of one product as it was measured, in microseconds, and the
 * algorithm as text ("66 tile 20 stages 35 split 1", "in parts"); 0 and "" when
 * it was not. For bench. */
double product_measured(
        const struct product *product, char *algorithm, size_t bytes);

/* --- our own, in matmul_own_cuda.cu ---------------------------------------
 * Arguments as in matmul.h; row-major; any shape. */

enum zd_status matmul_own_cuda(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, const struct matmul_strides *strides,
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate);
/* out(M,N) of out_type += bias(N) of dtype in every row. */
enum zd_status matmul_add_bias_cuda(
        struct stream *stream, void *out, enum dtype out_type, const void *bias,
        enum dtype dtype, int M, int N);
/* sums(count) += more(count). */
enum zd_status matmul_add_sums_cuda(
        struct stream *stream, float *sums, const float *more, int count);

/* Opens the library for the current device, once; ZD_ERR_UNFIT: it is not
 * there. *name_out: "cuBLASLt 13.1"; static. */
enum zd_status matmul_cuda_open(const char **name_out);
/* Of the workspace; the same on every GPU. */
static inline size_t matmul_cuda_workspace_bytes(enum dtype dtype)
{
    return PRODUCT_BORROW_BYTES + LIBRARY_WORKSPACE_BYTES;
}

#ifdef __cplusplus
}
#endif

#endif
