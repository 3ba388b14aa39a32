#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/elementwise/elementwise.h"
}

/* --- add ------------------------------------------------------------------ */

enum { ADD_BLOCK = 256 };

template <typename T, int W>
static __global__ void add_kernel(T *out, const T *a, const T *b, int64_t count)
{
    add_arrays<W>(out, a, b, count);
}

template <typename T>
static enum zd_status add_any(
        struct stream *stream, void *out, const void *a, const void *b,
        size_t count)
{
    cudaStream_t on = device_cuda_stream(stream);
    int64_t n = (int64_t)count;
    bool is_packed = are_aligned(out, a, b);
    if (count == 0)
        return ZD_OK;
    ZD_LAUNCH_PACKED(
            add_kernel, T, is_packed,
            grid_of_packs<T>(n, is_packed, ADD_BLOCK, GRID_MOST), ADD_BLOCK, on,
            (T *)out, (const T *)a, (const T *)b, n);
    return ZD_OK;
}

/* --- reduce_rows ---------------------------------------------------------- */

template <typename T, int W> struct dense_rows {
    const T *x;
    int C;
    __device__ inline void load(float (&v)[W], int64_t n, int column) const
    {
        load_floats<W>(v, x + n * C + column);
    }
    __device__ inline float factor(int column) const
    {
        return 1.0f;
    }
};

template <typename T>
static enum zd_status reduce_rows_any(
        struct stream *stream, float *out, const void *x, int N, int C,
        bool accumulate)
{
    cudaStream_t on = device_cuda_stream(stream);
    if (C <= 0)
        return ZD_OK;
    bool is_packed = C % full_width<T>::value == 0 && is_aligned(x);
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        return column_sums<W>(
                on, out, dense_rows<T, W>{(const T *)x, C}, N, C, accumulate);
    });
}

CUDA_DEFINE(add);
CUDA_DEFINE(reduce_rows);
