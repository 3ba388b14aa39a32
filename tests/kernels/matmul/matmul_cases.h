/* matmul_cases.h - matmuls on a GPU against the plain definition: the GPU of
 * a test, arrays on both sides, one matmul of each kind; and the doors of the
 * stand-in for cuBLASLt. */
#pragma once

#include "base/device/device.h"
#include "kernels/kernels.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"

#include <criterion/criterion.h>
#include <stdbool.h>

#define MUST(call) cr_assert_eq((call), ZD_OK, "%s", zd_error_get()->what)

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

/* The same array on the host and on the GPU. */
struct twin {
    void *host, *device;
    enum dtype dtype;
    size_t count;
};

struct twin twin(enum dtype dtype, size_t count, float scale, uint64_t seed);
void twin_free(struct twin *t);
/* How far the GPU's values are from the host's. */
double twin_error(const struct twin *t);
/* Expects that error, and frees the twin. */
void compare(struct twin *t, double tolerance, const char *what);

struct tables {
    const struct kernels *gpu, *plain;
};

struct tables tables_of(enum dtype dtype);

/* Of a matmul without addresses (bias: not NULL if it has one) the GPU's result
 * is the plain one, and gaps stay as they were. */
void check_matmul(struct matmul matmul);
/* narrow: to the compute type, and scaled. */
void check_plain(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, bool narrow, bool with_bias);
/* The same where rows of out and of a lie `gap` elements apart, as the head's
 * do. */
void check_strided(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, int gap);
void check_gelu(
        enum dtype dtype, int M, int N, int K, bool trans_b, bool with_bias);
void check_dgelu(enum dtype dtype, int M, int N, int K, bool trans_b);
/* a^T b over tokens, and the sums of dy, which is a or b. */
void check_weight_grads(
        enum dtype dtype, int rows, int columns, int tokens, bool dy_first,
        bool accumulate);

/* FP8: a matmul without addresses but with types and layouts. */
void check_codes(struct matmul matmul);
