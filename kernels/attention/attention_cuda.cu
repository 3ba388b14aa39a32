/* attention_cuda.cu - the CUDA twins of attention.h: chooses the family of
 * kernels for a shape (attention_cuda.cuh). */
#include "kernels/attention/attention_cuda.cuh"

enum zd_status attention_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes <= 48 * 1024)
        return ZD_OK;
    ZD_CUDA(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return ZD_OK;
}

size_t attention_shared_bytes(void)
{
    int device = 0, bytes = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(
                &bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) !=
                cudaSuccess)
        cudaGetLastError();
    return (size_t)bytes;
}

extern "C" bool attention_takes_eight_warps(
        size_t block_bytes, size_t shared_bytes)
{
    const size_t small = 100 * 1024, system = 1024; /* in every block */
    return shared_bytes <= small && 2 * (block_bytes + system) > shared_bytes;
}

template <typename E>
static attention_pass<E> pass_of(
        const struct attention &a, const struct attention_shape *s)
{
    attention_pass<E> p = {};
    p.q = (const E *)a.q, p.k = (const E *)a.k, p.v = (const E *)a.v;
    p.out = (E *)a.out, p.lse = a.lse;
    p.dq = (E *)a.dq, p.dk = (E *)a.dk, p.dv = (E *)a.dv;
    p.dout = (const E *)a.dout;
    p.delta = (float *)a.scratch;
    p.doc_start = a.doc_start;
    p.q_stride = s->q_stride;
    p.k_stride = s->k_stride;
    p.v_stride = s->v_stride;
    p.B = s->B, p.T = s->T, p.H = s->H, p.KV = s->KV, p.D = s->D;
    p.queries = attention_queries(s), p.Q = p.queries.rows;
    p.window = s->window;
    p.scale = s->scale;
    if (s->softcap > 0.0f)
        p.cap_in = s->scale / s->softcap, p.cap_out = s->softcap / s->scale;
    assert(s->H % s->KV == 0 && s->D <= 512);
    return p;
}

/* No tensor-core type keeps the precision of fp32. */
static bool tiles_can(const attention_pass<float> &p)
{
    return p.D <= 128 && rows_are_packs(p, 4);
}

template <typename E> static bool mma_can(const attention_pass<E> &p)
{
    return p.D <= 256 && rows_are_packs(p, 8) && p.scale > 0.0f &&
           device_facts().major >= 8;
}

static enum zd_status forward_by(
        cudaStream_t on, const attention_pass<float> &p)
{
    return tiles_can(p) ? tiles_forward(on, p) : rows_forward(on, p);
}

template <typename E>
static enum zd_status forward_by(cudaStream_t on, const attention_pass<E> &p)
{
    return mma_can(p) ? mma_forward(on, p) : rows_forward(on, p);
}

static enum zd_status backward_by(
        cudaStream_t on, const attention_pass<float> &p)
{
    return tiles_can(p) ? tiles_backward(on, p) : rows_backward(on, p);
}

template <typename E>
static enum zd_status backward_by(cudaStream_t on, const attention_pass<E> &p)
{
    return mma_can(p) ? mma_backward(on, p) : rows_backward(on, p);
}

template <typename E>
static enum zd_status attention_forward_any(
        struct stream *stream, const struct attention *a)
{
    return forward_by(device_cuda_stream(stream), pass_of<E>(*a, a->shape));
}

template <typename E>
static enum zd_status attention_backward_any(
        struct stream *stream, const struct attention *a)
{
    return backward_by(device_cuda_stream(stream), pass_of<E>(*a, a->shape));
}

/* The new tokens are the rows of one sample, the cache its keys. */
template <typename E>
static enum zd_status attention_decode_any(
        struct stream *stream, const struct attention *a, int n, int past)
{
    struct attention_shape shape = *a->shape;
    shape.B = 1, shape.T = n;
    shape.k_stride = shape.v_stride = (int64_t)shape.KV * shape.D;
    attention_pass<E> p = pass_of<E>(*a, &shape);
    p.lse = NULL, p.doc_start = NULL, p.past = past;
    return rows_forward(device_cuda_stream(stream), p);
}

CUDA_DEFINE(attention_forward);
CUDA_DEFINE(attention_backward);
CUDA_DEFINE(attention_decode);
