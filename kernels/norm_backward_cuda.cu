/* norm_backward_cuda.cu - norms on a GPU, backward.
 *
 * A grid of a fixed number of blocks goes over the rows (norm_rows.cuh). Each
 * thread adds up what its columns give to dweight and dbias in registers; the
 * teams of a block join their sums in shared memory, in the order of the teams,
 * and the block leaves one row of partial sums in the workspace. A second
 * kernel adds those (column_sums.cuh). So x and dout are read once, and the
 * order of every sum follows from N and C. */
#include "kernels/column_sums.cuh"
#include "kernels/norm_rows.cuh"

extern "C" {
#include "kernels/cuda_table.h"
#include "kernels/cuda_workspace.h"
}

struct norm_backward {
    void *dx;
    float *partials; /* (blocks, sums): dweight, then dbias if CENTRED */
    const void *dout, *dresidual, *x, *weight;
    const float *mean, *rstd; /* mean: layernorm only */
    int N, C, lanes;
    bool is_frozen; /* no partials */
    int heads;      /* of a token; 0: rows lie densely (norm_rows.cuh) */
    int64_t out_stride, x_stride; /* of dout; of x and dx */
};

/* Adds the sums of the block's teams and writes them to its row of `partials`.
 * Teams within a warp first, by shuffles; then one group after the other. */
template <int W, int PACKS>
static __device__ inline void join_sums(
        float *partials, float (&sum)[PACKS][W], float *shared, int C,
        int lanes)
{
    int lane = (int)threadIdx.x % lanes;
    int together = lanes < WARP ? WARP : lanes; /* threads of a group */
    int group = (int)threadIdx.x / together, groups = NORM_BLOCK / together;
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            for (int offset = lanes; offset < WARP; offset *= 2)
                sum[k][j] += __shfl_xor_sync(ALL_LANES, sum[k][j], offset);
    bool is_writer = (int)threadIdx.x % together < lanes;
    for (int g = 0; g < groups; g++) {
        bool is_last = g == groups - 1;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * lanes + lane) * W;
            if (g != group || !is_writer || c >= C)
                continue;
            if (g > 0) {
                float before[W];
                read_fp32<W>(before, shared + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                    sum[k][j] += before[j];
            }
            write_fp32<W>((is_last ? partials : shared) + c, sum[k]);
        }
        __syncthreads();
    }
}

/* What a block does that is the block'th of `blocks` for p. */
template <typename T, int W, int PACKS, bool CENTRED>
static __device__ inline void norm_backward_rows(
        const struct norm_backward &p, unsigned block, unsigned blocks)
{
    __shared__ float shared[2][NORM_WARPS];
    ZD_SHARED(float, joined);
    int lane = (int)threadIdx.x % p.lanes, team = (int)threadIdx.x / p.lanes;
    int teams = NORM_BLOCK / p.lanes;
    float dweight[PACKS][W], dbias[PACKS][W];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            dweight[k][j] = dbias[k][j] = 0.0f;

    for (int64_t first = (int64_t)block * teams; first < p.N;
         first += (int64_t)blocks * teams) {
        int64_t n = first + team;
        int64_t at = norm_row(n, p.C, p.heads, p.x_stride);
        int64_t out_at = norm_row(n, p.C, p.heads, p.out_stride);
        bool is_row = n < p.N;
        float mean = CENTRED && is_row ? p.mean[n] : 0.0f;
        float rstd = is_row ? p.rstd[n] : 0.0f;
        pack<T, W> x[PACKS], dout[PACKS];
        float sum_g = 0.0f, sum_gx = 0.0f;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * p.lanes + lane) * W;
            x[k] = dout[k] = zero_pack<T, W>();
            if (!is_row || c >= p.C)
                continue;
            x[k] = load_pack<W>((const T *)p.x + at + c);
            dout[k] = load_pack<W>((const T *)p.dout + out_at + c);
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * p.lanes + lane) * W;
            if (!is_row || c >= p.C)
                continue;
            float w[W];
            load_floats<W>(w, (const T *)p.weight + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float d = to_float(dout[k].at[j]), g = d * w[j];
                float xhat = (to_float(x[k].at[j]) - mean) * rstd;
                sum_g += g;
                sum_gx += g * xhat;
                dweight[k][j] += d * xhat;
                if (CENTRED)
                    dbias[k][j] += d;
            }
        }
        team_sum(&sum_gx, &sum_g, p.lanes, shared);
        float mean_g = CENTRED ? sum_g / (float)p.C : 0.0f;
        float mean_gx = sum_gx / (float)p.C;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * p.lanes + lane) * W;
            if (!is_row || c >= p.C)
                continue;
            float w[W], d[W], residual[W];
            load_floats<W>(w, (const T *)p.weight + c);
            if (p.dresidual)
                load_floats<W>(residual, (const T *)p.dresidual + n * p.C + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float g = to_float(dout[k].at[j]) * w[j];
                float xhat = (to_float(x[k].at[j]) - mean) * rstd;
                d[j] = rstd * (g - mean_g - xhat * mean_gx);
                if (p.dresidual)
                    d[j] += residual[j];
            }
            store_floats<W>((T *)p.dx + at + c, d);
        }
    }

    if (p.is_frozen)
        return;
    int sums = CENTRED ? 2 * p.C : p.C;
    float *partials = p.partials + (int64_t)block * sums;
    join_sums<W, PACKS>(partials, dweight, joined, p.C, p.lanes);
    if (CENTRED)
        join_sums<W, PACKS>(partials + p.C, dbias, joined, p.C, p.lanes);
}

template <typename T, int W, int PACKS, bool CENTRED>
static __global__ void __launch_bounds__(NORM_BLOCK)
        norm_backward_kernel(struct norm_backward p)
{
    norm_backward_rows<T, W, PACKS, CENTRED>(p, blockIdx.x, gridDim.x);
}

/* --- rows too long for registers --------------------------------------------
 */

template <typename T, bool CENTRED>
static __global__ void norm_backward_long_kernel(struct norm_backward p)
{
    __shared__ float shared[MAX_WARPS];
    int64_t n = blockIdx.x;
    int64_t at = norm_row(n, p.C, p.heads, p.x_stride);
    const T *x = (const T *)p.x + at;
    const T *dout = (const T *)p.dout + norm_row(n, p.C, p.heads, p.out_stride);
    const T *weight = (const T *)p.weight;
    float mean = CENTRED ? p.mean[n] : 0.0f, rstd = p.rstd[n];
    float sum_g = 0.0f, sum_gx = 0.0f;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float g = to_float(dout[c]) * to_float(weight[c]);
        sum_g += g;
        sum_gx += g * (to_float(x[c]) - mean) * rstd;
    }
    float mean_g = CENTRED ? block_sum(sum_g, shared) / (float)p.C : 0.0f;
    float mean_gx = block_sum(sum_gx, shared) / (float)p.C;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float g = to_float(dout[c]) * to_float(weight[c]);
        float xhat = (to_float(x[c]) - mean) * rstd;
        float d = rstd * (g - mean_g - xhat * mean_gx);
        if (p.dresidual)
            d += to_float(((const T *)p.dresidual)[n * p.C + c]);
        ((T *)p.dx)[at + c] = from_float<T>(d);
    }
}

/* 32 columns to a block, whose warps take every eighth row of a piece. */
template <typename T, bool CENTRED>
static __global__ void weight_sums_kernel(struct norm_backward p, int pieces)
{
    __shared__ float shared[2][NORM_WARPS][WARP];
    int lane = lane_of_warp(), warp = warp_of_block();
    int c = (int)blockIdx.x * WARP + lane, piece = (int)blockIdx.y;
    int64_t rows = (p.N + pieces - 1) / pieces, first = piece * rows;
    int64_t end = first + rows < p.N ? first + rows : p.N;
    float dweight = 0.0f, dbias = 0.0f;
    if (c < p.C)
        for (int64_t n = first + warp; n < end; n += NORM_WARPS) {
            int64_t at = norm_row(n, p.C, p.heads, p.x_stride) + c;
            int64_t out_at = norm_row(n, p.C, p.heads, p.out_stride) + c;
            float d = to_float(((const T *)p.dout)[out_at]);
            float x = to_float(((const T *)p.x)[at]);
            dweight += d * (CENTRED ? x - p.mean[n] : x) * p.rstd[n];
            dbias += d;
        }
    shared[0][warp][lane] = dweight;
    shared[1][warp][lane] = dbias;
    __syncthreads();
    if (warp > 0 || c >= p.C)
        return;
    for (int w = 1; w < NORM_WARPS; w++) {
        dweight += shared[0][w][lane];
        dbias += shared[1][w][lane];
    }
    float *partials = p.partials + (int64_t)piece * p.C * (CENTRED ? 2 : 1);
    partials[c] = dweight;
    if (CENTRED)
        partials[p.C + c] = dbias;
}

/* --- launches ----------------------------------------------------------------
 */

template <typename T, int W, int PACKS, bool CENTRED>
static enum zd_status launch(cudaStream_t on, struct norm_backward p, int grid)
{
    size_t shared =
            p.is_frozen || p.lanes == NORM_BLOCK ? 0 : p.C * sizeof(float);
    ZD_LAUNCH(
            (norm_backward_kernel<T, W, PACKS, CENTRED>), (unsigned)grid,
            NORM_BLOCK, shared, on, p);
    return ZD_OK;
}

template <typename T, bool CENTRED>
static enum zd_status launch_rows(
        cudaStream_t on, struct norm_backward p, bool is_wide, int grid)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    if (!is_wide)
        return launch<T, 1, NORM_SINGLES, CENTRED>(on, p, grid);
    int packs = norm_packs(p.C, W, p.lanes);
    if (packs <= PACKS / 4)
        return launch<T, W, PACKS / 4, CENTRED>(on, p, grid);
    if (packs <= PACKS / 2)
        return launch<T, W, PACKS / 2, CENTRED>(on, p, grid);
    if (packs <= PACKS / 4 * 3)
        return launch<T, W, PACKS / 4 * 3, CENTRED>(on, p, grid);
    return launch<T, W, PACKS, CENTRED>(on, p, grid);
}

/* dweight first: dx may take the place of dout. */
template <typename T, bool CENTRED>
static enum zd_status launch_long(
        cudaStream_t on, struct norm_backward p, int pieces)
{
    if (!p.is_frozen)
        ZD_LAUNCH(
                (weight_sums_kernel<T, CENTRED>),
                dim3((unsigned)ceil_div(p.C, WARP), (unsigned)pieces),
                NORM_BLOCK, 0, on, p, pieces);
    ZD_LAUNCH(
            (norm_backward_long_kernel<T, CENTRED>), (unsigned)p.N, NORM_BLOCK,
            0, on, p);
    return ZD_OK;
}

template <typename T, bool CENTRED>
static enum zd_status norm_backward_any(
        struct stream *stream, struct norm_backward p, float *dweight,
        float *dbias, bool accumulate)
{
    const int W = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    int sums = CENTRED ? 2 * p.C : p.C, pieces = 0;
    p.is_frozen = !dweight && !dbias;
    p.partials = (float *)cuda_workspace(norm_cuda_workspace_bytes(p.C));
    assert(p.partials);
    bool is_wide = p.C % W == 0 && p.x_stride % W == 0 &&
                   p.out_stride % W == 0 && is_aligned(p.dx) &&
                   is_aligned(p.dout) && is_aligned(p.dresidual) &&
                   is_aligned(p.x) && is_aligned(p.weight);
    p.lanes = norm_lanes(p.C, is_wide ? W : 1);
    if (p.N > 0 && p.lanes == 0) {
        pieces = NORM_LONG_PIECES;
        ZD_TRY((launch_long<T, CENTRED>(on, p, pieces)));
    } else if (p.N > 0) {
        pieces = (int)grid_for(p.N, NORM_BLOCK / p.lanes, NORM_GRID);
        ZD_TRY((launch_rows<T, CENTRED>(on, p, is_wide, pieces)));
    }
    if (p.is_frozen)
        return ZD_OK;
    return sum_pieces(
            on, dweight, dbias, p.partials, pieces, p.C, sums, accumulate);
}

#define DEFINE(type, T)                                                        \
    extern "C" enum zd_status layernorm_backward_cuda_##type(                  \
            struct stream *stream, void *dx, float *dweight, float *dbias,     \
            const void *dout, const void *dresidual, const void *x,            \
            const void *weight, const float *mean, const float *rstd, int N,   \
            int C, bool accumulate)                                            \
    {                                                                          \
        struct norm_backward p = {dx,     NULL,  dout, dresidual, x,           \
                                  weight, mean,  rstd, N,         C,           \
                                  0,      false, 0,    0,         0};          \
        return norm_backward_any<T, true>(                                     \
                stream, p, dweight, dbias, accumulate);                        \
    }                                                                          \
    extern "C" enum zd_status rmsnorm_backward_cuda_##type(                    \
            struct stream *stream, void *dx, float *dweight, const void *dout, \
            const void *dresidual, const void *x, const void *weight,          \
            const float *rstd, int N, int C, bool accumulate)                  \
    {                                                                          \
        struct norm_backward p = {dx,     NULL,  dout, dresidual, x,           \
                                  weight, NULL,  rstd, N,         C,           \
                                  0,      false, 0,    0,         0};          \
        return norm_backward_any<T, false>(                                    \
                stream, p, dweight, NULL, accumulate);                         \
    }                                                                          \
    extern "C" enum zd_status head_norm_backward_cuda_##type(                  \
            struct stream *stream, void *dx, float *dweight, const void *dout, \
            const void *x, const void *weight, const float *rstd, int N,       \
            int H, int D, int64_t out_stride, int64_t x_stride,                \
            bool accumulate)                                                   \
    {                                                                          \
        struct norm_backward p = {dx,     NULL,  dout, NULL,       x,          \
                                  weight, NULL,  rstd, N * H,      D,          \
                                  0,      false, H,    out_stride, x_stride};  \
        return norm_backward_any<T, false>(                                    \
                stream, p, dweight, NULL, accumulate);                         \
    }
DEFINE(fp32, float)
DEFINE(bf16, bf16)
DEFINE(fp16, fp16)
#undef DEFINE
