/* matmul_cases.h - matmuls on a GPU against the plain definition: the GPU of
 * a test, pairs on it and on the host, one matmul of each kind; and the doors
 * of the stand-in for cuBLASLt. */
#pragma once

#include "base/device/device.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/kernels/pair.h"
#include "tests/support/must.h"

/* A GPU, a workspace, and a cache of no one else's; skips where there is no
 * GPU. */
void gpu_begin(void);
void gpu_end(void);
const char *gpu_cache(void); /* where tuning files are */

/* --- the stand-in's doors ------------------------------------------------ */

bool is_standin(void);
struct cublaslt_standin_counters asked(void);
void let_fail(const char *failures);

/* --- one matmul on both ------------------------------------------------- */

/* Pairs of this type from now on: of[0] on the GPU, of[1] for the plain
 * definition, `shift` elements from an aligned place. */
void pairs_on_gpu(enum dtype dtype, int shift);

/* Of a matmul without addresses (bias: not NULL if it has one) the GPU's result
 * is the plain one, and gaps stay as they were. Of FP8 operands have types and
 * layouts, and are rows of what is summed. */
void check_matmul(struct matmul matmul, int shift);

/* NARROW: to the compute type; a plain one is scaled. */
enum { TRANS_A = 1, TRANS_B = 2, ADDS = 4, NARROW = 8, BIAS = 16 };
void check_shape(
        enum dtype dtype, int M, int N, int K, int flags,
        enum matmul_epilogue epilogue);
/* Rows of out and of a lie `gap` elements apart, as the head's do. */
void check_gaps(enum dtype dtype, int M, int N, int K, int flags, int gap);
