#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/elementwise/magnitudes.h"
}

enum {
    BLOCK = 256,
    BLOCK_WARPS = BLOCK / WARP,
    COLUMNS_BLOCK = 128,
    ROWS_OF_THREAD = 4,
    GRID_ROWS_MOST = 65535
};

/* --- gains ---------------------------------------------------------------- */

/* The terms of B in row o's squared norm, for rows k, k + step, .. of A. */
template <typename T>
static __device__ inline float added_squares(
        const struct adapted_rows &rows, int64_t o, int k, int step)
{
    const T *b = (const T *)rows.b + o * rows.r;
    float dot = 0.0f, form = 0.0f, s = rows.scale;
    for (; k < rows.r; k += step) {
        const float *gram = rows.gram + (int64_t)k * rows.r;
        float at = to_float(b[k]), sum = 0.0f;
        for (int j = 0; j < rows.r; j++)
            sum += gram[j] * to_float(b[j]);
        dot += at * rows.cross[o * rows.r + k];
        form += at * sum;
    }
    return 2.0f * s * dot + s * s * form;
}

template <typename T>
static __device__ inline void put_gain(
        const struct adapted_rows &rows, int64_t o, float squares, float added,
        float *gain, float *inverse)
{
    float all = squares + added;
    float over = all > 0.0f ? 1.0f / sqrtf(all) : 0.0f;
    float m = sqrtf(squares) + to_float(((const T *)rows.change)[o]);
    inverse[o] = over;
    gain[o] = m * over;
}

/* One warp per row, in packs of W. */
template <typename T, int W>
static __global__ void row_gains_kernel(
        float *gain, float *inverse, struct adapted_rows rows)
{
    int lane = lane_of_warp();
    int64_t o = (int64_t)blockIdx.x * BLOCK_WARPS + warp_of_block();
    bool is_row = o < rows.out;
    const T *w = (const T *)rows.weight + (is_row ? o : 0) * rows.in;
    float sum = 0.0f;
    for (int i = lane * W; i < rows.in; i += WARP * W) {
        float v[W];
        load_floats<W>(v, w + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += v[j] * v[j];
    }
    sum = warp_sum(sum);
    float added = warp_sum(added_squares<T>(rows, is_row ? o : 0, lane, WARP));
    if (is_row && lane == 0)
        put_gain<T>(rows, o, sum, added, gain, inverse);
}

/* For Conv1D weights: one thread per column. */
template <typename T>
static __global__ void column_gains_kernel(
        float *gain, float *inverse, struct adapted_rows rows)
{
    int64_t o = thread_of_grid();
    if (o >= rows.out)
        return;
    const T *w = (const T *)rows.weight + o;
    float sum = 0.0f;
    for (int64_t i = 0; i < rows.in; i++) {
        float v = to_float(w[i * rows.out]);
        sum += v * v;
    }
    put_gain<T>(rows, o, sum, added_squares<T>(rows, o, 0, 1), gain, inverse);
}

template <typename T>
static enum zd_status row_gains_any(
        struct stream *stream, float *gain, float *inverse,
        const struct adapted_rows *rows)
{
    cudaStream_t on = device_cuda_stream(stream);
    bool is_packed =
            rows->in % full_width<T>::value == 0 && is_aligned(rows->weight);
    if (rows->conv1d)
        ZD_LAUNCH(
                (column_gains_kernel<T>), (unsigned)ceil_div(rows->out, BLOCK),
                BLOCK, 0, on, gain, inverse, *rows);
    else
        ZD_LAUNCH_PACKED(
                row_gains_kernel, T, is_packed,
                (unsigned)ceil_div(rows->out, BLOCK_WARPS), BLOCK, on, gain,
                inverse, *rows);
    return ZD_OK;
}

/* --- columns -------------------------------------------------------------- */

/* V: type of the values, in packs of W; T: type of the bias. A thread has the
 * same columns of several rows. */
template <typename T, typename V, int W>
static __global__ void scale_columns_kernel(
        V *out, int64_t out_stride, const V *x, int64_t x_stride,
        const float *gain, const T *bias, int N, int C)
{
    int c = ((int)blockIdx.x * COLUMNS_BLOCK + (int)threadIdx.x) * W;
    float g[W], b[W] = {0};
    if (c >= C)
        return;
    if (gain)
        read_fp32<W>(g, gain + c);
    if (bias)
        load_floats<W>(b, bias + c);
    for (int64_t n = blockIdx.y; n < N; n += gridDim.y) {
        float v[W];
        load_floats<W>(v, x + n * x_stride + c);
        if (gain)
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] = b[j] + g[j] * (v[j] - b[j]);
        store_floats<W>(out + n * out_stride + c, v);
    }
}

template <typename T, typename V>
static enum zd_status scale_columns_of(
        cudaStream_t on, V *out, int64_t out_stride, const V *x,
        int64_t x_stride, const float *gain, const T *bias, int N, int C)
{
    const int whole = full_width<V>::value;
    bool is_packed = C % whole == 0 && out_stride % whole == 0 &&
                     x_stride % whole == 0 && are_aligned(out, x, gain, bias);
    return by_width<V>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        dim3 grid(
                (unsigned)ceil_div(ceil_div(C, W), COLUMNS_BLOCK),
                grid_for(N, ROWS_OF_THREAD, GRID_ROWS_MOST));
        ZD_LAUNCH(
                (scale_columns_kernel<T, V, W>), grid, COLUMNS_BLOCK, 0, on,
                out, out_stride, x, x_stride, gain, bias, N, C);
        return ZD_OK;
    });
}

template <typename T>
static enum zd_status scale_columns_any(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int64_t x_stride, enum dtype type, const float *gain, const void *bias,
        int N, int C)
{
    cudaStream_t on = device_cuda_stream(stream);
    if (N <= 0 || C <= 0)
        return ZD_OK;
    if (type == DTYPE_FP32)
        return scale_columns_of(
                on, (float *)out, out_stride, (const float *)x, x_stride, gain,
                (const T *)bias, N, C);
    return scale_columns_of(
            on, (T *)out, out_stride, (const T *)x, x_stride, gain,
            (const T *)bias, N, C);
}

/* Element-wise products of two rows, for column_sums. */
template <typename T, int W> struct row_products {
    const float *factors;
    const T *a, *b;
    int64_t a_stride, b_stride;
    __device__ inline void load(float (&v)[W], int64_t n, int column) const
    {
        float other[W];
        load_floats<W>(v, a + n * a_stride + column);
        load_floats<W>(other, b + n * b_stride + column);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] *= other[j];
    }
    __device__ inline float factor(int column) const
    {
        return factors[column];
    }
};

template <typename T>
static enum zd_status column_dots_any(
        struct stream *stream, float *out, const float *factor, const void *a,
        int64_t a_stride, const void *b, int64_t b_stride, int N, int C,
        bool accumulate)
{
    const int whole = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    bool is_packed = C % whole == 0 && a_stride % whole == 0 &&
                     b_stride % whole == 0 && are_aligned(a, b);
    if (C <= 0)
        return ZD_OK;
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        row_products<T, W> rows = {
                factor, (const T *)a, (const T *)b, a_stride, b_stride};
        return column_sums<W>(on, out, rows, N, C, accumulate);
    });
}

CUDA_DEFINE(row_gains);
CUDA_DEFINE(scale_columns);
CUDA_DEFINE(column_dots);
