/* matmul_cuda.h - matmul on a GPU, as cuBLASLt sees it.
 *
 * Row-major out(M,N) = a b is the column-major product of the transposes:
 * D(m,n) with m = N, n = M, its A our b and its B our a. So a bias per column
 * of ours is one per row of D, which is what epilogues know.
 *
 *   matmul_cuda.c          the operation of matmul.h, and what is composed
 *   matmul_run_cuda.c      the plans of a GPU, kept by key; timing
 *   matmul_plan_cuda.c     one plan: descriptors, algorithms, the launch
 *   matmul_tuning.c        the file that remembers algorithms
 *   timing_cuda.c          how long each of several ways takes
 *   ways_cuda.c            which of two ways of what is no matmul is faster
 *   matmul_own_cuda.cu     our own kernel, for what the library refuses
 *
 * Results are exact to the type: fp32 is multiplied in fp32 (TF32 only where
 * asked for), bf16 and fp16 are summed in fp32, and no partial sum is rounded
 * to the output's type or added by atomics. */
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

/* Multiprocessors that matmuls may count on; 0: all. For the time in which a
 * collective takes some. The next matmuls are planned for that number. */
void matmul_set_sm_target(int multiprocessors);

/* TF32 for fp32; off until asked for. */
void matmul_set_tf32(bool allowed);

/* How an algorithm is chosen at a shape's first matmul, as the environment
 * variable ZEROD_MATMUL_TIMING says. off: the library's first, the same
 * wherever the GPU and the library are the same, for runs that must agree to
 * the bit across hosts. on (the default): matmuls of 2^30 operations or 2^24
 * bytes or more are timed, unless the file knows them. all: also the small
 * ones, for tests. */
enum matmul_timing { MATMUL_HEURISTIC, MATMUL_TIME_LARGE, MATMUL_TIME_ALL };

/* --- plans ---------------------------------------------------------------- */

enum key_epilogue { /* numbers are in files */
                    KEY_PLAIN,
                    KEY_BIAS,
                    KEY_GELU_AUX,      /* aux = the result, D = gelu of it */
                    KEY_GELU_AUX_BIAS, /* the same of result + bias */
                    KEY_DGELU,         /* D = result * gelu'(aux) */
                    KEY_BGRADA,        /* bias[m] = sums of A's rows */
                    KEY_BGRADB,        /* bias[n] = sums of B's columns */
                    KEY_EPILOGUES,
                    /* no matmuls: see two_ways */
                    KEY_ATTENTION_FORWARD = 16,
                    KEY_ATTENTION_BACKWARD
};

/* What a plan is made for, in the library's terms. Compared as bytes, and
 * written to files in this order. */
struct matmul_key {
    int32_t m, n, k;
    int32_t sm_target;
    int32_t lda, ldb, ldd;   /* elements between columns; 0: no gaps */
    int32_t dtype, out_type; /* enum dtype: of A, of C and D */
    int32_t trans_a, trans_b;
    int32_t epilogue;
    int32_t alignment; /* bytes that every pointer is a multiple of: 1-16 */
    int32_t tf32;
    int32_t b_type;             /* enum dtype; A's, but for E4M3 and E5M2 */
    int32_t a_scales, b_scales; /* enum scale_layout */
    int32_t fast; /* FP8 products are summed in the tensor core's 14 bits */
};

enum matmul_outcome {
    MATMUL_REFUSED, /* nothing was queued: the library has no algorithm for it
                       on this GPU, or its parts are faster */
    MATMUL_QUEUED,
    MATMUL_UNDECIDED /* queued, and whether it is faster than its parts is to
                        be measured: matmul_decide */
};
/* By the library, epilogue included; a bias has out's type. The first matmul of
 * a key makes its plan, and may wait for the GPU to time it. */
enum zd_status matmul_run(
        struct stream *stream, const struct matmul *matmul,
        enum matmul_outcome *outcome_out);

/* Measures a matmul with an epilogue against its parts, and remembers which is
 * the faster. Both run several times: what they write they must overwrite. */
enum zd_status matmul_decide(
        struct stream *stream, const struct matmul *matmul,
        const struct matmul_parts *parts);

/* Two ways to compute what is no matmul, of which the faster is timed once and
 * kept with the algorithms of matmuls, in the file and for a run that resumes.
 * `run` queues way 0 or 1, which write the same over what is there; key: its
 * epilogue is a KEY that is none of a matmul, what else it has is its owner's.
 */
struct two_ways {
    struct matmul_key key;
    enum zd_status (*run)(const void *work, int way, bool *refused_out);
    const void *work;
};
/* Way 0 where nothing is timed, or one is refused. At a key's first use it may
 * wait for the GPU. */
enum zd_status matmul_choose_way(
        struct stream *stream, const struct two_ways *ways, int *way_out);

/* Opens the library for the thread's GPU, once. *name_out: "cuBLASLt 13.1.0";
 * static. ZD_ERR_UNFIT: it is not there. */
enum zd_status matmul_cuda_open(const char **name_out);
/* Forgets what is kept for the thread's GPU: plans and the library's handle. */
void matmul_cuda_close(void);

/* What an epilogue's own arrays may take of the workspace's beginning. The 32
 * MiB after it are what NVIDIA recommends on sm_90; less loses the fastest
 * algorithms. */
enum {
    MATMUL_BORROW_BYTES = 256 * 1024,
    LIBRARY_WORKSPACE_BYTES = 32 * 1024 * 1024,
    MATMUL_WORKSPACE_BYTES = MATMUL_BORROW_BYTES + LIBRARY_WORKSPACE_BYTES,
};

/* The algorithms of this run's matmuls on the thread's GPU, for a run that
 * resumes it: a text, the caller's to free; NULL: there are none. Matmuls that
 * are not timed have the library's first, and are not listed. */
char *matmul_algorithms(void);
/* Those of such a text override timing and the file from now on. NULL, or why
 * they are not taken: static. */
const char *matmul_take_algorithms(const char *text);

/* How algorithms were found since the start, for bench and tests. */
struct matmul_counters {
    uint64_t plans;   /* made */
    uint64_t timed;   /* of them by timing */
    uint64_t read;    /* of them from the file */
    uint64_t refused; /* of them without an algorithm */
};
struct matmul_counters matmul_counters(void);

/* --- our own, in matmul_own_cuda.cu --------------------------------------- */

/* Any shape; no epilogue. */
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
