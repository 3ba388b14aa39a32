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

template <typename T>
__global__ void sum_kernel(
        T *to, int accumulate, const T *parts, size_t stride, int part_count,
        int node_size, size_t count)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step) {
        float sum = 0;
        for (int first = 0; first < part_count; first += node_size) {
            float node = to_float(parts[(size_t)first * stride + i]);
            for (int p = first + 1; p < first + node_size; p++)
                node += to_float(parts[(size_t)p * stride + i]);
            if (node_size < part_count)
                node = to_float(from_float<T>(node));
            sum = first == 0 ? node : sum + node;
        }
        if (accumulate)
            sum += to_float(to[i]);
        to[i] = from_float<T>(sum);
    }
}

template <typename T>
static enum zd_status sum_typed(
        cudaStream_t stream, void *to, bool accumulate, const void *parts,
        size_t stride, int part_count, int node_size, size_t count)
{
    ZD_LAUNCH(
            (sum_kernel<T>), grid_of(count), BLOCK, 0, stream, (T *)to,
            (int)accumulate, (const T *)parts, stride, part_count, node_size,
            count);
    return ZD_OK;
}

extern "C" enum zd_status comm_sum_cuda(
        struct stream *stream, void *to, enum dtype type, bool accumulate,
        const void *parts, size_t stride, int part_count, int node_size,
        size_t count)
{
    cudaStream_t cuda = device_cuda_stream(stream);
    if (count == 0)
        return ZD_OK;
    if (type == DTYPE_BF16)
        return sum_typed<bf16>(
                cuda, to, accumulate, parts, stride, part_count, node_size,
                count);
    if (type == DTYPE_FP16)
        return sum_typed<fp16>(
                cuda, to, accumulate, parts, stride, part_count, node_size,
                count);
    return sum_typed<float>(
            cuda, to, accumulate, parts, stride, part_count, node_size, count);
}
