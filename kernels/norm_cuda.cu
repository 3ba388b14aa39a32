/* norm_cuda.cu - norms on a GPU, forward.
 *
 * A row is read once and kept in registers (norm_rows.cuh): the mean, the
 * variance about it and the result come of one pass over memory. With `b` the
 * row is a + b, rounded as it is stored, which saves the pass that would read
 * the sum again. */
#include "kernels/norm_rows.cuh"

extern "C" {
#include "kernels/cuda_table.h"
}

struct norm_forward {
    void *sum, *out;
    float *mean, *rstd; /* mean: layernorm only */
    const void *a, *b;  /* b may be NULL: the row is a, and sum is not set */
    const void *weight, *bias;
    float eps;
    int N, C, lanes;
    int heads; /* of a token; 0: rows lie densely (norm_rows.cuh) */
    int64_t out_stride, x_stride;
};

/* What a block does that is the block'th of those for p. */
template <typename T, int W, int PACKS, bool CENTRED>
static __device__ inline void norm_forward_rows(
        const struct norm_forward &p, unsigned block)
{
    __shared__ float shared[2][NORM_WARPS];
    int lane = (int)threadIdx.x % p.lanes, team = (int)threadIdx.x / p.lanes;
    int64_t n = (int64_t)block * (NORM_BLOCK / p.lanes) + team;
    bool is_row = n < p.N;
    const T *a = (const T *)p.a + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = (const T *)p.b;
    T *out = (T *)p.out + norm_row(n, p.C, p.heads, p.out_stride);
    float x[PACKS][W], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * p.lanes + lane) * W;
        bool is_in = is_row && c < p.C;
#pragma unroll
        for (int j = 0; j < W; j++)
            x[k][j] = 0.0f;
        if (is_in)
            load_floats<W>(x[k], a + c);
        if (is_in && b) {
            float y[W];
            load_floats<W>(y, b + n * p.C + c);
#pragma unroll
            for (int j = 0; j < W; j++)
                y[j] += x[k][j];
            pack<T, W> stored = packed<T, W>(y);
            store_pack<W>((T *)p.sum + n * p.C + c, stored);
            unpack(x[k], stored);
        }
#pragma unroll
        for (int j = 0; j < W; j++) {
            total += x[k][j];
            if (!CENTRED)
                squares += x[k][j] * x[k][j];
        }
    }
    team_sum(&total, &squares, p.lanes, shared);
    float mean = 0.0f;
    if (CENTRED) {
        mean = total / (float)p.C;
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                float d = x[k][j] - mean;
                if ((k * p.lanes + lane) * W < p.C)
                    squares += d * d;
            }
        team_sum(&squares, &total, p.lanes, shared);
    }
    float rstd = 1.0f / sqrtf(squares / (float)p.C + p.eps);
    if (!is_row)
        return;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * p.lanes + lane) * W;
        if (c >= p.C)
            break;
        float w[W], shift[W];
        load_floats<W>(w, (const T *)p.weight + c);
        if (CENTRED)
            load_floats<W>(shift, (const T *)p.bias + c);
#pragma unroll
        for (int j = 0; j < W; j++)
            if (CENTRED)
                x[k][j] = (x[k][j] - mean) * rstd * w[j] + shift[j];
            else
                x[k][j] = rounded_to<T>(x[k][j] * rstd) * w[j];
        store_floats<W>(out + c, x[k]);
    }
    if (lane == 0) {
        if (CENTRED)
            p.mean[n] = mean;
        p.rstd[n] = rstd;
    }
}

template <typename T, int W, int PACKS, bool CENTRED>
static __global__ void norm_forward_kernel(struct norm_forward p)
{
    norm_forward_rows<T, W, PACKS, CENTRED>(p, blockIdx.x);
}

/* --- rows too long for registers: a block to a row, several passes ----------
 */

template <typename T, bool CENTRED>
static __global__ void norm_forward_long_kernel(struct norm_forward p)
{
    __shared__ float shared[MAX_WARPS];
    int64_t n = blockIdx.x;
    const T *a = (const T *)p.a + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = p.b ? (const T *)p.b + n * p.C : NULL;
    T *sum = p.b ? (T *)p.sum + n * p.C : NULL;
    float total = 0.0f, squares = 0.0f, mean = 0.0f;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float x = to_float(a[c]);
        if (b) {
            T stored = from_float<T>(x + to_float(b[c]));
            sum[c] = stored;
            x = to_float(stored);
        }
        total += x;
    }
    /* a thread reads again what it has written itself */
    const T *row = b ? sum : a;
    if (CENTRED)
        mean = block_sum(total, shared) / (float)p.C;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float d = to_float(row[c]) - mean;
        squares += d * d;
    }
    squares = block_sum(squares, shared);
    float rstd = 1.0f / sqrtf(squares / (float)p.C + p.eps);
    T *out = (T *)p.out + norm_row(n, p.C, p.heads, p.out_stride);
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float x = (to_float(row[c]) - mean) * rstd;
        float w = to_float(((const T *)p.weight)[c]);
        out[c] = from_float<T>(
                CENTRED ? x * w + to_float(((const T *)p.bias)[c])
                        : rounded_to<T>(x) * w);
    }
    if (threadIdx.x == 0) {
        if (CENTRED)
            p.mean[n] = mean;
        p.rstd[n] = rstd;
    }
}

/* --- launches ----------------------------------------------------------------
 */

template <typename T, int W, int PACKS, bool CENTRED>
static enum zd_status launch(cudaStream_t on, struct norm_forward p)
{
    int rows = NORM_BLOCK / p.lanes;
    ZD_LAUNCH(
            (norm_forward_kernel<T, W, PACKS, CENTRED>),
            (unsigned)ceil_div(p.N, rows), NORM_BLOCK, 0, on, p);
    return ZD_OK;
}

template <typename T, bool CENTRED>
static enum zd_status norm_forward_any(
        struct stream *stream, struct norm_forward p)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    cudaStream_t on = device_cuda_stream(stream);
    if (p.N <= 0)
        return ZD_OK;
    bool is_wide = p.C % W == 0 && p.x_stride % W == 0 &&
                   p.out_stride % W == 0 && is_aligned(p.sum) &&
                   is_aligned(p.out) && is_aligned(p.a) && is_aligned(p.b) &&
                   is_aligned(p.weight) && is_aligned(p.bias);
    p.lanes = norm_lanes(p.C, is_wide ? W : 1);
    if (p.lanes == 0) {
        ZD_LAUNCH(
                (norm_forward_long_kernel<T, CENTRED>), (unsigned)p.N,
                NORM_BLOCK, 0, on, p);
        return ZD_OK;
    }
    if (!is_wide)
        return launch<T, 1, NORM_SINGLES, CENTRED>(on, p);
    int packs = norm_packs(p.C, W, p.lanes);
    if (packs <= PACKS / 4)
        return launch<T, W, PACKS / 4, CENTRED>(on, p);
    if (packs <= PACKS / 2)
        return launch<T, W, PACKS / 2, CENTRED>(on, p);
    if (packs <= PACKS / 4 * 3)
        return launch<T, W, PACKS / 4 * 3, CENTRED>(on, p);
    return launch<T, W, PACKS, CENTRED>(on, p);
}

#define DEFINE(type, T)                                                        \
    extern "C" enum zd_status layernorm_forward_cuda_##type(                   \
            struct stream *stream, void *out, float *mean, float *rstd,        \
            const void *x, const void *weight, const void *bias, float eps,    \
            int N, int C)                                                      \
    {                                                                          \
        struct norm_forward p = {NULL, out, mean, rstd, x, NULL, weight, bias, \
                                 eps,  N,   C,    0,    0, 0,    0};           \
        return norm_forward_any<T, true>(stream, p);                           \
    }                                                                          \
    extern "C" enum zd_status add_layernorm_forward_cuda_##type(               \
            struct stream *stream, void *sum, void *out, float *mean,          \
            float *rstd, const void *a, const void *b, const void *weight,     \
            const void *bias, float eps, int N, int C)                         \
    {                                                                          \
        struct norm_forward p = {sum, out, mean, rstd, a, b, weight, bias,     \
                                 eps, N,   C,    0,    0, 0, 0};               \
        return norm_forward_any<T, true>(stream, p);                           \
    }                                                                          \
    extern "C" enum zd_status rmsnorm_forward_cuda_##type(                     \
            struct stream *stream, void *out, float *rstd, const void *x,      \
            const void *weight, float eps, int N, int C)                       \
    {                                                                          \
        struct norm_forward p = {NULL, out, NULL, rstd, x, NULL, weight, NULL, \
                                 eps,  N,   C,    0,    0, 0,    0};           \
        return norm_forward_any<T, false>(stream, p);                          \
    }                                                                          \
    extern "C" enum zd_status head_norm_forward_cuda_##type(                   \
            struct stream *stream, void *out, float *rstd, const void *x,      \
            const void *weight, float eps, int N, int H, int D,                \
            int64_t out_stride, int64_t x_stride)                              \
    {                                                                          \
        struct norm_forward p = {NULL, out,    NULL, rstd,       x,            \
                                 NULL, weight, NULL, eps,        N * H,        \
                                 D,    0,      H,    out_stride, x_stride};    \
        return norm_forward_any<T, false>(stream, p);                          \
    }                                                                          \
    extern "C" enum zd_status add_rmsnorm_forward_cuda_##type(                 \
            struct stream *stream, void *sum, void *out, float *rstd,          \
            const void *a, const void *b, const void *weight, float eps,       \
            int N, int C)                                                      \
    {                                                                          \
        struct norm_forward p = {sum, out, NULL, rstd, a, b, weight, NULL,     \
                                 eps, N,   C,    0,    0, 0, 0};               \
        return norm_forward_any<T, false>(stream, p);                          \
    }
DEFINE(fp32, float)
DEFINE(bf16, bf16)
DEFINE(fp16, fp16)
#undef DEFINE
