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

/* A block sums a piece of the rows of a tile of columns: a warp reads 32 packs
 * of a row, the warps take every eighth row. */
enum {
    REDUCE_BLOCK = 256,
    REDUCE_WARPS = REDUCE_BLOCK / WARP,
    REDUCE_MIN_ROWS = 32, /* of a piece: four to a warp */
};

template <typename T, int W>
static __global__ void reduce_rows_kernel(
        float *partials, const T *x, int N, int C, int pieces)
{
    __shared__ float sums[REDUCE_WARPS][WARP * W];
    int lane = lane_of_warp(), warp = warp_of_block();
    int tile = (int)blockIdx.x / pieces, piece = (int)blockIdx.x % pieces;
    int64_t rows = (N + pieces - 1) / pieces;
    int64_t first = piece * rows;
    int64_t end = first + rows < N ? first + rows : N;
    int column = (tile * WARP + lane) * W;
    float sum[W] = {0};
    if (column < C)
        for (int64_t n = first + warp; n < end; n += REDUCE_WARPS) {
            float v[W];
            load_floats<W>(v, x + n * C + column);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
#pragma unroll
    for (int j = 0; j < W; j++)
        sums[warp][lane * W + j] = sum[j];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < WARP * W; c += REDUCE_BLOCK) {
        int at = tile * WARP * W + c;
        float total = 0.0f;
        for (int w = 0; w < REDUCE_WARPS; w++)
            total += sums[w][c];
        if (at < C)
            partials[(int64_t)piece * C + at] = total;
    }
}

/* Pieces for tiles of so many columns. */
static int reduce_pieces(int N, int C, int columns)
{
    int64_t most = ceil_div(N, REDUCE_MIN_ROWS);
    int64_t pieces = REDUCE_TILES / ceil_div(C, columns);
    pieces = pieces < most ? pieces : most;
    return (int)(pieces < 1 ? 1 : pieces);
}

template <typename T, int W>
static enum zd_status reduce_rows_packs(
        cudaStream_t on, float *out, const T *x, int N, int C, bool accumulate)
{
    int pieces = reduce_pieces(N, C, WARP * W);
    unsigned tiles = (unsigned)ceil_div(C, WARP * W);
    float *partials =
            (float *)cuda_workspace((size_t)pieces * C * sizeof(float));
    assert(partials);
    ZD_LAUNCH(
            (reduce_rows_kernel<T, W>), tiles * (unsigned)pieces, REDUCE_BLOCK,
            0, on, partials, x, N, C, pieces);
    return sum_pieces(on, out, NULL, partials, pieces, C, C, accumulate);
}

template <typename T>
static enum zd_status reduce_rows_any(
        struct stream *stream, float *out, const void *x, int N, int C,
        bool accumulate)
{
    const int W = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    if (C <= 0)
        return ZD_OK;
    if (C % W == 0 && is_aligned(x))
        return reduce_rows_packs<T, W>(on, out, (const T *)x, N, C, accumulate);
    return reduce_rows_packs<T, 1>(on, out, (const T *)x, N, C, accumulate);
}

#define DEFINE(type, T)                                                        \
    extern "C" enum zd_status add_cuda_##type(                                 \
            struct stream *stream, void *out, const void *a, const void *b,    \
            size_t count)                                                      \
    {                                                                          \
        return add_any<T>(stream, out, a, b, count);                           \
    }                                                                          \
    extern "C" enum zd_status reduce_rows_cuda_##type(                         \
            struct stream *stream, float *out, const void *x, int N, int C,    \
            bool accumulate)                                                   \
    {                                                                          \
        return reduce_rows_any<T>(stream, out, x, N, C, accumulate);           \
    }
DEFINE(fp32, float)
DEFINE(bf16, bf16)
DEFINE(fp16, fp16)
#undef DEFINE
