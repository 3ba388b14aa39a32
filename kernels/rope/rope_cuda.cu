#include "kernels/rope/rope.cuh"

extern "C" {
#include "kernels/rope/rope.h"
}

enum { ROPE_BLOCK = 128 };

/* Interleaved pairs: a and b are 2 W consecutive elements. */
template <int W>
static __device__ inline void turn_neighbors(
        float (&a)[W], float (&b)[W], const float (&c)[W], const float (&s)[W])
{
    float x[2 * W];
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = a[j], x[W + j] = b[j];
#pragma unroll
    for (int j = 0; j < W; j++) {
        float low = x[2 * j], high = x[2 * j + 1];
        x[2 * j] = turned_low(low, high, c[j], s[j]);
        x[2 * j + 1] = turned_high(low, high, c[j], s[j]);
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        a[j] = x[j], b[j] = x[W + j];
}

/* A thread rotates W pairs of a head: packs from both halves, or interleaved
 * pairs. A block works on several heads of one token, which share its angles.
 */
template <typename T, int W>
static __global__ void rope_kernel(
        T *x, const struct rope_angles angles, int H, int D, int pairs,
        int64_t row_stride, int tiles, float direction)
{
    int packs = pairs / W;
    int64_t n = blockIdx.x / (unsigned)tiles;
    int item = (int)(blockIdx.x % (unsigned)tiles * ROPE_BLOCK + threadIdx.x);
    if (item >= H * packs)
        return;
    int h = item / packs, i = item % packs * W;
    bool neighbors = angles.interleaved;
    T *first = x + n * row_stride + (int64_t)h * D + (neighbors ? 2 * i : i);
    T *second = first + (neighbors ? W : pairs);
    int64_t entry = (int64_t)angles.positions[n] * pairs + i;
    float c[W], s[W], a[W], b[W];
    read_fp32<W>(c, angles.cosine + entry);
    read_fp32<W>(s, angles.sine + entry);
    load_floats<W>(a, first);
    load_floats<W>(b, second);
#pragma unroll
    for (int j = 0; j < W; j++)
        s[j] *= direction;
    if (neighbors)
        turn_neighbors<W>(a, b, c, s);
#pragma unroll
    for (int j = 0; j < W && !neighbors; j++) {
        float low = a[j], high = b[j];
        a[j] = turned_low(low, high, c[j], s[j]);
        b[j] = turned_high(low, high, c[j], s[j]);
    }
    store_floats<W>(first, a);
    store_floats<W>(second, b);
}

template <typename T>
static enum zd_status rope_any(
        struct stream *stream, void *x, const struct rope_angles *angles, int N,
        int H, int D, int64_t row_stride, bool backward)
{
    const int whole = full_width<T>::value;
    int pairs = rope_pairs_of(angles, D);
    cudaStream_t on = device_cuda_stream(stream);
    bool is_packed = pairs % whole == 0 && D % whole == 0 &&
                     row_stride % whole == 0 &&
                     are_aligned(x, angles->cosine, angles->sine);
    if (N <= 0 || H <= 0 || pairs <= 0)
        return ZD_OK;
    assert(2 * pairs <= D);
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        int64_t tiles = ceil_div((int64_t)H * (pairs / W), ROPE_BLOCK);
        assert(N * tiles <= GRID_MOST);
        ZD_LAUNCH(
                (rope_kernel<T, W>), (unsigned)(N * tiles), ROPE_BLOCK, 0, on,
                (T *)x, *angles, H, D, pairs, row_stride, (int)tiles,
                backward ? -1.0f : 1.0f);
        return ZD_OK;
    });
}

CUDA_DEFINE(rope);
