/* convert_cuda.cu - values of one type to another on a GPU, and states at the
 * start of training. The bits of base/number/dtype.h, those of a NaN too. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "base/device/device_memory.h"
#include "optim/device_cuda.h"
}

/* Elements of a thread: 16 bytes of the narrower type. */
enum { WIDTH = 8, THREADS = 256, TILE = WIDTH * THREADS };
static const int64_t MOST_BLOCKS = 1 << 20;

/* --- one array to another ------------------------------------------------- */

template <typename From, typename To, int W>
static __global__ void convert_kernel(To *to, const From *from, int64_t count)
{
    int64_t packs = count / W;
    for (int64_t i = thread_of_grid(); i < packs; i += threads_of_grid()) {
        /* 16 bytes at a time: W elements of four bytes are two accesses */
        const int each_from =
                W < full_width<From>::value ? W : full_width<From>::value;
        const int each_to =
                W < full_width<To>::value ? W : full_width<To>::value;
        float values[W];
#pragma unroll
        for (int k = 0; k < W; k += each_from) {
            pack<From, each_from> x = load_pack<each_from>(from + i * W + k);
#pragma unroll
            for (int j = 0; j < each_from; j++)
                values[k + j] = to_float(x.at[j]);
        }
#pragma unroll
        for (int k = 0; k < W; k += each_to) {
            pack<To, each_to> x;
#pragma unroll
            for (int j = 0; j < each_to; j++)
                x.at[j] = from_float<To>(values[k + j]);
            store_pack<each_to>(to + i * W + k, x);
        }
    }
    int64_t rest = packs * W + thread_of_grid();
    if (rest < count)
        to[rest] = from_float<To>(to_float(from[rest]));
}

template <typename From, typename To>
static enum zd_status convert(void *to, const void *from, size_t count)
{
    bool is_wide = is_aligned(to) && is_aligned(from);
    int64_t n = (int64_t)count;
    cudaStream_t stream = device_cuda_stream(NULL);
    if (is_wide)
        ZD_LAUNCH(
                (convert_kernel<From, To, WIDTH>),
                grid_for(n, TILE, MOST_BLOCKS), THREADS, 0, stream, (To *)to,
                (const From *)from, n);
    else
        ZD_LAUNCH(
                (convert_kernel<From, To, 1>),
                grid_for(n, THREADS, MOST_BLOCKS), THREADS, 0, stream, (To *)to,
                (const From *)from, n);
    return ZD_OK;
}

template <typename From>
static enum zd_status convert_from(
        void *to, enum dtype to_type, const void *from, size_t count)
{
    switch (to_type) {
    case DTYPE_BF16:
        return convert<From, bf16>(to, from, count);
    case DTYPE_FP16:
        return convert<From, fp16>(to, from, count);
    default:
        return convert<From, float>(to, from, count);
    }
}

extern "C" enum zd_status optim_convert_cuda(
        void *to, enum dtype to_type, const void *from, enum dtype from_type,
        size_t count)
{
    if (!count)
        return ZD_OK;
    if (to_type == from_type)
        return device_move(to, from, count * dtype_bytes(to_type));
    switch (from_type) {
    case DTYPE_BF16:
        return convert_from<bf16>(to, to_type, from, count);
    case DTYPE_FP16:
        return convert_from<fp16>(to, to_type, from, count);
    default:
        return convert_from<float>(to, to_type, from, count);
    }
}

/* --- in place ------------------------------------------------------------- */

template <typename T>
static __global__ void round_kernel(float *values, int64_t count)
{
    for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid())
        values[i] = rounded_to<T>(values[i]);
}

extern "C" enum zd_status optim_round_cuda(
        float *values, enum dtype type, size_t count)
{
    int64_t n = (int64_t)count;
    unsigned grid = grid_for(n, THREADS, MOST_BLOCKS);
    cudaStream_t stream = device_cuda_stream(NULL);
    if (!count || type == DTYPE_FP32)
        return ZD_OK;
    if (type == DTYPE_BF16)
        ZD_LAUNCH(round_kernel<bf16>, grid, THREADS, 0, stream, values, n);
    else
        ZD_LAUNCH(round_kernel<fp16>, grid, THREADS, 0, stream, values, n);
    return ZD_OK;
}

/* The first values of an array, by one block, which has read them all before it
 * writes. */
template <typename T>
static __global__ void narrow_kernel(float *values, int count)
{
    T narrow[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        int i = k * THREADS + (int)threadIdx.x;
        narrow[k] = from_float<T>(i < count ? values[i] : 0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        int i = k * THREADS + (int)threadIdx.x;
        if (i < count)
            ((T *)values)[i] = narrow[k];
    }
}

/* Elements [begin, 2 begin) move to where those before them lay, which have
 * moved: each launch takes as many as all before it. */
template <typename T> static enum zd_status narrow(float *values, size_t count)
{
    size_t begin = count < TILE ? count : (size_t)TILE;
    ZD_LAUNCH(
            (narrow_kernel<T>), 1, THREADS, 0, device_cuda_stream(NULL), values,
            (int)begin);
    for (size_t n = begin; begin < count; begin += n, n = begin) {
        n = count - begin < n ? count - begin : n;
        ZD_TRY((convert<float, T>((T *)values + begin, values + begin, n)));
    }
    return ZD_OK;
}

extern "C" enum zd_status optim_narrow_cuda(
        float *values, enum dtype type, size_t count)
{
    if (!count || type == DTYPE_FP32)
        return ZD_OK;
    return type == DTYPE_BF16 ? narrow<bf16>(values, count)
                              : narrow<fp16>(values, count);
}

/* --- states --------------------------------------------------------------- */

extern "C" enum zd_status optim_lane_clear_cuda(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count)
{
    enum { CODE_OF_ZERO = 127 }; /* of m (optim/codec.h) */
    bool is_m = format == OPTIM_8BIT && lane == OPTIM_M;
    size_t bytes = optim_lane_bytes(format, count);
    size_t scale_bytes = optim_scale_count(format, count) * sizeof *scales;
    cudaStream_t stream = device_cuda_stream(NULL);
    if (bytes)
        ZD_CUDA(cudaMemsetAsync(
                values, is_m ? CODE_OF_ZERO : 0, bytes, stream));
    if (scale_bytes)
        ZD_CUDA(cudaMemsetAsync(scales, 0, scale_bytes, stream));
    return ZD_OK;
}
