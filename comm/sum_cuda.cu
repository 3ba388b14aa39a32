/* UNTESTED on a GPU. */
#include "kernels/cuda.cuh"

extern "C" {
#include "comm/sum_cuda.h"
}

static const size_t GRID_MAX = 1024;
enum { BLOCK = 256 };

static unsigned grid_of(size_t count)
{
    size_t blocks = (count + BLOCK - 1) / BLOCK;
    return (unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX);
}

__global__ void add_kernel(float *to, const float *from, size_t count)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step)
        to[i] = from[i] + to[i];
}

extern "C" enum zd_status comm_add_cuda(
        struct stream *stream, float *to, const float *from, size_t count)
{
    if (count > 0)
        ZD_LAUNCH(
                add_kernel, grid_of(count), BLOCK, 0,
                device_cuda_stream(stream), to, from, count);
    return ZD_OK;
}
