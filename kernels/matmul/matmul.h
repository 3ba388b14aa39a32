/* matmul.h - matrix multiplication, summed in fp32.
 *
 *   out(M,N) = [accumulate: out +] scale a(M,K) b(K,N) [+ bias(N) per row]
 *
 * Operands: a is stored as (M,K), or transposed as (K,M); b as (K,N), or
 *           transposed as (N,K). A Linear weight [out,in] is a transposed b;
 *           GPT-2's Conv1D weight [in,out] is not transposed.
 * Types:    a, b and bias have the table's type; out has that type or fp32.
 *           Only a GPU and the plain definition accumulate to a narrow type
 *           (rounding the sum once) or support a scale other than 1.
 * Codes:    in a bf16 table a and b may be FP8, each with its scales
 *           (kernels/fp8/fp8.h): an element is its code times its scale. Then a
 *           is stored as (M,K), b transposed as (N,K), without gaps, K a
 *           multiple of 16, and there is no epilogue. Not both may be E5M2, nor
 *           both have scales of tiles.
 * Strides:  the GPU's and the plain tables support rows with gaps, which are
 *           neither read nor written; the other CPU tables do not. No bias and
 *           no epilogue if out has gaps.
 * Backends: on a CPU oneDNN (fp32 except on AVX2, bf16 with AMX) or OpenBLAS
 *           (fp32 except on AVX2); else our own code, which also computes few
 *           rows and, with AVX2 or later, a short side (matmul_shape.h).
 *           Without bf16 instructions, operands are widened in panels and
 *           multiplied in fp32. On a GPU cuBLASLt, and our own kernel for what
 *           it refuses.
 * Memory:   may use bounded panel scratch kept per process (size:
 *           matmul_scratch_bytes; allocated by the first kernels_cpu call). */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/fp8/fp8.h"

struct matmul_operand {
    const void *data;
    enum dtype type;
    bool transposed;     /* as it is stored */
    int stride;          /* elements between stored rows; 0: no gaps */
    const float *scales; /* of E4M3 and E5M2 */
    enum scale_layout layout;
};

struct matmul_result {
    void *data; /* (M, N) */
    enum dtype type;
    int stride;
};

/* An operation on the result, in the same pass if the backend can. Backends
 * agree within a tolerance, not to the bit: an epilogue may use the result
 * before or after it is rounded. */
enum matmul_epilogue {
    MATMUL_PLAIN,
    MATMUL_GELU, /* aux(M,N) = the result, kept for backward; out = gelu(aux) */
    MATMUL_DGELU, /* out = the result * gelu'(aux) */
    MATMUL_SUM_A, /* aux(M) [+]= sums over K of a, which is transposed: the
                     gradient of a bias; fp32 */
    MATMUL_SUM_B, /* aux(N) [+]= sums over K of b, which is not transposed */
};

struct matmul {
    int M, N, K;
    struct matmul_operand a, b;
    struct matmul_result out;
    float scale;      /* 0: 1 */
    const void *bias; /* (N) or NULL */
    enum matmul_epilogue epilogue;
    void *aux;
    bool accumulate;
};

typedef enum zd_status matmul_fn(
        struct stream *stream, const struct matmul *matmul);

static inline float matmul_scale(const struct matmul *m)
{
    return m->scale != 0.0f ? m->scale : 1.0f;
}

/* Elements between stored rows, gaps or not. */
static inline int matmul_stride_a(const struct matmul *m)
{
    return m->a.stride ? m->a.stride : m->a.transposed ? m->M : m->K;
}

static inline int matmul_stride_b(const struct matmul *m)
{
    return m->b.stride ? m->b.stride : m->b.transposed ? m->K : m->N;
}

static inline int matmul_stride_out(const struct matmul *m)
{
    return m->out.stride ? m->out.stride : m->N;
}

static inline bool matmul_has_gaps(const struct matmul *m)
{
    return matmul_stride_a(m) != (m->a.transposed ? m->M : m->K) ||
           matmul_stride_b(m) != (m->b.transposed ? m->K : m->N) ||
           matmul_stride_out(m) != m->N;
}

static inline bool matmul_is_fp8(const struct matmul *m)
{
    return dtype_is_fp8(m->a.type);
}

/* The requirements of every table for an FP8 matmul. */
static inline bool matmul_fp8_is_legal(const struct matmul *m)
{
    return dtype_is_fp8(m->a.type) && dtype_is_fp8(m->b.type) &&
           !(m->a.type == DTYPE_E5M2 && m->b.type == DTYPE_E5M2) &&
           m->a.layout != SCALES_NONE && m->b.layout != SCALES_NONE &&
           !(m->a.layout == SCALES_128X128 && m->b.layout == SCALES_128X128) &&
           (m->a.layout == SCALES_TENSOR) == (m->b.layout == SCALES_TENSOR) &&
           !m->a.transposed && m->b.transposed && m->K % FP8_ALIGN == 0 &&
           matmul_stride_a(m) == m->K && matmul_stride_b(m) == m->K &&
           m->epilogue == MATMUL_PLAIN;
}

/* The operations of a matmul whose epilogue runs separately. */
struct matmul_parts {
    matmul_fn *matmul; /* for MATMUL_PLAIN */
    gelu_forward_fn *gelu_forward;
    gelu_backward_fn *gelu_backward;
    reduce_rows_fn *reduce_rows;
};
enum zd_status matmul_by_parts(
        const struct matmul_parts *parts, struct stream *stream,
        const struct matmul *matmul);

/* Bytes of panel scratch that a process keeps for this compute type. */
size_t matmul_scratch_bytes(enum dtype dtype);

/* For every type: the operands determine it. */
matmul_fn matmul_cuda;
