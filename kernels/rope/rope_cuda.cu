#include "kernels/rope/rope.cuh"

extern "C" {
#include "kernels/rope/rope.h"
}

enum { ROPE_BLOCK = 128 };

/* A thread rotates W pairs of a head: packs from both of its halves. A block
 * works on a tile of a token's heads, which share its angles. */
template <typename T, int W>
static __global__ void rope_kernel(
        T *x, const float *cosine, const float *sine, const int32_t *positions,
        int H, int D, int64_t row_stride, int tiles, float direction)
{
    int half = D / 2, packs = half / W;
    int64_t n = blockIdx.x / (unsigned)tiles;
    int item = (int)(blockIdx.x % (unsigned)tiles * ROPE_BLOCK + threadIdx.x);
    if (item >= H * packs)
        return;
    int h = item / packs, i = item % packs * W;
    T *first = x + n * row_stride + (int64_t)h * D + i, *second = first + half;
    int64_t entry = (int64_t)positions[n] * half + i;
    float c[W], s[W], a[W], b[W];
    read_fp32<W>(c, cosine + entry);
    read_fp32<W>(s, sine + entry);
    load_floats<W>(a, first);
    load_floats<W>(b, second);
#pragma unroll
    for (int j = 0; j < W; j++) {
        float sine = direction * s[j], low = a[j], high = b[j];
        a[j] = turned_low(low, high, c[j], sine);
        b[j] = turned_high(low, high, c[j], sine);
    }
    store_floats<W>(first, a);
    store_floats<W>(second, b);
}

template <typename T, int W>
static enum zd_status rope_packs(
        cudaStream_t on, T *x, const float *cosine, const float *sine,
        const int32_t *positions, int N, int H, int D, int64_t row_stride,
        bool backward)
{
    int64_t tiles = ceil_div((int64_t)H * (D / 2 / W), ROPE_BLOCK);
    assert(N * tiles <= GRID_MOST);
    ZD_LAUNCH(
            (rope_kernel<T, W>), (unsigned)(N * tiles), ROPE_BLOCK, 0, on, x,
            cosine, sine, positions, H, D, row_stride, (int)tiles,
            backward ? -1.0f : 1.0f);
    return ZD_OK;
}

template <typename T>
static enum zd_status rope_any(
        struct stream *stream, void *x, const float *cosine, const float *sine,
        const int32_t *positions, int N, int H, int D, int64_t row_stride,
        bool backward)
{
    const int W = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    if (N <= 0 || H <= 0 || D < 2)
        return ZD_OK;
    if (D / 2 % W == 0 && row_stride % W == 0 && is_aligned(x) &&
        is_aligned(cosine) && is_aligned(sine))
        return rope_packs<T, W>(
                on, (T *)x, cosine, sine, positions, N, H, D, row_stride,
                backward);
    return rope_packs<T, 1>(
            on, (T *)x, cosine, sine, positions, N, H, D, row_stride, backward);
}

CUDA_DEFINE(rope);
