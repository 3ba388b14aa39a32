/* matmul_cuda.h - matmul on a GPU in cuBLASLt's terms.
 *
 * Row-major out(M,N) = a b is the column-major product of the transposes:
 * D(m,n) with m = N, n = M, its A our b and its B our a. So our bias per column
 * is one per row of D, as epilogues need it.
 *
 *   matmul_cuda.c          the operation of matmul.h, composed of matmuls
 *   matmul_run_cuda.c      the plans of a GPU, by key; timing
 *   matmul_plan_cuda.c     one plan: descriptors, algorithms, the launch
 *   matmul_tuning.c        the file that remembers algorithms
 *   timing_cuda.c          times alternative ways
 *   ways_cuda.c            chooses between two ways of other operations
 *   matmul_own_cuda.cu     our own kernel, for what the library refuses
 *
 * Precision: fp32 is multiplied in fp32 (TF32 only on request), bf16 and fp16
 * are summed in fp32, and no partial sum is rounded to the output's type or
 * added by atomics. */
#pragma once

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

/* The number of multiprocessors for the next matmuls; 0: all. Leaves some to
 * collectives. */
void matmul_set_sm_target(int multiprocessors);

/* TF32 for fp32; off by default. */
void matmul_set_tf32(bool allowed);

/* How the first matmul of a shape chooses its algorithm (environment variable
 * ZEROD_MATMUL_TIMING). off: the library's first proposal, which depends only
 * on the GPU and the library, for runs that must agree to the bit across hosts.
 * on (the default): matmuls of 2^30 operations or 2^24 bytes or more are timed,
 * unless the file has them. all: also small ones, for tests. */
enum matmul_timing { MATMUL_HEURISTIC, MATMUL_TIME_LARGE, MATMUL_TIME_ALL };

/* --- plans ---------------------------------------------------------------- */

enum key_epilogue { /* numbers are in files */
                    KEY_PLAIN,
                    KEY_BIAS,
                    KEY_GELU_AUX,      /* aux = the result, D = gelu of it */
                    KEY_GELU_AUX_BIAS, /* the same with result + bias */
                    KEY_DGELU,         /* D = result * gelu'(aux) */
                    KEY_BGRADA,        /* bias[m] = sums of A's rows */
                    KEY_BGRADB,        /* bias[n] = sums of B's columns */
                    KEY_EPILOGUES,
                    /* not matmuls: see two_ways */
                    KEY_ATTENTION_FORWARD = 16,
                    KEY_ATTENTION_BACKWARD
};

/* Identifies a plan, in the library's terms. Compared as bytes, and written to
 * files in this order. */
struct matmul_key {
    int32_t m, n, k;
    int32_t sm_target;
    int32_t lda, ldb, ldd;   /* elements between columns; 0: no gaps */
    int32_t dtype, out_type; /* enum dtype: of A, of C and D */
    int32_t trans_a, trans_b;
    int32_t epilogue;
    int32_t alignment; /* of every pointer in bytes: 1-16 */
    int32_t tf32;
    int32_t b_type;             /* enum dtype; A's, but for E4M3 and E5M2 */
    int32_t a_scales, b_scales; /* enum scale_layout */
    int32_t fast; /* sum FP8 products with the tensor core's 14 bits */
};

enum matmul_outcome {
    MATMUL_REFUSED, /* nothing was queued: the library has no algorithm on this
                       GPU, or the parts are faster */
    MATMUL_QUEUED,
    MATMUL_UNDECIDED /* queued, but not yet timed against its parts: call
                        matmul_decide */
};
/* Runs the library, including the epilogue; a bias has out's type. The first
 * matmul of a key makes its plan, and may wait for the GPU to time algorithms.
 */
enum zd_status matmul_run(
        struct stream *stream, const struct matmul *matmul,
        enum matmul_outcome *outcome_out);

/* Times a matmul with an epilogue against its parts and remembers the faster.
 * Both run several times, so they must not accumulate. */
enum zd_status matmul_decide(
        struct stream *stream, const struct matmul *matmul,
        const struct matmul_parts *parts);

/* Two ways to compute an operation other than a matmul. The faster is found
 * once by timing and remembered with the algorithms of matmuls, in the file and
 * for a run that resumes. `run` queues way 0 or 1; both overwrite the same
 * results. key: its epilogue is a KEY of no matmul; the caller chooses the
 * other fields. */
struct two_ways {
    struct matmul_key key;
    enum zd_status (*run)(const void *work, int way, bool *refused_out);
    const void *work;
};
/* Way 0 if timing is off or a way is refused. A key's first use may wait for
 * the GPU. */
enum zd_status matmul_choose_way(
        struct stream *stream, const struct two_ways *ways, int *way_out);

/* Opens the library for the thread's GPU, once. *name_out: "cuBLASLt 13.1.0";
 * static. ZD_ERR_UNFIT: it is not available. */
enum zd_status matmul_cuda_open(const char **name_out);
/* Frees the plans and the library's handle of the thread's GPU. */
void matmul_cuda_close(void);

/* The workspace begins with arrays of our own, for epilogues. The 32 MiB after
 * them for the library are NVIDIA's recommendation for sm_90; with less the
 * fastest algorithms are lost. */
enum {
    MATMUL_BORROW_BYTES = 256 * 1024,
    LIBRARY_WORKSPACE_BYTES = 32 * 1024 * 1024,
    MATMUL_WORKSPACE_BYTES = MATMUL_BORROW_BYTES + LIBRARY_WORKSPACE_BYTES,
};

/* The algorithms of this run's matmuls on the thread's GPU as text, for a run
 * that resumes; the caller frees it. NULL: there are none. Matmuls that are not
 * timed use the library's first proposal and are not listed. */
char *matmul_algorithms(void);
/* From now on the algorithms of such a text override timing and the file.
 * Returns NULL, or why the text is rejected (static). */
const char *matmul_take_algorithms(const char *text);

/* How algorithms were chosen since the start; for bench and tests. */
struct matmul_counters {
    uint64_t plans;   /* all */
    uint64_t timed;   /* of them by timing */
    uint64_t read;    /* of them from the file */
    uint64_t refused; /* of them without an algorithm */
};
struct matmul_counters matmul_counters(void);

/* --- our own, in matmul_own_cuda.cu --------------------------------------- */

/* For any shape; no epilogue. */
enum zd_status matmul_own_cuda(
        struct stream *stream, const struct matmul *matmul);
/* out += bias in every row. */
enum zd_status matmul_add_bias_cuda(
        struct stream *stream, const struct matmul *matmul);
/* sums(count) += more(count). */
enum zd_status matmul_add_sums_cuda(
        struct stream *stream, float *sums, const float *more, int count);

#ifdef __cplusplus
}
#endif
