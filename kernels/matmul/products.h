/* products.h - matrix products of libraries, behind one door.
 *
 * Which product a machine uses is decided by its instruction set alone (see
 * kernels.c), never by a race: the bits then do not change from run to run. */
#ifndef ZD_KERNELS_MATMUL_PRODUCTS_H
#define ZD_KERNELS_MATMUL_PRODUCTS_H

#include "base/number/dtype.h"
#include "base/status.h"

/* "oneDNN 2.6", "OpenBLAS 0.3.21". */
const char *products_library(void);

/* out [+]= op(a) op(b) [+ bias] in fp32; arguments as in matmul.h. On
 * `threads`. ZD_ERR_DEVICE if the library refuses. */
enum zd_status products_sgemm(
        float *out, const float *a, const float *b, const float *bias, int M,
        int N, int K, bool trans_a, bool trans_b, bool accumulate, int threads);

/* The same by a oneDNN matmul primitive for operands of `dtype`. ZD_ERR_UNFIT,
 * without a record, where oneDNN has none for this CPU and type, or where there
 * is no oneDNN. Primitives are made at their first use and kept. */
enum zd_status products_primitive(
        void *out, enum dtype out_type, const void *a, const void *b,
        const void *bias, enum dtype dtype, int M, int N, int K, bool trans_a,
        bool trans_b, bool accumulate, int threads);

#endif
