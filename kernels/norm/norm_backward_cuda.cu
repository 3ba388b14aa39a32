/* norm_backward_cuda.cu - norms on a GPU, backward.
 *
 * A fixed number of blocks loops over the rows (norm_rows.cuh). Each thread
 * sums its columns' terms of dweight and dbias in registers; the teams of a
 * block add their sums in shared memory, in the order of the teams, and the
 * block writes one row of partial sums to the workspace. A second kernel adds
 * these (column_sums.cuh). So x and dout are read once, and the order of every
 * sum depends only on N and C. Gradients of rotated heads of q and k are
 * rotated back as they are read: each thread computes its own half of a pair
 * and also reads the other half, from the first-level cache. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/norm/norm_rows.cuh"
#include "kernels/rope/rope.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
}

/* Adds the sums of the block's teams and writes them to its row of `partials`:
 * first teams within a warp, by shuffles, then one group after the other. */
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

/* dout of a head at channel c, rotated back and rounded to T. */
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

/* A thread's part of a row. With AHEAD dresidual is loaded with the rest, else
 * only when it is added. */
template <typename T, int W, int PACKS> struct norm_packs_of_row {
    pack<T, W> x[PACKS], dout[PACKS], residual[PACKS];
    float mean, rstd;
};

/* Loads zeros if row n does not exist. */
template <typename T, int W, int PACKS, bool CENTERED, bool TURNS, bool AHEAD>
static __device__ inline void load_row(
        norm_packs_of_row<T, W, PACKS> &row, const struct norm_backward &p,
        const struct rope_angles &angles, int64_t n, int lane, int lanes)
{
    const T *x = (const T *)p.x + norm_row(n, p.C, p.heads, p.x_stride);
    const T *dout = (const T *)p.dout + norm_row(n, p.C, p.heads, p.out_stride);
    bool is_row = n < p.N;
    row.mean = CENTERED && is_row ? p.mean[n] : 0.0f;
    row.rstd = is_row ? p.rstd[n] : 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * lanes + lane) * W;
        row.x[k] = row.dout[k] = zero_pack<T, W>();
        if (!is_row || c >= p.C)
            continue;
        row.x[k] = load_pack<W>(x + c);
        if (TURNS)
            row.dout[k] = turned_back<T, W>(
                    dout, angles, norm_token(n, p.heads), c, p.C);
        else
            row.dout[k] = load_pack<W>(dout + c);
        if (AHEAD && p.dresidual)
            row.residual[k] =
                    load_pack<W>((const T *)p.dresidual + n * p.C + c);
    }
}

/* The work of block `block` of `blocks` on p. TURNS: forward rotated rows by
 * `angles`. AHEAD: loads the next row while computing the current one, if
 * registers hold both; not with TURNS, which would wait for the loads. A row of
 * dx may overwrite one of dout or dresidual: all threads of a team have read it
 * before they have the team's sum. */
template <typename T, int W, int PACKS, bool CENTERED, bool TURNS>
static __device__ inline void norm_backward_rows(
        const struct norm_backward &p, float *partials, int lanes,
        const struct rope_angles &angles, unsigned block, unsigned blocks,
        float (*shared)[NORM_WARPS])
{
    ZD_SHARED(float, joined);
    int lane = (int)threadIdx.x % lanes, team = (int)threadIdx.x / lanes;
    int teams = NORM_BLOCK / lanes;
    int64_t step = (int64_t)blocks * teams;
    float dweight[PACKS][W], dbias[PACKS][W];
    norm_packs_of_row<T, W, PACKS> row, next;
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int j = 0; j < W; j++)
            dweight[k][j] = dbias[k][j] = 0.0f;

    int64_t first = (int64_t)block * teams;
    const bool AHEAD = !TURNS && PACKS <= 2;
    if (AHEAD)
        load_row<T, W, PACKS, CENTERED, TURNS, AHEAD>(
                next, p, angles, first + team, lane, lanes);
    for (; first < p.N; first += step) {
        int64_t n = first + team;
        float sum_g = 0.0f, sum_gx = 0.0f;
        if (AHEAD)
            row = next;
        load_row<T, W, PACKS, CENTERED, TURNS, AHEAD>(
                AHEAD ? next : row, p, angles, AHEAD ? n + step : n, lane,
                lanes);
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * lanes + lane) * W;
            if (n >= p.N || c >= p.C)
                continue;
            float w[W];
            load_floats<W>(w, (const T *)p.weight + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float d = to_float(row.dout[k].at[j]);
                float g = d * norm_factor(w[j], p.form);
                float xhat = (to_float(row.x[k].at[j]) - row.mean) * row.rstd;
                sum_g += g;
                sum_gx += g * xhat;
                dweight[k][j] += d * xhat;
                if (CENTERED)
                    dbias[k][j] += d;
            }
        }
        team_sum(&sum_gx, &sum_g, lanes, shared);
        if (TURNS) /* dx may overwrite what other lanes read */
            __syncwarp(ALL_LANES);
        if (!p.dx) { /* all threads must continue: team_sum has barriers */
            if (n < p.N && lane == 0)
                p.parts.mine[n] = sum_gx;
            continue;
        }
        if (n < p.N)
            sum_gx = norm_sum(&p.parts, n, sum_gx);
        float mean_g = CENTERED ? sum_g / (float)p.C : 0.0f;
        float mean_gx = sum_gx / (float)norm_width(&p.parts, p.C);
        T *dx = (T *)p.dx + norm_row(n, p.C, p.heads, p.x_stride);
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int c = (k * lanes + lane) * W;
            if (n >= p.N || c >= p.C)
                continue;
            float w[W], d[W];
            load_floats<W>(w, (const T *)p.weight + c);
            pack<T, W> residual = row.residual[k];
            if (!AHEAD && !TURNS && p.dresidual)
                residual = load_pack<W>((const T *)p.dresidual + n * p.C + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float g =
                        to_float(row.dout[k].at[j]) * norm_factor(w[j], p.form);
                float xhat = (to_float(row.x[k].at[j]) - row.mean) * row.rstd;
                d[j] = row.rstd * (g - mean_g - xhat * mean_gx);
                if (!TURNS && p.dresidual)
                    d[j] += to_float(residual.at[j]);
            }
            store_floats<W>(dx + c, d);
        }
    }

    if (!partials)
        return;
    partials += (int64_t)block * (CENTERED ? 2 * p.C : p.C);
    join_sums<W, PACKS>(partials, dweight, joined, p.C, lanes);
    if (CENTERED)
        join_sums<W, PACKS>(partials + p.C, dbias, joined, p.C, lanes);
}

template <typename T, int W, int PACKS, bool CENTERED>
static __global__ void __launch_bounds__(NORM_BLOCK)
        norm_backward_kernel(struct norm_backward p, float *partials, int lanes)
{
    __shared__ float shared[2][NORM_WARPS];
    const struct rope_angles none = {};
    norm_backward_rows<T, W, PACKS, CENTERED, false>(
            p, partials, lanes, none, blockIdx.x, gridDim.x, shared);
}

/* q, k: the first blocks[0] blocks are q's. */
struct turned_backward {
    struct norm_backward of[2];
    float *partials[2]; /* NULL: frozen */
    struct rope_angles angles;
    unsigned blocks[2];
    int lanes;
};

template <typename T, int W, int PACKS>
static __global__ void __launch_bounds__(NORM_BLOCK)
        head_norm_rope_backward_kernel(struct turned_backward p)
{
    __shared__ float shared[2][NORM_WARPS];
    bool is_k = blockIdx.x >= p.blocks[0];
    norm_backward_rows<T, W, PACKS, false, true>(
            p.of[is_k], p.partials[is_k], p.lanes, p.angles,
            blockIdx.x - (is_k ? p.blocks[0] : 0), p.blocks[is_k], shared);
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
    sum_gx = block_sum(sum_gx, shared);
    if (!p.dx) {
        if (threadIdx.x == 0)
            p.parts.mine[n] = sum_gx;
        return;
    }
    sum_gx = norm_sum(&p.parts, n, sum_gx);
    float mean_gx = sum_gx / (float)norm_width(&p.parts, p.C);
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

/* A block has 32 columns of a piece of the rows; each of its warps sums every
 * eighth row. */
template <typename T, bool CENTERED>
static __global__ void weight_sums_kernel(
        struct norm_backward p, float *partials, int pieces)
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
    partials += (int64_t)piece * p.C * (CENTERED ? 2 : 1);
    partials[c] = dweight;
    if (CENTERED)
        partials[p.C + c] = dbias;
}

/* --- launches ----------------------------------------------------------------
 */

/* If a team is the whole block, its sums need no shared memory. */
static size_t joined_bytes(const float *partials, int lanes, int C)
{
    return partials && lanes < NORM_BLOCK ? C * sizeof(float) : 0;
}

/* Computes dweight first: dx may overwrite dout. */
template <typename T, bool CENTERED>
static enum zd_status launch_long(
        cudaStream_t on, const struct norm_backward &p, float *partials)
{
    if (partials)
        ZD_LAUNCH(
                (weight_sums_kernel<T, CENTERED>),
                dim3((unsigned)ceil_div(p.C, WARP), NORM_LONG_PIECES),
                NORM_BLOCK, 0, on, p, partials, (int)NORM_LONG_PIECES);
    ZD_LAUNCH(
            (norm_backward_long_kernel<T, CENTERED>), (unsigned)p.N, NORM_BLOCK,
            0, on, p);
    return ZD_OK;
}

static bool is_wide(const struct norm_backward &p, int W)
{
    bool gaps = p.heads && (p.x_stride % W != 0 || p.out_stride % W != 0);
    return p.C % W == 0 && !gaps &&
           are_aligned(p.dx, p.dout, p.dresidual, p.x, p.weight);
}

/* p.N: rows. *pieces_out: rows of partial sums. */
template <typename T, bool CENTERED>
static enum zd_status norm_backward_by(
        cudaStream_t on, const struct norm_backward &p, float *partials,
        int *pieces_out)
{
    const int W = full_width<T>::value;
    bool wide = is_wide(p, W);
    int lanes = norm_lanes(p.C, wide ? W : 1, NORM_BACKWARD_COLUMNS);
    *pieces_out = NORM_LONG_PIECES;
    if (lanes == 0)
        return launch_long<T, CENTERED>(on, p, partials);
    int grid = *pieces_out = (int)grid_for(p.N, NORM_BLOCK / lanes, NORM_GRID);
    size_t shared = joined_bytes(partials, lanes, p.C);
    if (!wide) {
        ZD_LAUNCH(
                (norm_backward_kernel<T, 1, NORM_SINGLES, CENTERED>),
                (unsigned)grid, NORM_BLOCK, shared, on, p, partials, lanes);
        return ZD_OK;
    }
    return by_packs<T>(norm_packs(p.C, W, lanes), [&](auto packs) {
        const int PACKS = decltype(packs)::value;
        ZD_LAUNCH(
                (norm_backward_kernel<T, W, PACKS, CENTERED>), (unsigned)grid,
                NORM_BLOCK, shared, on, p, partials, lanes);
        return ZD_OK;
    });
}

/* NULL: the weights are frozen. */
static float *partials_of(const struct norm_backward *p)
{
    if (!p->dweight && !p->dbias)
        return NULL;
    float *partials = (float *)cuda_workspace(norm_cuda_workspace_bytes(p->C));
    assert(partials);
    return partials;
}

template <typename T>
static enum zd_status norm_backward_any(
        struct stream *stream, const struct norm_backward *norm)
{
    cudaStream_t on = device_cuda_stream(stream);
    float *partials = partials_of(norm);
    struct norm_backward p = *norm;
    int pieces = 0;
    p.N = (int)norm_rows(norm->N, norm->heads);
    if (p.N > 0)
        ZD_TRY((p.mean ? norm_backward_by<T, true>(on, p, partials, &pieces)
                       : norm_backward_by<T, false>(on, p, partials, &pieces)));
    if (!partials)
        return ZD_OK;
    return sum_pieces(
            on, p.dweight, p.dbias, partials, pieces, p.C,
            p.mean ? 2 * p.C : p.C, p.accumulate);
}

/* As forward (norm_cuda.cu). q and k share the workspace, which has room for
 * two sums per column; each gets as many blocks as in a separate call. */
template <typename T>
static enum zd_status head_norm_rope_backward_any(
        struct stream *stream, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles)
{
    const int W = full_width<T>::value, D = q->C;
    cudaStream_t on = device_cuda_stream(stream);
    int lanes = norm_lanes(D, W, NORM_BACKWARD_COLUMNS);
    struct turned_backward p = {{*q, *k}, {}, *angles, {}, lanes};
    if (q->N <= 0 || lanes == 0 || !is_wide(*q, W) || !is_wide(*k, W) ||
        !turns_in_packs(angles, D, W))
        return ZD_ERR_UNFIT;
    for (int i = 0; i < 2; i++) {
        struct norm_backward *of = &p.of[i];
        of->N *= of->heads;
        p.partials[i] = partials_of(of);
        if (p.partials[i])
            p.partials[i] += (int64_t)i * NORM_GRID * D;
        p.blocks[i] = grid_for(of->N, NORM_BLOCK / lanes, NORM_GRID);
    }
    const float *any = p.partials[0] ? p.partials[0] : p.partials[1];
    ZD_TRY(by_packs<T>(norm_packs(D, W, lanes), [&](auto packs) {
        ZD_LAUNCH(
                (head_norm_rope_backward_kernel<T, W, decltype(packs)::value>),
                p.blocks[0] + p.blocks[1], NORM_BLOCK,
                joined_bytes(any, lanes, D), on, p);
        return ZD_OK;
    }));
    for (int i = 0; i < 2; i++)
        if (p.partials[i])
            ZD_TRY(sum_pieces(
                    on, p.of[i].dweight, NULL, p.partials[i], (int)p.blocks[i],
                    D, D, q->accumulate));
    return ZD_OK;
}

CUDA_DEFINE(norm_backward);
CUDA_DEFINE(head_norm_rope_backward);
