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
 * widened in panels and multiplied in fp32.
 * Memory:  may use bounded panel scratch kept per process (stated by
 *          matmul_scratch_bytes, taken at the first kernels_cpu call). */
#ifndef ZD_KERNELS_MATMUL_H
#define ZD_KERNELS_MATMUL_H

#include "base/device.h"
#include "base/dtype.h"

typedef enum zd_status matmul_fn(
        struct stream *stream, void *out,   /* (M, N) of out_type */
        enum dtype out_type, const void *a, /* (M, K) or (K, M) */
        const void *b,                      /* (K, N) or (N, K) */
        const void *bias,                   /* (N) or NULL */
        int M, int N, int K, bool trans_a, bool trans_b, bool accumulate);

/* Bytes of panel scratch a process holds for this compute type. */
size_t matmul_scratch_bytes(enum dtype dtype);

#endif
