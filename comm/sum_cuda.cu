/* */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "comm/sum_cuda.h"
}

enum { BLOCK = 256, GRID_MAX = 1024 };

template <typename T, int W>
__global__ void add_kernel(T *to, const T *from, int64_t count)
{
    add_arrays<W>(to, from, to, count);
}

extern "C" enum zd_status comm_add_cuda(
        struct stream *stream, float *to, const float *from, size_t count)
{
    int64_t n = (int64_t)count;
    bool is_packed = are_aligned(to, from);
    if (count > 0)
        ZD_LAUNCH_PACKED(
                add_kernel, float, is_packed,
                grid_of_packs<float>(n, is_packed, BLOCK, GRID_MAX), BLOCK,
                device_cuda_stream(stream), to, from, n);
    return ZD_OK;
}

/* --- parts of several ranks ----------------------------------------------- */

/* A thread adds the packs of all parts at its place; `to` may be `own`, which
 * it has read by then. */
template <typename T, int W>
__global__ void sum_kernel(
        T *to, const T *own, const T *others, size_t stride, size_t packs,
        int parts, int place, bool accumulate)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs;
         i += step) {
        float sum[W] = {}, x[W];
        for (int p = 0; p < parts; p++) {
            int slot = p < place ? p : p - 1;
            const T *part = p == place ? own : others + (size_t)slot * stride;
            load_floats(x, part + i * W);
#pragma unroll
            for (int k = 0; k < W; k++)
                sum[k] = p == 0 ? x[k] : sum[k] + x[k];
        }
        if (accumulate) {
            load_floats(x, to + i * W);
#pragma unroll
            for (int k = 0; k < W; k++)
                sum[k] += x[k];
        }
        store_floats(to + i * W, sum);
    }
}

template <typename T, int W>
static enum zd_status launch(struct stream *stream, const struct sum_cuda *s)
{
    size_t packs = s->count / W;
    ZD_LAUNCH(
            (sum_kernel<T, W>), grid_for((int64_t)packs, BLOCK, GRID_MAX),
            BLOCK, 0, device_cuda_stream(stream), (T *)s->to, (const T *)s->own,
            (const T *)s->others, s->stride, packs, s->parts, s->place,
            s->accumulate);
    return ZD_OK;
}

template <typename T>
static enum zd_status sum_of_type(
        struct stream *stream, const struct sum_cuda *s)
{
    const int W = full_width<T>::value;
    uintptr_t places = (uintptr_t)s->to | (uintptr_t)s->own |
                       (uintptr_t)s->others | s->stride * sizeof(T);
    if (places % 16 == 0 && s->count % W == 0)
        return launch<T, W>(stream, s);
    return launch<T, 1>(stream, s);
}

extern "C" enum zd_status comm_sum_cuda(
        struct stream *stream, const struct sum_cuda *request)
{
    if (request->count == 0)
        return ZD_OK;
    switch (request->type) {
    case DTYPE_FP32:
        return sum_of_type<float>(stream, request);
    case DTYPE_BF16:
        return sum_of_type<bf16>(stream, request);
    default:
        return sum_of_type<fp16>(stream, request);
    }
}
