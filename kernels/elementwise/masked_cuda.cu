/* masked_cuda.cu - a thread computes the four elements of one call of philox.
 */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/elementwise/masked.h"
}

enum { MASKED_BLOCK = 256 };

/* W: elements per access, DROPOUT_WORDS or 1. */
template <typename T, int W>
static __global__ void scale_rows_kernel(
        T *out, int64_t out_stride, const T *x, int N, int C, float scale,
        struct dropout dropout, bool add)
{
    unsigned groups = (unsigned)(C + DROPOUT_WORDS - 1) / DROPOUT_WORDS;
    for (int64_t i = thread_of_grid(); i < (int64_t)N * groups;
         i += threads_of_grid()) {
        int n = (int)((unsigned)i / groups);
        int group = (int)((unsigned)i % groups);
        uint32_t words[DROPOUT_WORDS] = {~0u, ~0u, ~0u, ~0u};
        if (dropout.threshold)
            dropout_words(&dropout, n, C, group, words);
#pragma unroll
        for (int first = 0; first < DROPOUT_WORDS; first += W) {
            int c = group * DROPOUT_WORDS + first;
            float v[W], was[W];
            if (c >= C)
                break;
            T *to = out + n * out_stride + c;
            load_floats<W>(v, x + (int64_t)n * C + c);
            if (add)
                load_floats<W>(was, to);
#pragma unroll
            for (int j = 0; j < W; j++) {
                v[j] = words[first + j] < dropout.threshold ? 0.0f
                                                            : scale * v[j];
                if (add)
                    v[j] += was[j];
            }
            store_floats<W>(to, v);
        }
    }
}

template <typename T>
static enum zd_status scale_rows_any(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int N, int C, float scale, const struct dropout *dropout, bool add)
{
    const int W = DROPOUT_WORDS;
    cudaStream_t on = device_cuda_stream(stream);
    int64_t work = (int64_t)N * ceil_div(C, W);
    unsigned grid = grid_for(work, MASKED_BLOCK, GRID_MOST);
    if (work == 0)
        return ZD_OK;
    assert(work <= UINT32_MAX);
    if (C % W == 0 && out_stride % W == 0 && are_aligned(out, x))
        ZD_LAUNCH(
                (scale_rows_kernel<T, W>), grid, MASKED_BLOCK, 0, on, (T *)out,
                out_stride, (const T *)x, N, C, scale, *dropout, add);
    else
        ZD_LAUNCH(
                (scale_rows_kernel<T, 1>), grid, MASKED_BLOCK, 0, on, (T *)out,
                out_stride, (const T *)x, N, C, scale, *dropout, add);
    return ZD_OK;
}

CUDA_DEFINE(scale_rows);
