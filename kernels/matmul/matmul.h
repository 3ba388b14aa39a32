/* matmul.h - matrix products of the compute type, summed in fp32.
 *
 *   out(M,N) = [accumulate: out +] op(a)(M,K) * op(b)(K,N) [+ bias(N) per row]
 *
 *   op(a) is a stored as (M,K), or with trans_a as (K,M); op(b) is b stored as
 *   (K,N), or with trans_b as (N,K). A Linear weight [out,in] is trans_b =
 * true; GPT-2's Conv1D weight [in,out] is trans_b = false.
 *
 * Types:   a, b, bias: compute type; out: out_type (compute type, or fp32).
 *          accumulate asks for out_type = fp32. bias may be NULL.
 * Back ends: oneDNN (bf16 with AMX/AVX-512 where the CPU has it), OpenBLAS; on
 * a CPU without bf16 instructions, and for fp16 on every CPU, operands are
 * widened in panels and multiplied in fp32. Products of at most 2 rows are our
 * own on every CPU, those with a side of at most 32 where it has AVX2
 * (product.h).
 * Memory:  may use bounded panel scratch kept per process (stated by
 *          matmul_scratch_bytes, taken at the first kernels_cpu call). */
#ifndef ZD_KERNELS_MATMUL_MATMUL_H
#define ZD_KERNELS_MATMUL_MATMUL_H

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "kernels/cuda/cuda_names.h"

typedef enum zd_status matmul_fn(
        struct stream *stream, void *out,   /* (M, N) of out_type */
        enum dtype out_type, const void *a, /* (M, K) or (K, M) */
        const void *b,                      /* (K, N) or (N, K) */
        const void *bias,                   /* (N) or NULL */
        int M, int N, int K, bool trans_a, bool trans_b, bool accumulate);

/* Elements from one row to the next, as the matrix is stored. */
struct matmul_strides {
    int out, a, b;
};

/* matmul of matrices whose rows lie apart: what is between them is neither read
 * nor written. No bias. */
typedef enum zd_status matmul_strided_fn(
        struct stream *stream, void *out,   /* (M, N) of out_type */
        enum dtype out_type, const void *a, /* (M, K) or (K, M) */
        const void *b,                      /* (K, N) or (N, K) */
        const struct matmul_strides *strides, int M, int N, int K, bool trans_a,
        bool trans_b, bool accumulate);

/* --- with what comes before or after it ------------------------------------
 * Sums of a column (dbias) are taken in fp32 over what is stored, rounded or
 * not: a tolerance, not bits, holds between fused and composed. */

/* pre = a op(b) + bias, out = gelu(pre): the first product of an MLP. */
typedef enum zd_status matmul_gelu_fn(
        struct stream *stream, void *out, /* (M, N) */
        void *pre,                        /* (M, N) kept for backward */
        const void *a,                    /* (M, K) */
        const void *b,                    /* (K, N), or (N, K) with trans_b */
        const void *bias,                 /* (N) or NULL */
        int M, int N, int K, bool trans_b);

/* dpre = (dout op(b)) * gelu'(pre). */
typedef enum zd_status matmul_dgelu_fn(
        struct stream *stream, void *dpre, /* (M, N) */
        const void *dout,                  /* (M, K) */
        const void *b,                     /* (K, N), or (N, K) with trans_b */
        const void *pre,                   /* (M, N) */
        int M, int N, int K, bool trans_b);

/* dweight(rows, columns) [+]= a^T b and dbias(out) [+]= the sums of dy's
 * columns, where dy (tokens, out) is b, or with dy_first a. */
typedef enum zd_status matmul_weight_grads_fn(
        struct stream *stream, float *dweight, /* (rows, columns) */
        float *dbias,                          /* (out) or NULL */
        const void *a,                         /* (tokens, rows) */
        const void *b,                         /* (tokens, columns) */
        int rows, int columns, int tokens, bool dy_first, bool accumulate);

/* Bytes of panel scratch a process holds for this compute type. */
size_t matmul_scratch_bytes(enum dtype dtype);

CUDA_DECLARE(matmul);
CUDA_DECLARE(matmul_strided);
CUDA_DECLARE(matmul_gelu);
CUDA_DECLARE(matmul_dgelu);
CUDA_DECLARE(matmul_weight_grads);

#endif
