/* attention_cuda.cuh - shared by the CUDA attention kernels.
 *
 * Three families; attention_cuda.cu chooses by shape:
 *   rows   any shape: a block per row, whose warps divide the other side
 *   tiles  fp32: multiply-adds on tiles in shared memory (D <= 128, D % 4 == 0)
 *   mma    bf16 and fp16: tensor cores (sm_80 and later; D <= 256, D % 8 == 0)
 *
 * All skip keys that none of their rows sees (outside the window, too). The
 * order of sums depends only on shapes and documents: dq has its own pass, and
 * no sum uses atomics. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
}

/* Softmax is computed in powers of two: exp(x) = 2^(x LOG2E). */
static constexpr float LOG2E = 1.4426950408889634f;
static constexpr float LN2 = 0.6931471805599453f;

/* One pass over the heads of a batch, passed by value to every kernel. E:
 * element type. */
template <typename E> struct attention_pass {
    E *out;          /* forward */
    float *lse;      /* (B, H, Q); written by forward */
    float *delta;    /* (B, H, Q) sums of dout * out: backward */
    E *dq, *dk, *dv; /* backward */
    const E *dout;   /* backward */
    const E *q, *k, *v;
    const int32_t *doc_start; /* (B, Q); NULL: decode */
    int64_t q_stride, k_stride, v_stride;
    int B, T, H, KV, D, Q; /* Q: rows of `queries` */
    struct attention_queries queries;
    int past; /* decode: tokens before the first row */
    int window;
    float scale, cap_in, cap_out; /* scale / softcap and back; 0: no cap */
};

/* The first row of sample b and head h (or key/value head kv). */
template <typename E>
__device__ __forceinline__ const E *q_rows(
        const attention_pass<E> &p, int b, int h)
{
    return p.q + (int64_t)b * p.Q * p.q_stride + h * p.D;
}

template <typename E>
__device__ __forceinline__ const E *k_rows(
        const attention_pass<E> &p, int b, int kv)
{
    return p.k + (int64_t)b * p.T * p.k_stride + kv * p.D;
}

template <typename E>
__device__ __forceinline__ const E *v_rows(
        const attention_pass<E> &p, int b, int kv)
{
    return p.v + (int64_t)b * p.T * p.v_stride + kv * p.D;
}

/* capped: q k such that `scale` times it has the cap applied; cap_slope: the
 * factor of its gradient. Without a cap: q k itself, and 1. */
template <typename E>
__device__ __forceinline__ float capped(const attention_pass<E> &p, float score)
{
    return p.cap_in != 0.0f ? p.cap_out * tanhf(p.cap_in * score) : score;
}

template <typename E>
__device__ __forceinline__ float cap_slope(
        const attention_pass<E> &p, float score)
{
    float part = p.cap_in * score;
    return 1.0f - part * part;
}

/* Offset of head h of sample b in out and dout, whose rows are H*D apart. */
template <typename E>
__device__ __forceinline__ int64_t
out_at(const attention_pass<E> &p, int b, int h)
{
    return ((int64_t)b * p.Q * p.H + h) * p.D;
}

/* Offset of head h of sample b in lse and delta. */
template <typename E>
__device__ __forceinline__ int64_t
lse_at(const attention_pass<E> &p, int b, int h)
{
    return ((int64_t)b * p.H + h) * p.Q;
}

/* The token of a query row; the first query row at or after a token. */
template <typename E>
__device__ __forceinline__ int token_of(const attention_pass<E> &p, int row)
{
    return attention_token(p.queries, row);
}

template <typename E>
__device__ __forceinline__ int row_of(const attention_pass<E> &p, int token)
{
    return attention_row(p.queries, token);
}

template <typename E>
__device__ __forceinline__ const int32_t *starts_of(
        const attention_pass<E> &p, int b)
{
    return p.doc_start + (int64_t)b * p.Q;
}

/* The first token that a row sees; starts: doc_start of its sample. */
template <typename E>
__device__ __forceinline__ int first_of(
        const attention_pass<E> &p, const int32_t *starts, int row)
{
    return attention_first(p.window, starts[row], token_of(p, row));
}

/* May rows of every array be read `width` elements at a time? */
template <typename E>
static inline bool rows_are_packs(const attention_pass<E> &p, int width)
{
    uintptr_t places = (uintptr_t)p.q | (uintptr_t)p.k | (uintptr_t)p.v |
                       (uintptr_t)p.out | (uintptr_t)p.dq | (uintptr_t)p.dk |
                       (uintptr_t)p.dv | (uintptr_t)p.dout;
    return places % (width * sizeof(E)) == 0 && p.D % width == 0 &&
           p.q_stride % width == 0 && p.k_stride % width == 0 &&
           p.v_stride % width == 0;
}

/* CUDA requires this call for more than 48 KB of dynamic shared memory. */
enum zd_status attention_allow_shared(const void *kernel, size_t bytes);
/* Shared memory of a multiprocessor of the current device. */
size_t attention_shared_bytes(void);

/* The families. The caller passes only shapes that a family supports. */
template <typename E>
enum zd_status rows_forward(cudaStream_t stream, const attention_pass<E> &p);
template <typename E>
enum zd_status rows_backward(cudaStream_t stream, const attention_pass<E> &p);
enum zd_status tiles_forward(
        cudaStream_t stream, const attention_pass<float> &p);
enum zd_status tiles_backward(
        cudaStream_t stream, const attention_pass<float> &p);
template <typename E>
enum zd_status mma_forward(cudaStream_t stream, const attention_pass<E> &p);
template <typename E>
enum zd_status mma_backward(cudaStream_t stream, const attention_pass<E> &p);
/* delta of every row; the first kernel of backward. */
template <typename E>
enum zd_status row_deltas(cudaStream_t stream, const attention_pass<E> &p);
