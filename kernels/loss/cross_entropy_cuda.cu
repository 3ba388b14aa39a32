/* cross_entropy_cuda.cu - the loss on a GPU.
 *
 * A block to a row. One pass over memory finds the greatest logit and the sum
 * of exponentials together (Milakov, Gimelshein 2018, arXiv:1805.02867); the
 * second reads the row from the end, where it is still in a cache, and leaves
 * the gradient, in the logits' place if asked to. Rows begin at the last, which
 * the product before has just written.
 *
 * Rows may begin at any alignment: packs begin at a row's first aligned
 * element. */
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

/* A logit as the loss takes it, and what its gradient is multiplied by.
 * MAPPED: there is a map. */
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

/* max and sum e^(x - max), of values seen so far. */
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

template <typename T, int W, bool MAPPED>
static __device__ inline struct softmax row_softmax(
        const T *row, int V, float *shared, logit_reader<MAPPED> read)
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
 * `row`; both begin at the same place between packs. */
template <typename T, int W, bool MAPPED>
static __device__ inline void row_gradient(
        T *d, const T *row, struct softmax s, float dloss, int target, int V,
        logit_reader<MAPPED> read)
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

template <typename T, int W, bool MAPPED>
static __global__ void __launch_bounds__(LOSS_BLOCK) cross_entropy_kernel(
        float *losses, T *dlogits, const T *logits, const int32_t *targets,
        float dloss, int n, int V, int stride, logit_reader<MAPPED> read)
{
    __shared__ float shared[MAX_WARPS];
    int64_t i = n - 1 - (int)blockIdx.x;
    const T *row = logits + i * stride;
    T *d = dlogits ? dlogits + i * stride : NULL;
    int target = targets[i];
    if (target < 0) {
        if (threadIdx.x == 0)
            losses[i] = 0.0f;
        for (int v = (int)threadIdx.x; d && v < V; v += LOSS_BLOCK)
            d[v] = from_float<T>(0.0f);
        return;
    }
    float wanted = read(to_float(row[target])); /* before it is overwritten */
    struct softmax s = row_softmax<T, W>(row, V, shared, read);
    if (threadIdx.x == 0)
        losses[i] = logf(s.sum) - (wanted - s.max);
    if (d)
        row_gradient<T, W>(d, row, s, dloss, target, V, read);
}

template <typename T, bool MAPPED>
static enum zd_status cross_entropy_by(
        cudaStream_t on, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, float dloss, int n, int V, int stride,
        logit_reader<MAPPED> read)
{
    const int W = full_width<T>::value;
    bool is_alike =
            !dlogits || ((uintptr_t)dlogits - (uintptr_t)logits) % 16 == 0;
    if (is_alike)
        ZD_LAUNCH(
                (cross_entropy_kernel<T, W, MAPPED>), (unsigned)n, LOSS_BLOCK,
                0, on, losses, (T *)dlogits, (const T *)logits, targets, dloss,
                n, V, stride, read);
    else
        ZD_LAUNCH(
                (cross_entropy_kernel<T, 1, MAPPED>), (unsigned)n, LOSS_BLOCK,
                0, on, losses, (T *)dlogits, (const T *)logits, targets, dloss,
                n, V, stride, read);
    return ZD_OK;
}

template <typename T>
static enum zd_status cross_entropy_any(
        struct stream *stream, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, float dloss, int n, int V, int stride,
        const struct logit_map *map)
{
    cudaStream_t on = device_cuda_stream(stream);
    if (n <= 0)
        return ZD_OK;
    assert(V > 0 && stride >= V);
    if (map)
        return cross_entropy_by<T, true>(
                on, losses, dlogits, logits, targets, dloss, n, V, stride,
                {*map});
    return cross_entropy_by<T, false>(
            on, losses, dlogits, logits, targets, dloss, n, V, stride, {});
}

CUDA_DEFINE(cross_entropy);

/* --- of a slice of the vocabulary ----------------------------------------- */

template <typename T, int W, bool MAPPED>
static __global__ void __launch_bounds__(LOSS_BLOCK) row_scores_kernel(
        struct row_score *scores, const T *logits, const int32_t *targets,
        int n, int stride, struct vocabulary_slice slice,
        logit_reader<MAPPED> read)
{
    __shared__ float shared[MAX_WARPS];
    int64_t i = n - 1 - (int)blockIdx.x;
    const T *row = logits + i * stride;
    int target = targets[i] - slice.first;
    struct softmax s = row_softmax<T, W>(row, slice.count, shared, read);
    if (threadIdx.x != 0)
        return;
    scores[i].top = slice.count > 0 ? s.max : ROW_NONE;
    scores[i].sum = slice.count > 0 ? s.sum : 0.0f;
    scores[i].target = target >= 0 && target < slice.count
                               ? read(to_float(row[target]))
                               : ROW_NONE;
}

template <typename T, int W, bool MAPPED>
static __global__ void __launch_bounds__(LOSS_BLOCK) row_losses_kernel(
        float *losses, T *dlogits, const T *logits, const int32_t *targets,
        const struct row_score *scores, int slices, float dloss, int n,
        int stride, struct vocabulary_slice slice, logit_reader<MAPPED> read)
{
    int64_t i = n - 1 - (int)blockIdx.x;
    T *d = dlogits ? dlogits + i * stride : NULL;
    bool counts = targets[i] >= 0;
    struct softmax all = {ROW_NONE, 0.0f};
    float wanted = ROW_NONE;
    for (int s = 0; s < slices; s++) {
        all.max = fmaxf(all.max, scores[(int64_t)s * n + i].top);
        wanted = fmaxf(wanted, scores[(int64_t)s * n + i].target);
    }
    for (int s = 0; s < slices; s++) {
        struct row_score score = scores[(int64_t)s * n + i];
        all.sum += score.sum * expf(score.top - all.max);
    }
    if (threadIdx.x == 0)
        losses[i] = counts ? all.max + logf(all.sum) - wanted : 0.0f;
    if (d && counts)
        row_gradient<T, W>(
                d, logits + i * stride, all, dloss, targets[i] - slice.first,
                slice.count, read);
    int v = (counts ? slice.count : 0) + (int)threadIdx.x;
    for (; d && v < slice.columns; v += LOSS_BLOCK)
        d[v] = from_float<T>(0.0f);
}

template <typename T, bool MAPPED>
static enum zd_status row_scores_by(
        cudaStream_t on, struct row_score *scores, const void *logits,
        const int32_t *targets, int n, int stride,
        const struct vocabulary_slice *slice, logit_reader<MAPPED> read)
{
    const int W = full_width<T>::value;
    ZD_LAUNCH(
            (row_scores_kernel<T, W, MAPPED>), (unsigned)n, LOSS_BLOCK, 0, on,
            scores, (const T *)logits, targets, n, stride, *slice, read);
    return ZD_OK;
}

template <typename T>
static enum zd_status row_scores_any(
        struct stream *stream, struct row_score *scores, const void *logits,
        const int32_t *targets, int n, int stride,
        const struct vocabulary_slice *slice, const struct logit_map *map)
{
    cudaStream_t on = device_cuda_stream(stream);
    if (n <= 0)
        return ZD_OK;
    if (map)
        return row_scores_by<T, true>(
                on, scores, logits, targets, n, stride, slice, {*map});
    return row_scores_by<T, false>(
            on, scores, logits, targets, n, stride, slice, {});
}

template <typename T, int W, bool MAPPED>
static enum zd_status row_losses_by(
        cudaStream_t on, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, const struct row_score *scores, int slices,
        float dloss, int n, int stride, const struct vocabulary_slice *slice,
        logit_reader<MAPPED> read)
{
    ZD_LAUNCH(
            (row_losses_kernel<T, W, MAPPED>), (unsigned)n, LOSS_BLOCK, 0, on,
            losses, (T *)dlogits, (const T *)logits, targets, scores, slices,
            dloss, n, stride, *slice, read);
    return ZD_OK;
}

/* One element at a time where packs would not meet. */
template <typename T>
static enum zd_status row_losses_any(
        struct stream *stream, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, const struct row_score *scores, int slices,
        float dloss, int n, int stride, const struct vocabulary_slice *slice,
        const struct logit_map *map)
{
    const int W = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    bool is_alike =
            !dlogits || ((uintptr_t)dlogits - (uintptr_t)logits) % 16 == 0;
    if (n <= 0)
        return ZD_OK;
    if (map)
        return row_losses_by<T, 1, true>(
                on, losses, dlogits, logits, targets, scores, slices, dloss, n,
                stride, slice, {*map});
    return (is_alike
                    ? row_losses_by<T, W, false>
                    : row_losses_by<
                              T, 1,
                              false>)(on, losses, dlogits, logits, targets, scores, slices, dloss, n, stride, slice, {});
}

CUDA_DEFINE(row_scores);
CUDA_DEFINE(row_losses);
