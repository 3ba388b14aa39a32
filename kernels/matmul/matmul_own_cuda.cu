/* matmul_own_cuda.cu - our own matmul for any shape, alignment and
 * transposition, for what cuBLASLt refuses. Simple and deterministic, not fast.
 *
 * A block computes a tile of 64 x 64 elements; each of its 256 threads holds 4
 * x 4 of them in registers and reads slices of 16 along K from shared memory.
 * Sums run along K in order, one fused multiply-add after the other. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/matmul/matmul_cuda.h"

enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4 };

struct shape {
    int M, N, K;
    bool accumulate;
    int stride_out;
    float scale;
};

/* An operand of `count` rows along K, for either storage order. */
template <typename T> struct elements {
    const T *from;
    int count, stride;
    bool along_k;

    __device__ float at(int row, int k) const
    {
        return to_float(
                from[along_k ? (int64_t)row * stride + k
                             : (int64_t)k * stride + row]);
    }
};

/* An operand in FP8. */
struct codes {
    const uint8_t *from;
    const float *scales;
    int count, stride;
    enum dtype type;
    enum scale_layout layout;
    bool along_k;

    __device__ float at(int row, int k) const
    {
        return fp8_to_float(from[(int64_t)row * stride + k], type) *
               scales[fp8_scale_at(layout, count, stride, row, k)];
    }
};

/* Slices of a and b with K as the outer dimension, so that a thread reads four
 * neighbors. */
struct slices {
    float a[DEPTH][TILE + 4];
    float b[DEPTH][TILE + 4];
};

/* Neighboring threads read neighbors in memory, in either storage order. */
template <typename Operand>
__device__ void load_slice(
        float (*slice)[TILE + 4], const Operand &x, int first, int k0, int K)
{
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        int row = x.along_k ? i / DEPTH : i % TILE;
        int depth = x.along_k ? i % DEPTH : i / TILE;
        int r = first + row, k = k0 + depth;
        slice[depth][row] = r < x.count && k < K ? x.at(r, k) : 0.0f;
    }
}

__device__ inline void multiply_slices(
        float (&sums)[EACH][EACH], const struct slices *s, int row, int column)
{
    for (int k = 0; k < DEPTH; k++) {
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                sums[i][j] =
                        fmaf(s->a[k][row + i], s->b[k][column + j], sums[i][j]);
    }
}

template <typename Operand, typename T, typename Out>
__global__ void __launch_bounds__(THREADS)
        product(Out *out, const Operand a, const Operand b, const T *bias,
                struct shape shape)
{
    __shared__ struct slices s;
    int row0 = (int)blockIdx.y * TILE, column0 = (int)blockIdx.x * TILE;
    int row = (int)threadIdx.x / (TILE / EACH) * EACH;
    int column = (int)threadIdx.x % (TILE / EACH) * EACH;
    float sums[EACH][EACH] = {{0}};
    for (int k0 = 0; k0 < shape.K; k0 += DEPTH) {
        load_slice(s.a, a, row0, k0, shape.K);
        load_slice(s.b, b, column0, k0, shape.K);
        __syncthreads();
        multiply_slices(sums, &s, row, column);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int r = row0 + row + i, c = column0 + column + j;
            if (r >= shape.M || c >= shape.N)
                continue;
            int64_t at = (int64_t)r * shape.stride_out + c;
            float value = shape.scale * sums[i][j];
            if (bias)
                value += to_float(bias[c]);
            if (shape.accumulate)
                value += to_float(out[at]);
            out[at] = from_float<Out>(value);
        }
}

/* Calls `run<T, Out>(...)` for the types of operands and result; for codes T is
 * the bias's type. */
#define BY_TYPE(m, run, ...)                                                   \
    ((m)->a.type == DTYPE_BF16 || matmul_is_fp8(m)                             \
             ? (m)->out.type == DTYPE_FP32 ? run<bf16, float>(__VA_ARGS__)     \
                                           : run<bf16, bf16>(__VA_ARGS__)      \
     : (m)->a.type == DTYPE_FP16 ? (m)->out.type == DTYPE_FP32                 \
                                           ? run<fp16, float>(__VA_ARGS__)     \
                                           : run<fp16, fp16>(__VA_ARGS__)      \
                                 : run<float, float>(__VA_ARGS__))

template <typename T, typename Out, typename Operand>
static enum zd_status queue(
        cudaStream_t stream, const struct matmul *m, const Operand &a,
        const Operand &b)
{
    struct shape shape = {
            m->M,           m->N, m->K, m->accumulate, matmul_stride_out(m),
            matmul_scale(m)};
    /* gridDim.y <= 65535 allows 4 million rows */
    dim3 grid(
            (unsigned)ceil_div(shape.N, TILE),
            (unsigned)ceil_div(shape.M, TILE));
    assert(grid.y <= 65535);
    ZD_LAUNCH(
            (product<Operand, T, Out>), grid, THREADS, 0, stream,
            (Out *)m->out.data, a, b, (const T *)m->bias, shape);
    return ZD_OK;
}

template <typename T, typename Out>
static enum zd_status queue_product(cudaStream_t stream, const struct matmul *m)
{
    struct elements<T> a = {
        (const T *)m->a.data, m->M, matmul_stride_a(m), !m->a.transposed
    };
    struct elements<T> b = {
        (const T *)m->b.data, m->N, matmul_stride_b(m), m->b.transposed
    };
    return queue<T, Out>(stream, m, a, b);
}

static struct codes codes_of(const struct matmul_operand *x, int rows, int K)
{
    struct codes codes = {(const uint8_t *)x->data,
                          x->scales,
                          rows,
                          K,
                          x->type,
                          x->layout,
                          true};
    return codes;
}

static enum zd_status queue_codes(cudaStream_t stream, const struct matmul *m)
{
    struct codes a = codes_of(&m->a, m->M, m->K);
    struct codes b = codes_of(&m->b, m->N, m->K);
    return m->out.type == DTYPE_FP32 ? queue<bf16, float>(stream, m, a, b)
                                     : queue<bf16, bf16>(stream, m, a, b);
}

extern "C" enum zd_status matmul_own_cuda(
        struct stream *stream, const struct matmul *m)
{
    if (matmul_is_fp8(m))
        return queue_codes(device_cuda_stream(stream), m);
    assert(m->out.type == DTYPE_FP32 || m->out.type == m->a.type);
    return BY_TYPE(m, queue_product, device_cuda_stream(stream), m);
}

template <typename T, typename Out>
__global__ void add_bias(Out *out, const T *bias, int64_t count, int N)
{
    for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid())
        out[i] = from_float<Out>(to_float(out[i]) + to_float(bias[i % N]));
}

template <typename T, typename Out>
static enum zd_status queue_bias(cudaStream_t stream, const struct matmul *m)
{
    int64_t count = (int64_t)m->M * m->N;
    ZD_LAUNCH(
            (add_bias<T, Out>), grid_for(count, THREADS, GRID_MOST), THREADS, 0,
            stream, (Out *)m->out.data, (const T *)m->bias, count, m->N);
    return ZD_OK;
}

extern "C" enum zd_status matmul_add_bias_cuda(
        struct stream *stream, const struct matmul *m)
{
    return BY_TYPE(m, queue_bias, device_cuda_stream(stream), m);
}

__global__ void add_sums(float *sums, const float *more, int count)
{
    int64_t i = thread_of_grid();
    if (i < count)
        sums[i] += more[i];
}

extern "C" enum zd_status matmul_add_sums_cuda(
        struct stream *stream, float *sums, const float *more, int count)
{
    ZD_LAUNCH(
            add_sums, grid_for(count, THREADS, GRID_MOST), THREADS, 0,
            device_cuda_stream(stream), sums, more, count);
    return ZD_OK;
}
