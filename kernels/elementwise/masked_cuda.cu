/* masked_cuda.cu - a thread takes the four elements that share a call of
 * philox. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/elementwise/masked.h"
}

enum { MASKED_BLOCK = 256 };

template <typename T>
static __global__ void scale_rows_kernel(
        T *out, int64_t out_stride, const T *x, int N, int C, float scale,
        struct dropout dropout, bool add)
{
    int groups = (C + DROPOUT_WORDS - 1) / DROPOUT_WORDS;
    for (int64_t i = thread_of_grid(); i < (int64_t)N * groups;
         i += threads_of_grid()) {
        int n = (int)(i / groups), group = (int)(i % groups);
        uint32_t words[DROPOUT_WORDS] = {~0u, ~0u, ~0u, ~0u};
        if (dropout.threshold)
            dropout_words(&dropout, n, C, group, words);
#pragma unroll
        for (int j = 0; j < DROPOUT_WORDS; j++) {
            int c = group * DROPOUT_WORDS + j;
            if (c >= C)
                break;
            T *to = out + n * out_stride + c;
            float value = words[j] < dropout.threshold
                                  ? 0.0f
                                  : scale * to_float(x[(int64_t)n * C + c]);
            *to = from_float<T>(add ? to_float(*to) + value : value);
        }
    }
}

template <typename T>
static enum zd_status scale_rows_any(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int N, int C, float scale, const struct dropout *dropout, bool add)
{
    cudaStream_t on = device_cuda_stream(stream);
    int64_t work = (int64_t)N * ceil_div(C, DROPOUT_WORDS);
    if (work == 0)
        return ZD_OK;
    ZD_LAUNCH(
            (scale_rows_kernel<T>), grid_for(work, MASKED_BLOCK, GRID_MOST),
            MASKED_BLOCK, 0, on, (T *)out, out_stride, (const T *)x, N, C,
            scale, *dropout, add);
    return ZD_OK;
}

CUDA_DEFINE(scale_rows);
