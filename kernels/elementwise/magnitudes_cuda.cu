#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/elementwise/magnitudes.h"
}

enum { BLOCK = 256, BLOCK_WARPS = BLOCK / WARP };

/* --- gains ---------------------------------------------------------------- */

/* What B adds to the square of row o's norm, of rows k, k + step .. of A. */
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

/* A warp to a row. */
template <typename T>
static __global__ void row_gains_kernel(
        float *gain, float *inverse, struct adapted_rows rows)
{
    int lane = lane_of_warp();
    int64_t o = (int64_t)blockIdx.x * BLOCK_WARPS + warp_of_block();
    bool is_row = o < rows.out;
    const T *w = (const T *)rows.weight + (is_row ? o : 0) * rows.in;
    float sum = 0.0f;
    for (int i = lane; i < rows.in; i += WARP) {
        float v = to_float(w[i]);
        sum += v * v;
    }
    sum = warp_sum(sum);
    float added = warp_sum(added_squares<T>(rows, is_row ? o : 0, lane, WARP));
    if (is_row && lane == 0)
        put_gain<T>(rows, o, sum, added, gain, inverse);
}

/* Of a Conv1D: a thread to a column. */
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
    if (rows->conv1d)
        ZD_LAUNCH(
                (column_gains_kernel<T>), (unsigned)ceil_div(rows->out, BLOCK),
                BLOCK, 0, on, gain, inverse, *rows);
    else
        ZD_LAUNCH(
                (row_gains_kernel<T>),
                (unsigned)ceil_div(rows->out, BLOCK_WARPS), BLOCK, 0, on, gain,
                inverse, *rows);
    return ZD_OK;
}

/* --- columns -------------------------------------------------------------- */

/* V: of the values; T: of the bias. */
template <typename T, typename V>
static __global__ void scale_columns_kernel(
        V *out, int64_t out_stride, const V *x, int64_t x_stride,
        const float *gain, const T *bias, int N, int C)
{
    for (int64_t i = thread_of_grid(); i < (int64_t)N * C;
         i += threads_of_grid()) {
        int64_t n = i / C;
        int c = (int)(i % C);
        V value = x[n * x_stride + c];
        float b = bias ? to_float(bias[c]) : 0.0f;
        if (gain)
            value = from_float<V>(b + gain[c] * (to_float(value) - b));
        out[n * out_stride + c] = value;
    }
}

template <typename T>
static enum zd_status scale_columns_any(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int64_t x_stride, enum dtype type, const float *gain, const void *bias,
        int N, int C)
{
    cudaStream_t on = device_cuda_stream(stream);
    int64_t work = (int64_t)N * C;
    unsigned grid = grid_for(work, BLOCK, GRID_MOST);
    if (work == 0)
        return ZD_OK;
    if (type == DTYPE_FP32)
        ZD_LAUNCH(
                (scale_columns_kernel<T, float>), grid, BLOCK, 0, on,
                (float *)out, out_stride, (const float *)x, x_stride, gain,
                (const T *)bias, N, C);
    else
        ZD_LAUNCH(
                (scale_columns_kernel<T, T>), grid, BLOCK, 0, on, (T *)out,
                out_stride, (const T *)x, x_stride, gain, (const T *)bias, N,
                C);
    return ZD_OK;
}

/* Products of two rows, element by element. */
template <typename T> struct row_products {
    const float *factors;
    const T *a, *b;
    int64_t a_stride, b_stride;
    __device__ inline void load(float (&v)[1], int64_t n, int column) const
    {
        v[0] = to_float(a[n * a_stride + column]) *
               to_float(b[n * b_stride + column]);
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
    row_products<T> rows = {
            factor, (const T *)a, (const T *)b, a_stride, b_stride};
    if (C <= 0)
        return ZD_OK;
    return column_sums<1>(
            device_cuda_stream(stream), out, rows, N, C, accumulate);
}

CUDA_DEFINE(row_gains);
CUDA_DEFINE(scale_columns);
CUDA_DEFINE(column_dots);
