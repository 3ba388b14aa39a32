/* cublaslt_standin.h - doors of the stand-in for cuBLASLt, for tests: found by
 * dlsym in the library that the program has opened.
 *
 * The library computes a product from its descriptors alone, in the stream's
 * order, and refuses what NVIDIA documents as unsupported. Its algorithms:
 *
 *     1  anything
 *     2  operands and leading dimensions of 16 bytes
 *     3  K in two halves, added by way of the workspace
 *     4  K in two halves, added in place (the reduction scheme that the program
 *        must not take): its results are wrong on purpose
 *     5  fp32 rounded to TF32: likewise
 *
 * Failures, a list with commas, by the function below or ZD_STANDIN_CUBLASLT:
 *     empty       the heuristic knows no algorithm
 *     refuse      a product is refused that the heuristic had offered
 *     fail:N      the N-th product from here fails to execute
 *     no_bgrad    there are no sums of columns with products
 *     no_gelu     there is no GELU with products
 *     no_fp8_bias products of FP8 take no bias
 *     create      no handle
 *     slow_epilogue, slow_plain
 *                 products with an epilogue other than a bias's, or the
 *                 others, take 100 s longer by the GPU's clock */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cublaslt_standin_counters {
    uint64_t heuristics, products;
    uint64_t of_algorithm[8]; /* products by each */
    uint64_t with_epilogue;   /* products with another than the default */
    uint64_t in_tf32;         /* products that may round fp32 to TF32 */
    uint64_t summed_fast;     /* products of FP8 that need not be exact */
    int32_t sm_target;        /* of the last product */
};

typedef struct cublaslt_standin_counters cublaslt_standin_counters_fn(void);
typedef void cublaslt_standin_fail_fn(const char *failures);

cublaslt_standin_counters_fn cublaslt_standin_counters;
cublaslt_standin_fail_fn cublaslt_standin_fail; /* NULL: none; counts restart */

#ifdef __cplusplus
}
#endif
