/* cross_entropy_cuda.cu - the loss on a GPU.
 *
 * One block per row. One pass over memory computes the largest logit and the
 * sum of exponentials together (Milakov, Gimelshein 2018, arXiv:1805.02867);
 * the second reads the row from its end, which is still in a cache, and writes
 * the gradient, in place if requested. The last rows run first: the preceding
 * matmul has just written them.
 *
 * Rows may have any alignment: packs begin at a row's first aligned element. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/loss/cross_entropy.h"
}

#include <float.h>

enum { LOSS_BLOCK = 1024 };

/* Elements before a row's first whole pack. */
template <int W, typename T> static __device__ inline int head_of(const T *row)
{
    int ahead = (int)((uintptr_t)row / sizeof(T) % W);
    return ahead ? W - ahead : 0;
}

/* Returns a mapped logit, and the factor of its gradient. MAPPED: there is a
 * map. */
template <bool MAPPED> struct logit_reader {
    struct logit_map map;

    __device__ float operator()(float z) const
    {
        float y = MAPPED ? map.scale * z : z;
        return MAPPED && map.softcap > 0.0f
                       ? map.softcap * tanhf(y / map.softcap)
                       : y;
    }
    __device__ float gradient(float dy, float y) const
    {
        float part = MAPPED && map.softcap > 0.0f ? y / map.softcap : 0.0f;
        return MAPPED ? dy * map.scale * (1.0f - part * part) : dy;
    }
};

/* max and sum of e^(x - max) over the values so far. */
struct softmax {
    float max, sum;
};

template <typename T>
static __device__ inline void softmax_see(struct softmax *s, float x)
{
    if (x > s->max) {
        s->sum *= exp_for<T>(s->max - x);
        s->max = x;
    }
    s->sum += exp_for<T>(x - s->max);
}

template <typename T, int W>
static __device__ inline void softmax_see_all(
        struct softmax *s, const float (&x)[W])
{
    float max = s->max;
#pragma unroll
    for (int j = 0; j < W; j++)
        max = fmaxf(max, x[j]);
    if (max > s->max) {
        s->sum *= exp_for<T>(s->max - max);
        s->max = max;
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        s->sum += exp_for<T>(x[j] - max);
}

template <typename T, int W, typename READ>
static __device__ inline struct softmax row_softmax(
        const T *row, int V, float *shared, READ read)
{
    struct softmax s = {-FLT_MAX, 0.0f};
    int head = head_of<W>(row), packs = V > head ? (V - head) / W : 0;
    int tail = head + packs * W;
    head = head < V ? head : V;
    if ((int)threadIdx.x < head)
        softmax_see<T>(&s, read(to_float(row[threadIdx.x])));
    for (int p = (int)threadIdx.x; p < packs; p += LOSS_BLOCK) {
        float x[W];
        load_floats<W>(x, row + head + p * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = read(x[j]);
        softmax_see_all<T, W>(&s, x);
    }
    if (tail + (int)threadIdx.x < V)
        softmax_see<T>(&s, read(to_float(row[tail + threadIdx.x])));
    float max = block_max(s.max, shared);
    s.sum = block_sum(s.sum * exp_for<T>(s.max - max), shared);
    s.max = max;
    return s;
}

/* d = (softmax - onehot) dloss, from the row's end to its beginning. `d` may be
 * `row`; both have the same alignment modulo packs. */
template <typename T, int W, typename READ>
static __device__ inline void row_gradient(
        T *d, const T *row, struct softmax s, float dloss, int target, int V,
        READ read)
{
    float scale = dloss / s.sum;
    int head = head_of<W>(row), packs = V > head ? (V - head) / W : 0;
    int tail = head + packs * W;
    head = head < V ? head : V;
    int v = tail + (int)threadIdx.x;
    if (v < V) {
        float y = read(to_float(row[v])), p = exp_for<T>(y - s.max) * scale;
        d[v] = from_float<T>(read.gradient(v == target ? p - dloss : p, y));
    }
    int last = (int)threadIdx.x;
    if (last < packs)
        last += (packs - 1 - last) / LOSS_BLOCK * LOSS_BLOCK;
    else
        last = -1;
    for (int p = last; p >= 0; p -= LOSS_BLOCK) {
        int first = head + p * W;
        float x[W];
        load_floats<W>(x, row + first);
#pragma unroll
        for (int j = 0; j < W; j++) {
            float y = read(x[j]);
            x[j] = exp_for<T>(y - s.max) * scale;
            if (first + j == target)
                x[j] -= dloss;
            x[j] = read.gradient(x[j], y);
        }
        store_pack_once<W>(d + first, packed<T, W>(x));
    }
    v = (int)threadIdx.x;
    if (v < head) {
        float y = read(to_float(row[v])), p = exp_for<T>(y - s.max) * scale;
        d[v] = from_float<T>(read.gradient(v == target ? p - dloss : p, y));
    }
}

template <typename T, int W, typename READ>
static __global__ void __launch_bounds__(LOSS_BLOCK)
        cross_entropy_kernel(const struct loss_rows p, READ read)
{
    __shared__ float shared[MAX_WARPS];
    int64_t i = p.n - 1 - (int)blockIdx.x;
    const T *row = (const T *)p.logits + i * p.stride;
    T *d = p.dlogits ? (T *)p.dlogits + i * p.stride : NULL;
    int target = p.targets[i], V = p.slice.count;
    if (target < 0) {
        if (threadIdx.x == 0)
            p.losses[i] = 0.0f;
        for (int v = (int)threadIdx.x; d && v < V; v += LOSS_BLOCK)
            d[v] = from_float<T>(0.0f);
        return;
    }
    float wanted = read(to_float(row[target])); /* d overwrites it */
    struct softmax s = row_softmax<T, W>(row, V, shared, read);
    if (threadIdx.x == 0)
        p.losses[i] = logf(s.sum) - (wanted - s.max);
    if (d)
        row_gradient<T, W>(d, row, s, p.dloss, target, V, read);
}

/* Calls `run` with the width of packs (both arrays must be equally aligned),
 * the rows for the kernel, and a reader of logits. */
template <typename T, typename RUN>
static enum zd_status by_map(const struct loss_rows *rows, const RUN &run)
{
    struct loss_rows p = *rows;
    uintptr_t apart = (uintptr_t)p.dlogits - (uintptr_t)p.logits;
    p.map = NULL; /* a host pointer */
    if (p.n <= 0)
        return ZD_OK;
    assert(p.stride >= p.slice.count);
    return by_width<T>(!p.dlogits || apart % 16 == 0, [&](auto width) {
        return rows->map ? run(width, p, logit_reader<true>{*rows->map})
                         : run(width, p, logit_reader<false>{});
    });
}

template <typename T>
static enum zd_status cross_entropy_any(
        struct stream *stream, const struct loss_rows *rows)
{
    cudaStream_t on = device_cuda_stream(stream);
    return by_map<T>(rows, [&](auto width, auto &p, auto read) {
        const int W = decltype(width)::value;
        ZD_LAUNCH(
                (cross_entropy_kernel<T, W, decltype(read)>), (unsigned)p.n,
                LOSS_BLOCK, 0, on, p, read);
        return ZD_OK;
    });
}

CUDA_DEFINE(cross_entropy);

/* --- of a slice of the vocabulary ----------------------------------------- */

template <typename T, int W, typename READ>
static __global__ void __launch_bounds__(LOSS_BLOCK) row_scores_kernel(
        struct row_score *scores, const struct loss_rows p, READ read)
{
    __shared__ float shared[MAX_WARPS];
    int64_t i = p.n - 1 - (int)blockIdx.x;
    const T *row = (const T *)p.logits + i * p.stride;
    int target = p.targets[i] - p.slice.first, V = p.slice.count;
    struct softmax s = row_softmax<T, W>(row, V, shared, read);
    if (threadIdx.x != 0)
        return;
    scores[i].top = V > 0 ? s.max : ROW_NONE;
    scores[i].sum = V > 0 ? s.sum : 0.0f;
    scores[i].target =
            target >= 0 && target < V ? read(to_float(row[target])) : ROW_NONE;
}

template <typename T>
static enum zd_status row_scores_any(
        struct stream *stream, struct row_score *scores,
        const struct loss_rows *rows)
{
    cudaStream_t on = device_cuda_stream(stream);
    struct loss_rows only = *rows;
    only.dlogits = NULL;
    return by_map<T>(&only, [&](auto width, auto &p, auto read) {
        const int W = decltype(width)::value;
        ZD_LAUNCH(
                (row_scores_kernel<T, W, decltype(read)>), (unsigned)p.n,
                LOSS_BLOCK, 0, on, scores, p, read);
        return ZD_OK;
    });
}

template <typename T, int W, typename READ>
static __global__ void __launch_bounds__(LOSS_BLOCK) row_losses_kernel(
        const struct loss_rows p, const struct row_score *scores, int slices,
        READ read)
{
    int64_t i = p.n - 1 - (int)blockIdx.x;
    const T *row = (const T *)p.logits + i * p.stride;
    T *d = p.dlogits ? (T *)p.dlogits + i * p.stride : NULL;
    bool counts = p.targets[i] >= 0;
    struct softmax all = {ROW_NONE, 0.0f};
    float wanted = ROW_NONE;
    for (int s = 0; s < slices; s++) {
        all.max = fmaxf(all.max, scores[(int64_t)s * p.n + i].top);
        wanted = fmaxf(wanted, scores[(int64_t)s * p.n + i].target);
    }
    for (int s = 0; s < slices; s++) {
        struct row_score score = scores[(int64_t)s * p.n + i];
        all.sum += score.sum * expf(score.top - all.max);
    }
    if (threadIdx.x == 0)
        p.losses[i] = counts ? all.max + logf(all.sum) - wanted : 0.0f;
    if (d && counts)
        row_gradient<T, W>(
                d, row, all, p.dloss, p.targets[i] - p.slice.first,
                p.slice.count, read);
    int v = (counts ? p.slice.count : 0) + (int)threadIdx.x;
    for (; d && v < p.slice.columns; v += LOSS_BLOCK)
        d[v] = from_float<T>(0.0f);
}

template <typename T>
static enum zd_status row_losses_any(
        struct stream *stream, const struct loss_rows *rows,
        const struct row_score *scores, int slices)
{
    cudaStream_t on = device_cuda_stream(stream);
    return by_map<T>(rows, [&](auto width, auto &p, auto read) {
        const int W = decltype(width)::value;
        ZD_LAUNCH(
                (row_losses_kernel<T, W, decltype(read)>), (unsigned)p.n,
                LOSS_BLOCK, 0, on, p, scores, slices, read);
        return ZD_OK;
    });
}

CUDA_DEFINE(row_scores);
CUDA_DEFINE(row_losses);
