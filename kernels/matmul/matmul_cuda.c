/* matmul_cuda.c - matmul on a GPU: by cuBLASLt, in one pass if it has the
 * epilogue, else by parts; by our own kernel if the library refuses.
 *
 * Limits of epilogues (NVIDIA's documentation of cublasLtMatmul, 13.1):
 *   - a bias has D's type, so we add a bf16 bias of an fp32 result;
 *   - GELU is the tanh form, as ours; rows of its aux matrix must be a multiple
 *     of 8 elements. In fp32 it is less accurate than our own, so it is not
 *     used;
 *   - sums of columns overwrite: to accumulate a gradient they go to the
 *     workspace first. */
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/cuda/cuda_workspace.h"

#include <assert.h>

static struct matmul_parts parts_of(const struct matmul *m)
{
    enum dtype type = m->a.type;
    return (struct matmul_parts){
            matmul_cuda, gelu_forward_cuda[type], gelu_backward_cuda[type],
            reduce_rows_cuda[type]};
}

static enum zd_status by_parts(struct stream *stream, const struct matmul *m)
{
    struct matmul_parts parts = parts_of(m);
    return matmul_by_parts(&parts, stream, m);
}

/* --- without an epilogue -------------------------------------------------- */

/* If the library does not support the bias (of another type, or refused with
 * FP8), we add it separately, because our own matmul is far slower. */
static enum zd_status by_library(struct stream *stream, const struct matmul *m)
{
    bool is_fp8 = matmul_is_fp8(m);
    struct matmul queued = *m;
    enum matmul_outcome outcome;
    assert(!m->bias || matmul_stride_out(m) == m->N);
    assert(!is_fp8 ||
           (matmul_fp8_is_legal(m) && (!m->bias || m->out.type == DTYPE_BF16)));
    if (!is_fp8 && m->out.type != m->a.type)
        queued.bias = NULL;
    ZD_TRY(matmul_run(stream, &queued, &outcome));
    if (outcome == MATMUL_REFUSED && is_fp8 && m->bias) {
        queued.bias = NULL;
        ZD_TRY(matmul_run(stream, &queued, &outcome));
    }
    if (outcome == MATMUL_REFUSED)
        return matmul_own_cuda(stream, m);
    return queued.bias == m->bias ? ZD_OK : matmul_add_bias_cuda(stream, m);
}

static void *elements_on(const void *x, enum dtype dtype, size_t count)
{
    return (char *)(uintptr_t)x + count * dtype_bytes(dtype);
}

/* With 1X128 scales cuBLASLt needs a multiple of 4 rows (seen on an H200,
 * cuBLASLt 13.1), so our own kernel computes the last rows; their scales are
 * stored separately. */
static enum zd_status codes(struct stream *stream, const struct matmul *m)
{
    struct matmul most = *m, last = *m;
    size_t rows = fp8_whole_rows((size_t)m->M);
    if (m->a.layout != SCALES_1X128 || rows == (size_t)m->M)
        return by_library(stream, m);
    most.M = (int)rows;
    if (rows > 0)
        ZD_TRY(by_library(stream, &most));
    last.M = m->M - most.M;
    last.a.data = elements_on(
            m->a.data, m->a.type, rows * (size_t)matmul_stride_a(m));
    last.a.scales += rows * fp8_blocks((size_t)m->K);
    last.out.data = elements_on(
            m->out.data, m->out.type, rows * (size_t)matmul_stride_out(m));
    return matmul_own_cuda(stream, &last);
}

/* The library's fast kernels move 16 bytes at a time, so they need multiples of
 * eight in a contiguous dimension: a vocabulary of 50257 takes five times as
 * long as 50256 (head of GPT-2 124M on an H100, cuBLASLt 13.1, 5042 tokens: 3.8
 * and 3.2 ms instead of 0.65 ms). So the remainder of a large dimension becomes
 * a second matmul. */
enum { EIGHTS_MIN = 4096 };

static int over_eights(const struct matmul *m, int count)
{
    return m->a.type != DTYPE_FP32 && count >= EIGHTS_MIN ? count % 8 : 0;
}

/* out(M,N) = a(M,K) b(N,K)^T: the last columns of out separately. */
static enum zd_status columns_apart(struct stream *stream, struct matmul m)
{
    int rest = over_eights(&m, m.N);
    size_t most = (size_t)(m.N - rest);
    m.N = (int)most;
    ZD_TRY(by_library(stream, &m));
    m.N = rest;
    m.out.data = elements_on(m.out.data, m.out.type, most);
    m.b.data = elements_on(m.b.data, m.b.type, most * (size_t)m.b.stride);
    return by_library(stream, &m);
}

/* out(M,N) = a(M,K) b(K,N): the last terms of the sum first, so that the rest
 * is added to them in fp32 and rounded together. Rounding these few terms to
 * out's type adds an error of a few thousandths of the final rounding. */
static enum zd_status depth_apart(struct stream *stream, struct matmul m)
{
    int rest = over_eights(&m, m.K);
    size_t most = (size_t)(m.K - rest);
    struct matmul last = m;
    last.K = rest;
    last.a.data = elements_on(m.a.data, m.a.type, most);
    last.b.data = elements_on(m.b.data, m.b.type, most * (size_t)m.b.stride);
    ZD_TRY(by_library(stream, &last));
    m.K = (int)most;
    m.accumulate = true;
    return by_library(stream, &m);
}

static enum zd_status plain(struct stream *stream, struct matmul m)
{
    m.a.stride = matmul_stride_a(&m);
    m.b.stride = matmul_stride_b(&m);
    m.out.stride = matmul_stride_out(&m);
    if (!m.bias && !m.a.transposed && m.b.transposed && over_eights(&m, m.N) &&
        m.out.stride % 8 == 0)
        return columns_apart(stream, m);
    if (!m.bias && !m.a.transposed && !m.b.transposed && over_eights(&m, m.K) &&
        m.a.stride % 8 == 0)
        return depth_apart(stream, m);
    return by_library(stream, &m);
}

/* --- with an epilogue ----------------------------------------------------- */

static bool is_gelu(const struct matmul *m)
{
    return m->epilogue == MATMUL_GELU || m->epilogue == MATMUL_DGELU;
}

/* Only bf16 and fp16, with an aux matrix that the library supports. */
static bool can_fuse_gelu(const struct matmul *m)
{
    return m->a.type != DTYPE_FP32 && m->N % 8 == 0 &&
           (uintptr_t)m->aux % 16 == 0;
}

/* Accumulates through the workspace. Such a call cannot be timed against its
 * parts, because trials overwrite: a call without accumulation decides. */
static enum zd_status sums_added(struct stream *stream, const struct matmul *m)
{
    int count = m->epilogue == MATMUL_SUM_A ? m->M : m->N;
    size_t bytes = (size_t)count * sizeof(float);
    struct matmul queued = *m;
    enum matmul_outcome outcome;
    if (bytes > MATMUL_BORROW_BYTES || cuda_workspace_size() < bytes)
        return by_parts(stream, m);
    queued.aux = cuda_workspace(bytes);
    ZD_TRY(matmul_run(stream, &queued, &outcome));
    if (outcome == MATMUL_REFUSED)
        return by_parts(stream, m);
    return matmul_add_sums_cuda(stream, m->aux, queued.aux, count);
}

/* Fused or by parts: the first call measures which is faster. */
enum zd_status matmul_cuda(struct stream *stream, const struct matmul *m)
{
    enum matmul_outcome outcome;
    assert(m->M > 0 && m->N > 0 && m->K > 0);
    if (matmul_is_fp8(m))
        return codes(stream, m);
    assert(m->a.type == m->b.type);
    if (m->epilogue == MATMUL_PLAIN)
        return plain(stream, *m);
    assert(!m->scale);
    if (is_gelu(m) && !can_fuse_gelu(m))
        return by_parts(stream, m);
    if (!is_gelu(m) && m->accumulate)
        return sums_added(stream, m);
    ZD_TRY(matmul_run(stream, m, &outcome));
    if (outcome == MATMUL_REFUSED)
        return by_parts(stream, m);
    struct matmul_parts parts = parts_of(m);
    return outcome == MATMUL_UNDECIDED ? matmul_decide(stream, m, &parts)
                                       : ZD_OK;
}
