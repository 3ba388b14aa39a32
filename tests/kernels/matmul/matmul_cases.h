/* matmul_cases.h - matmuls on a GPU against the plain definition: the test's
 * GPU, pairs on it and on the host, one matmul of each kind; and the interface
 * of the stand-in for cuBLASLt. */
#pragma once

#include "base/device/device.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/kernels/pair.h"
#include "tests/support/must.h"

/* Opens a GPU, a workspace, and a private cache folder; skips the test without
 * a GPU. */
void gpu_begin(void);
void gpu_end(void);
const char *gpu_cache(void); /* folder of tuning files */

/* --- the stand-in's doors ------------------------------------------------ */

bool is_standin(void);
struct cublaslt_standin_counters asked(void);
void let_fail(const char *failures);

/* --- one matmul on both ------------------------------------------------- */

/* Sets the type of new pairs: of[0] on the GPU, of[1] for the plain definition,
 * `shift` elements from an aligned address. */
void pairs_on_gpu(enum dtype dtype, int shift);

/* Checks that the GPU's result equals the plain one and gaps do not change.
 * `matmul` has no addresses (bias: not NULL if it has one). FP8 operands have
 * types and layouts, and are stored along K. */
void check_matmul(struct matmul matmul, int shift);

/* NARROW: out has the compute type; without an epilogue also scaled. */
enum { TRANS_A = 1, TRANS_B = 2, ADDS = 4, NARROW = 8, BIAS = 16 };
void check_shape(
        enum dtype dtype, int M, int N, int K, int flags,
        enum matmul_epilogue epilogue);
/* Rows of out and a have gaps of `gap` elements, as in the head. */
void check_gaps(enum dtype dtype, int M, int N, int K, int flags, int gap);
