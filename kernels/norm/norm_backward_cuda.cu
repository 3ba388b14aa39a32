/* norm_backward_cuda.cu - norms on a GPU, backward.
 *
 * A grid of a fixed number of blocks goes over the rows (norm_rows.cuh). Each
 * thread adds up what its columns give to dweight and dbias in registers; the
 * teams of a block join their sums in shared memory, in the order of the teams,
 * and the block leaves one row of partial sums in the workspace. A second
 * kernel adds those (column_sums.cuh). So x and dout are read once, and the
 * order of every sum follows from N and C. Gradients of heads of q and k that
 * were turned are turned back as they are read, each thread its own half of a
 * pair: the other half it reads too, from the first-level cache. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/norm/norm_rows.cuh"
#include "kernels/rope/rope.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/norm/head_norm_rope.h"
#include "kernels/norm/norm.h"
}

struct norm_backward {
    void *dx;
    float *partials; /* (blocks, sums): dweight, then dbias if CENTERED */
    const void *dout, *dresidual, *x, *weight;
    const float *mean, *rstd; /* mean: layernorm only */
    int N, C, lanes;
    bool is_frozen; /* no partials */
    int heads;      /* of a token; 0: rows are dense (norm_rows.cuh) */
    int64_t out_stride, x_stride; /* of dout; of x and dx */
    enum rmsnorm_form form;
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

/* dout of a head at channel c, rotated back, as it would have been stored. */
template <typename T, int W>
static __device__ inline pack<T, W> turned_back(
        const T *dout, const struct rope_angles &angles, int64_t token, int c,
        int D)
{
    float own[W], mate[W];
    load_floats<W>(own, dout + c);
    load_floats<W>(mate, dout + mate_of(c, D));
    turn_half<W>(own, mate, angles, token, c, D, -1.0f);
    return packed<T, W>(own);
}

/* What a block does that is the block'th of `blocks` for p. TURNS: by `angles`
 * in the forward pass. A row of dx may take the place of one of dout: all of a
 * team have read it before their sum is there. */
template <typename T, int W, int PACKS, bool CENTERED, bool TURNS>
static __device__ inline void norm_backward_rows(
        const struct norm_backward &p, const struct rope_angles &angles,
        unsigned block, unsigned blocks, float (*shared)[NORM_WARPS])
{
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
        float mean = CENTERED && is_row ? p.mean[n] : 0.0f;
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
            const T *row = (const T *)p.dout + out_at;
            if (TURNS)
                dout[k] = turned_back<T, W>(
                        row, angles, norm_token(n, p.heads), c, p.C);
            else
                dout[k] = load_pack<W>(row + c);
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
                float d = to_float(dout[k].at[j]);
                float g = d * norm_factor(w[j], p.form);
                float xhat = (to_float(x[k].at[j]) - mean) * rstd;
                sum_g += g;
                sum_gx += g * xhat;
                dweight[k][j] += d * xhat;
                if (CENTERED)
                    dbias[k][j] += d;
            }
        }
        team_sum(&sum_gx, &sum_g, p.lanes, shared);
        if (TURNS) /* dx may take the place of what other lanes have read */
            __syncwarp(ALL_LANES);
        float mean_g = CENTERED ? sum_g / (float)p.C : 0.0f;
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
                float g = to_float(dout[k].at[j]) * norm_factor(w[j], p.form);
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
    int sums = CENTERED ? 2 * p.C : p.C;
    float *partials = p.partials + (int64_t)block * sums;
    join_sums<W, PACKS>(partials, dweight, joined, p.C, p.lanes);
    if (CENTERED)
        join_sums<W, PACKS>(partials + p.C, dbias, joined, p.C, p.lanes);
}

template <typename T, int W, int PACKS, bool CENTERED>
static __global__ void __launch_bounds__(NORM_BLOCK)
        norm_backward_kernel(struct norm_backward p)
{
    __shared__ float shared[2][NORM_WARPS];
    const struct rope_angles none = {};
    norm_backward_rows<T, W, PACKS, CENTERED, false>(
            p, none, blockIdx.x, gridDim.x, shared);
}

/* q, k: the first blocks[0] blocks are q's. */
struct turned_backward {
    struct norm_backward of[2];
    struct rope_angles angles;
    unsigned blocks[2];
};

template <typename T, int W, int PACKS>
static __global__ void __launch_bounds__(NORM_BLOCK)
        head_norm_rope_backward_kernel(struct turned_backward p)
{
    __shared__ float shared[2][NORM_WARPS];
    bool is_k = blockIdx.x >= p.blocks[0];
    norm_backward_rows<T, W, PACKS, false, true>(
            p.of[is_k], p.angles, blockIdx.x - (is_k ? p.blocks[0] : 0),
            p.blocks[is_k], shared);
}

/* --- rows too long for registers --------------------------------------------
 */

template <typename T, bool CENTERED>
static __global__ void norm_backward_long_kernel(struct norm_backward p)
{
    __shared__ float shared[MAX_WARPS];
    int64_t n = blockIdx.x;
    int64_t at = norm_row(n, p.C, p.heads, p.x_stride);
    const T *x = (const T *)p.x + at;
    const T *dout = (const T *)p.dout + norm_row(n, p.C, p.heads, p.out_stride);
    const T *weight = (const T *)p.weight;
    float mean = CENTERED ? p.mean[n] : 0.0f, rstd = p.rstd[n];
    float sum_g = 0.0f, sum_gx = 0.0f;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float w = norm_factor(to_float(weight[c]), p.form);
        float g = to_float(dout[c]) * w;
        sum_g += g;
        sum_gx += g * (to_float(x[c]) - mean) * rstd;
    }
    float mean_g = CENTERED ? block_sum(sum_g, shared) / (float)p.C : 0.0f;
    float mean_gx = block_sum(sum_gx, shared) / (float)p.C;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float w = norm_factor(to_float(weight[c]), p.form);
        float g = to_float(dout[c]) * w;
        float xhat = (to_float(x[c]) - mean) * rstd;
        float d = rstd * (g - mean_g - xhat * mean_gx);
        if (p.dresidual)
            d += to_float(((const T *)p.dresidual)[n * p.C + c]);
        ((T *)p.dx)[at + c] = from_float<T>(d);
    }
}

/* 32 columns to a block, whose warps take every eighth row of a piece. */
template <typename T, bool CENTERED>
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
            dweight += d * (CENTERED ? x - p.mean[n] : x) * p.rstd[n];
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
    float *partials = p.partials + (int64_t)piece * p.C * (CENTERED ? 2 : 1);
    partials[c] = dweight;
    if (CENTERED)
        partials[p.C + c] = dbias;
}

/* --- launches ----------------------------------------------------------------
 */

template <typename T, int W, int PACKS, bool CENTERED>
static enum zd_status launch(cudaStream_t on, struct norm_backward p, int grid)
{
    size_t shared =
            p.is_frozen || p.lanes == NORM_BLOCK ? 0 : p.C * sizeof(float);
    ZD_LAUNCH(
            (norm_backward_kernel<T, W, PACKS, CENTERED>), (unsigned)grid,
            NORM_BLOCK, shared, on, p);
    return ZD_OK;
}

template <typename T, bool CENTERED>
static enum zd_status launch_rows(
        cudaStream_t on, struct norm_backward p, bool wide, int grid)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    if (!wide)
        return launch<T, 1, NORM_SINGLES, CENTERED>(on, p, grid);
    int packs = norm_packs(p.C, W, p.lanes);
    if (packs <= PACKS / 4)
        return launch<T, W, PACKS / 4, CENTERED>(on, p, grid);
    if (packs <= PACKS / 2)
        return launch<T, W, PACKS / 2, CENTERED>(on, p, grid);
    if (packs <= PACKS / 4 * 3)
        return launch<T, W, PACKS / 4 * 3, CENTERED>(on, p, grid);
    return launch<T, W, PACKS, CENTERED>(on, p, grid);
}

/* dweight first: dx may take the place of dout. */
template <typename T, bool CENTERED>
static enum zd_status launch_long(
        cudaStream_t on, struct norm_backward p, int pieces)
{
    if (!p.is_frozen)
        ZD_LAUNCH(
                (weight_sums_kernel<T, CENTERED>),
                dim3((unsigned)ceil_div(p.C, WARP), (unsigned)pieces),
                NORM_BLOCK, 0, on, p, pieces);
    ZD_LAUNCH(
            (norm_backward_long_kernel<T, CENTERED>), (unsigned)p.N, NORM_BLOCK,
            0, on, p);
    return ZD_OK;
}

static bool is_wide(const struct norm_backward &p, int W)
{
    return p.C % W == 0 && p.x_stride % W == 0 && p.out_stride % W == 0 &&
           are_aligned(p.dx, p.dout, p.dresidual, p.x, p.weight);
}

template <typename T, bool CENTERED>
static enum zd_status norm_backward_by(
        struct stream *stream, struct norm_backward p, float *dweight,
        float *dbias, bool accumulate)
{
    const int W = full_width<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    int sums = CENTERED ? 2 * p.C : p.C, pieces = 0;
    p.is_frozen = !dweight && !dbias;
    p.partials = (float *)cuda_workspace(norm_cuda_workspace_bytes(p.C));
    assert(p.partials);
    bool wide = is_wide(p, W);
    p.lanes = norm_lanes(p.C, wide ? W : 1);
    if (p.N > 0 && p.lanes == 0) {
        pieces = NORM_LONG_PIECES;
        ZD_TRY((launch_long<T, CENTERED>(on, p, pieces)));
    } else if (p.N > 0) {
        pieces = (int)grid_for(p.N, NORM_BLOCK / p.lanes, NORM_GRID);
        ZD_TRY((launch_rows<T, CENTERED>(on, p, wide, pieces)));
    }
    if (p.is_frozen)
        return ZD_OK;
    return sum_pieces(
            on, dweight, dbias, p.partials, pieces, p.C, sums, accumulate);
}

template <typename T, int W, int PACKS>
static enum zd_status launch_turned(cudaStream_t on, struct turned_backward p)
{
    bool is_frozen = p.of[0].is_frozen && p.of[1].is_frozen;
    size_t shared = is_frozen || p.of[0].lanes == NORM_BLOCK
                            ? 0
                            : p.of[0].C * sizeof(float);
    ZD_LAUNCH(
            (head_norm_rope_backward_kernel<T, W, PACKS>),
            p.blocks[0] + p.blocks[1], NORM_BLOCK, shared, on, p);
    return ZD_OK;
}

template <typename T>
static enum zd_status launch_turned_rows(
        cudaStream_t on, const struct turned_backward &p)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    int packs = norm_packs(p.of[0].C, W, p.of[0].lanes);
    if (packs <= PACKS / 4)
        return launch_turned<T, W, PACKS / 4>(on, p);
    if (packs <= PACKS / 2)
        return launch_turned<T, W, PACKS / 2>(on, p);
    if (packs <= PACKS / 4 * 3)
        return launch_turned<T, W, PACKS / 4 * 3>(on, p);
    return launch_turned<T, W, PACKS>(on, p);
}

static struct norm_backward backward_of(
        const struct head_norm_backward_args *h, enum rmsnorm_form form, int N,
        int D)
{
    struct norm_backward p = {
            h->dx, NULL,          h->dout,     NULL, h->x, h->weight,
            NULL,  h->rstd,       N * h->H,    D,    0,    !h->dweight,
            h->H,  h->out_stride, h->x_stride, form};
    return p;
}

/* As forward (norm_cuda.cu). q and k share the workspace, which has room for
 * two sums of each column; each has the blocks that it has alone. */
template <typename T>
static enum zd_status head_norm_rope_backward_any(
        struct stream *stream, const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate)
{
    const int W = full_width<T>::value;
    const enum dtype type = dtype_of<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    const struct head_norm_backward_args *args[] = {q, k};
    struct turned_backward p = {
            {backward_of(q, form, N, D), backward_of(k, form, N, D)},
            *angles,
            {0, 0}};
    int lanes = norm_lanes(D, W);
    if (N <= 0 || D / 2 % W != 0 || lanes == 0 || !is_wide(p.of[0], W) ||
        !is_wide(p.of[1], W) || !are_aligned(angles->cosine, angles->sine) ||
        2 * rope_pairs_of(angles, D) != D || angles->interleaved)
        return head_norm_rope_backward_parts(
                head_norm_backward_cuda[type], rope_cuda[type], type, stream, q,
                k, angles, form, N, D, accumulate);
    float *partials = (float *)cuda_workspace(norm_cuda_workspace_bytes(D));
    assert(partials);
    for (int i = 0; i < 2; i++) {
        p.of[i].lanes = lanes;
        p.of[i].partials = partials + (int64_t)i * NORM_GRID * D;
        p.blocks[i] = grid_for(p.of[i].N, NORM_BLOCK / lanes, NORM_GRID);
    }
    ZD_TRY(launch_turned_rows<T>(on, p));
    for (int i = 0; i < 2; i++)
        if (args[i]->dweight)
            ZD_TRY(sum_pieces(
                    on, args[i]->dweight, NULL, p.of[i].partials,
                    (int)p.blocks[i], D, D, accumulate));
    return ZD_OK;
}

template <typename T>
static enum zd_status layernorm_backward_any(
        struct stream *stream, void *dx, float *dweight, float *dbias,
        const void *dout, const void *dresidual, const void *x,
        const void *weight, const float *mean, const float *rstd, int N, int C,
        bool accumulate)
{
    struct norm_backward p = {
            dx, NULL, dout, dresidual, x, weight, mean, rstd,
            N,  C,    0,    false,     0, 0,      0,    RMSNORM_ROUND_FIRST};
    return norm_backward_by<T, true>(stream, p, dweight, dbias, accumulate);
}

template <typename T>
static enum zd_status rmsnorm_backward_any(
        struct stream *stream, void *dx, float *dweight, const void *dout,
        const void *dresidual, const void *x, const void *weight,
        const float *rstd, enum rmsnorm_form form, int N, int C,
        bool accumulate)
{
    struct norm_backward p = {dx, NULL, dout, dresidual, x, weight, NULL, rstd,
                              N,  C,    0,    false,     0, 0,      0,    form};
    return norm_backward_by<T, false>(stream, p, dweight, NULL, accumulate);
}

template <typename T>
static enum zd_status head_norm_backward_any(
        struct stream *stream, void *dx, float *dweight, const void *dout,
        const void *x, const void *weight, const float *rstd,
        enum rmsnorm_form form, int N, int H, int D, int64_t out_stride,
        int64_t x_stride, bool accumulate)
{
    struct head_norm_backward_args h = {dx, dweight,    (void *)dout,
                                        x,  weight,     rstd,
                                        H,  out_stride, x_stride};
    return norm_backward_by<T, false>(
            stream, backward_of(&h, form, N, D), dweight, NULL, accumulate);
}

CUDA_DEFINE(layernorm_backward);
CUDA_DEFINE(rmsnorm_backward);
CUDA_DEFINE(head_norm_backward);
CUDA_DEFINE(head_norm_rope_backward);
