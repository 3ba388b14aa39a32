/* attention_cuda.cu - the CUDA twins of attention.h: which family of kernels
 * does a shape (attention_cuda.cuh). */
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
        const void *q, const void *k, const void *v, const int32_t *doc_start,
        const struct attention_shape *s)
{
    attention_pass<E> p = {};
    p.q = (const E *)q, p.k = (const E *)k, p.v = (const E *)v;
    p.doc_start = doc_start;
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

/* fp32 has no tensor cores that keep its bits. */
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
        struct stream *stream, void *out, float *lse, const void *q,
        const void *k, const void *v, const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    attention_pass<E> p = pass_of<E>(q, k, v, doc_start, shape);
    p.out = (E *)out, p.lse = lse;
    return forward_by(device_cuda_stream(stream), p);
}

template <typename E>
static enum zd_status attention_backward_any(
        struct stream *stream, void *dq, void *dk, void *dv, const void *dout,
        const void *out, const float *lse, const void *q, const void *k,
        const void *v, const int32_t *doc_start, void *scratch,
        const struct attention_shape *shape)
{
    attention_pass<E> p = pass_of<E>(q, k, v, doc_start, shape);
    p.dq = (E *)dq, p.dk = (E *)dk, p.dv = (E *)dv;
    p.dout = (const E *)dout;
    p.out = (E *)out, p.lse = (float *)lse; /* read only, here */
    p.delta = (float *)scratch;
    return backward_by(device_cuda_stream(stream), p);
}

/* The new tokens are the rows of one sample, the cache its keys. */
template <typename E>
static enum zd_status attention_decode_any(
        struct stream *stream, void *out, const void *q, const void *k_cache,
        const void *v_cache, int n, int past, const struct attention_shape *s)
{
    struct attention_shape shape = *s;
    shape.B = 1, shape.T = n;
    shape.k_stride = shape.v_stride = (int64_t)s->KV * s->D;
    attention_pass<E> p = pass_of<E>(q, k_cache, v_cache, NULL, &shape);
    p.out = (E *)out, p.past = past;
    return rows_forward(device_cuda_stream(stream), p);
}

CUDA_DEFINE(attention_forward);
CUDA_DEFINE(attention_backward);
CUDA_DEFINE(attention_decode);
