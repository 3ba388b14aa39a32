/* activation_cuda.cu - gelu, swiglu and geglu on a GPU.
 *
 * The tanh of gelu is a sigmoid: 0.5 (1 + tanh(u)) = sigmoid(2 u), so that
 *
 *   gelu(x)  = x s,  s = sigmoid(2 u(x)),  u = sqrt(2/pi) (x + 0.044715 x^3)
 *   gelu'(x) = s + 2 x s (1 - s) u'(x)
 *
 * with a single exponential and without cancellation in the tails. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/elementwise/activation.h"
}

enum { FLAT_BLOCK = 256, ROWS_BLOCK = 128 };

#define GELU_SCALE 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE  0.044715f

template <typename T> static __device__ inline float gelu(float x)
{
    float u = GELU_SCALE * (x + GELU_CUBE * x * x * x);
    return x * sigmoid_for<T>(2.0f * u);
}

template <typename T> static __device__ inline float dgelu(float x)
{
    float u = GELU_SCALE * (x + GELU_CUBE * x * x * x);
    float du = GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    float s = sigmoid_for<T>(2.0f * u);
    return s + 2.0f * x * s * (1.0f - s) * du;
}

#undef GELU_SCALE
#undef GELU_CUBE

/* out = gelu(x), or if dout is given, dout gelu'(x). */
template <typename T, int W>
static __global__ void gelu_kernel(
        T *out, const T *dout, const T *x, int64_t count)
{
    int64_t whole = count / W * W;
    for (int64_t i = thread_of_grid() * W; i < whole;
         i += threads_of_grid() * W) {
        float v[W], g[W];
        load_floats<W>(v, x + i);
        if (dout)
            load_floats<W>(g, dout + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = dout ? g[j] * dgelu<T>(v[j]) : gelu<T>(v[j]);
        store_floats<W>(out + i, v);
    }
    int64_t rest = whole + thread_of_grid();
    if (rest < count) {
        float v = to_float(x[rest]);
        out[rest] = from_float<T>(
                dout ? to_float(dout[rest]) * dgelu<T>(v) : gelu<T>(v));
    }
}

template <typename T>
static enum zd_status gelu_backward_any(
        struct stream *stream, void *dx, const void *dout, const void *x,
        size_t count)
{
    cudaStream_t on = device_cuda_stream(stream);
    int64_t n = (int64_t)count;
    bool is_packed = are_aligned(dx, dout, x);
    if (count == 0)
        return ZD_OK;
    ZD_LAUNCH_PACKED(
            gelu_kernel, T, is_packed,
            grid_of_packs<T>(n, is_packed, FLAT_BLOCK, GRID_MOST), FLAT_BLOCK,
            on, (T *)dx, (const T *)dout, (const T *)x, n);
    return ZD_OK;
}

template <typename T>
static enum zd_status gelu_forward_any(
        struct stream *stream, void *out, const void *x, size_t count)
{
    return gelu_backward_any<T>(stream, out, NULL, x, count);
}

/* --- gated: a block works on a tile of a row -------------------------------
 */

template <typename T>
static __device__ inline float gate_of(enum gate gate, float x)
{
    return gate == GATE_GELU ? gelu<T>(x) : x * sigmoid_for<T>(x);
}

template <typename T, int W>
static __global__ void gated_forward_kernel(
        enum gate by, T *out, const T *gate, const T *up, int F, int64_t stride,
        int tiles)
{
    int64_t n = blockIdx.x / (unsigned)tiles;
    int f = (int)(blockIdx.x % (unsigned)tiles * ROWS_BLOCK + threadIdx.x) * W;
    if (f >= F)
        return;
    float g[W], u[W];
    load_floats<W>(g, gate + n * stride + f);
    load_floats<W>(u, up + n * stride + f);
#pragma unroll
    for (int j = 0; j < W; j++)
        g[j] = gate_of<T>(by, g[j]) * u[j];
    store_floats<W>(out + n * F + f, g);
}

template <typename T, int W>
static __global__ void gated_backward_kernel(
        enum gate by, T *dgate, T *dup, const T *dout, const T *gate,
        const T *up, int F, int64_t stride, int tiles)
{
    int64_t n = blockIdx.x / (unsigned)tiles;
    int f = (int)(blockIdx.x % (unsigned)tiles * ROWS_BLOCK + threadIdx.x) * W;
    if (f >= F)
        return;
    float d[W], g[W], u[W];
    load_floats<W>(d, dout + n * F + f);
    load_floats<W>(g, gate + n * stride + f);
    load_floats<W>(u, up + n * stride + f);
#pragma unroll
    for (int j = 0; j < W; j++) {
        float x = g[j];
        if (by == GATE_GELU) {
            g[j] = d[j] * u[j] * dgelu<T>(x);
            u[j] = d[j] * gelu<T>(x);
        } else {
            float s = sigmoid_for<T>(x);
            g[j] = d[j] * u[j] * s * (1.0f + x * (1.0f - s));
            u[j] = d[j] * x * s;
        }
    }
    store_floats<W>(dgate + n * stride + f, g);
    store_floats<W>(dup + n * stride + f, u);
}

/* Blocks for N rows of F elements in packs of W; *tiles_out: tiles per row. */
static unsigned row_tiles(int N, int F, int W, int *tiles_out)
{
    int64_t tiles = ceil_div(F, (int64_t)ROWS_BLOCK * W);
    assert(N * tiles <= GRID_MOST);
    *tiles_out = (int)tiles;
    return (unsigned)(N * tiles);
}

template <typename T>
static enum zd_status gated_forward_any(
        struct stream *stream, enum gate by, void *out, const void *gate,
        const void *up, int N, int F, int64_t stride)
{
    const int W = full_width<T>::value;
    int tiles;
    bool is_packed =
            F % W == 0 && stride % W == 0 && are_aligned(out, gate, up);
    if (N <= 0 || F <= 0)
        return ZD_OK;
    unsigned grid = row_tiles(N, F, is_packed ? W : 1, &tiles);
    ZD_LAUNCH_PACKED(
            gated_forward_kernel, T, is_packed, grid, ROWS_BLOCK,
            device_cuda_stream(stream), by, (T *)out, (const T *)gate,
            (const T *)up, F, stride, tiles);
    return ZD_OK;
}

template <typename T>
static enum zd_status gated_backward_any(
        struct stream *stream, enum gate by, void *dgate, void *dup,
        const void *dout, const void *gate, const void *up, int N, int F,
        int64_t stride)
{
    const int W = full_width<T>::value;
    int tiles;
    bool is_packed = F % W == 0 && stride % W == 0 &&
                     are_aligned(dgate, dup, dout, gate, up);
    if (N <= 0 || F <= 0)
        return ZD_OK;
    unsigned grid = row_tiles(N, F, is_packed ? W : 1, &tiles);
    ZD_LAUNCH_PACKED(
            gated_backward_kernel, T, is_packed, grid, ROWS_BLOCK,
            device_cuda_stream(stream), by, (T *)dgate, (T *)dup,
            (const T *)dout, (const T *)gate, (const T *)up, F, stride, tiles);
    return ZD_OK;
}

CUDA_DEFINE(gelu_forward);
CUDA_DEFINE(gelu_backward);
CUDA_DEFINE(gated_forward);
CUDA_DEFINE(gated_backward);
