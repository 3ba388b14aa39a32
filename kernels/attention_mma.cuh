/* attention_mma.cuh - attention on tensor cores for bf16 and fp16, instantiated
 * in attention_mma_*.cu.
 *
 * A block has 4 warps and 64 M rows of its own side, 16 M to a warp, which
 * meet tiles of N rows of the other side. A warp makes the scores of its rows
 * and keeps them in registers: the accumulators of the first product have the
 * layout of the left operand of the next. So queries own dq and out, keys own
 * dk and dv (their scores are made transposed), and weights never pass through
 * shared memory.
 *
 *   forward  own q;        other k, v    s = q k', out += p v
 *   dq       own q, dout;  other k, v    dp = dout v', s = q k', dq += ds k
 *   dk, dv   own k, v;     other q, dout dp' = v dout', s' = k q',
 *                                        dv += p' dout, dk += ds' q
 *
 * Tiles come by asynchronous copies; each of the two other tiles is fetched
 * again as soon as the block has read it for the last time, while it works on
 * the other one. Rows in shared memory are DP + 8 elements apart, so that the 8
 * rows of an ldmatrix lie in different banks.
 *
 * Source: the schedule over tiles and the running softmax follow Dao 2023,
 * FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2; there dq is summed by
 * atomics, here by a pass of its own, which costs two products more.
 * UNTESTED on a GPU; the sizes of tiles were chosen on paper. */
#ifndef ZD_KERNELS_ATTENTION_MMA_CUH
#define ZD_KERNELS_ATTENTION_MMA_CUH

#include "kernels/attention_cuda.cuh"
#include "kernels/mma.cuh"

static constexpr int MMA_WARPS = 4, MMA_THREADS = 32 * MMA_WARPS;

template <typename E_, int DP_, int M_, int N_> struct mma_shape {
    typedef E_ E;
    static constexpr int DP = DP_; /* head size, rounded up with zeros */
    static constexpr int M = M_, N = N_;
    static constexpr int WARP_ROWS = 16 * M, OWN = MMA_WARPS * WARP_ROWS;
    static constexpr int ROW = DP + 8;
    static constexpr int OWN_TILE = OWN * ROW, OTHER_TILE = N * ROW;
    static constexpr int COLUMNS = N / 8, D_COLUMNS = DP / 8;
};

/* --- tiles ---------------------------------------------------------------- */

/* Rows first .. of `from`, ROWS of them, zeros beyond `count` rows and D. */
template <typename S, int ROWS, typename E>
__device__ __forceinline__ void tile_fetch(
        E *tile, const E *from, int64_t stride, int first, int count, int D)
{
    constexpr int CHUNKS = S::DP / 8;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += MMA_THREADS) {
        int r = i / CHUNKS, d = i % CHUNKS * 8;
        bool is_there = first + r < count && d < D;
        copy_async_16(
                tile + r * S::ROW + d,
                is_there ? from + (first + r) * stride + d : from, is_there);
    }
}

/* score = (this warp's rows of `own`) (rows of `other`)' */
template <typename S, typename E>
__device__ __forceinline__ void rows_dot(
        float (&score)[S::M][S::COLUMNS][4], const E *own, const E *other)
{
    int lane = threadIdx.x & 31;
    own += ((int)threadIdx.x / 32 * S::WARP_ROWS + (lane & 15)) * S::ROW +
           (lane >> 4) * 8;
    other += ((lane >> 4) * 8 + (lane & 7)) * S::ROW + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[m][n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < S::DP; d += 16) {
        uint32_t a[S::M][4], b[4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            ldmatrix_x4(a[m], own + m * 16 * S::ROW + d);
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n += 2) {
            ldmatrix_x4(b, other + n * 8 * S::ROW + d);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma_16x8x16(E(), score[m][n], a[m], b[0], b[1]);
                mma_16x8x16(E(), score[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum += weight (rows of `other`), weights rounded to E. */
template <typename S, typename E>
__device__ __forceinline__ void rows_add(
        float (&sum)[S::M][S::D_COLUMNS][4],
        const float (&weight)[S::M][S::COLUMNS][4], const E *other)
{
    int lane = threadIdx.x & 31;
    other += (lane & 15) * S::ROW + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < S::N; k += 16) {
        uint32_t a[S::M][4], b[4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *w = &weight[m][k / 8 + i / 2][i % 2 * 2];
                a[m][i] = two_elements(E(), w[0], w[1]);
            }
#pragma unroll
        for (int d = 0; d < S::D_COLUMNS; d += 2) {
            ldmatrix_x4_trans(b, other + k * S::ROW + d * 8);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma_16x8x16(E(), sum[m][d], a[m], b[0], b[1]);
                mma_16x8x16(E(), sum[m][d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* This warp's rows of `to` from its sums, times a factor for each row (two rows
 * of a thread to an m). They pass through the warp's own rows of `tile`, which
 * nobody else reads any more, and leave in packs of 16 bytes. */
template <typename S, typename E>
__device__ __forceinline__ void rows_store(
        E *to, int64_t stride, int first, int count, int D, E *tile,
        const float (&sum)[S::M][S::D_COLUMNS][4],
        const float (&factor)[S::M][2])
{
    constexpr int CHUNKS = S::DP / 8;
    int lane = threadIdx.x & 31, row0 = (int)threadIdx.x / 32 * S::WARP_ROWS;
    tile += row0 * S::ROW;
    __syncwarp(ALL_LANES);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::D_COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                E *at = tile + (m * 16 + i * 8 + lane / 4) * S::ROW + n * 8 +
                        lane % 4 * 2;
                *(uint32_t *)at = two_elements(
                        E(), factor[m][i] * sum[m][n][2 * i],
                        factor[m][i] * sum[m][n][2 * i + 1]);
            }
    __syncwarp(ALL_LANES);
    for (int i = lane; i < S::WARP_ROWS * CHUNKS; i += 32) {
        int r = i / CHUNKS, d = i % CHUNKS * 8, row = first + row0 + r;
        if (row < count && d < D)
            store_pack<8>(
                    to + row * stride + d, load_pack<8>(tile + r * S::ROW + d));
    }
}

template <int M, int N>
__device__ __forceinline__ void sums_clear(float (&sum)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0.0f;
}

/* Row i (0, 1) of this thread in tile m of its warp; its columns are 8 n +
 * column_of_thread() + 0, 1. */
template <typename S> __device__ __forceinline__ int own_row(int m, int i)
{
    int warp = (int)threadIdx.x / 32, lane = threadIdx.x & 31;
    return warp * S::WARP_ROWS + m * 16 + i * 8 + lane / 4;
}

__device__ __forceinline__ int column_of_thread(void)
{
    return (int)threadIdx.x % 4 * 2;
}

/* --- forward -------------------------------------------------------------- */

template <int M> struct running_softmax {
    float top[M][2], sum[M][2]; /* sum: of this thread's columns alone */
};

/* Keys that a row does not see score -inf. first: of each row, T: no row. */
template <typename S>
__device__ __forceinline__ void scores_mask(
        float (&score)[S::M][S::COLUMNS][4], const int (&first)[S::M][2],
        int q0, int k0)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = k0 + 8 * n + column_of_thread() + i % 2;
                int row = q0 + own_row<S>(m, i / 2);
                if (key < first[m][i / 2] || key > row)
                    score[m][n][i] = -INFINITY;
            }
}

/* Scores become weights 2^(scale score - scale top), what was summed so far is
 * rescaled. scale > 0. */
template <typename S>
__device__ __forceinline__ void softmax_step(
        float (&score)[S::M][S::COLUMNS][4], running_softmax<S::M> &run,
        float (&out)[S::M][S::D_COLUMNS][4], float scale)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = run.top[m][i];
#pragma unroll
            for (int n = 0; n < S::COLUMNS; n++)
                top = fmaxf(
                        top, fmaxf(score[m][n][2 * i], score[m][n][2 * i + 1]));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
            float base = top == -INFINITY ? 0.0f : scale * top, part = 0.0f;
            float rescale = fast_exp2(fmaf(scale, run.top[m][i], -base));
#pragma unroll
            for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
                for (int j = 2 * i; j < 2 * i + 2; j++) {
                    float w = fast_exp2(fmaf(scale, score[m][n][j], -base));
                    score[m][n][j] = w, part += w;
                }
            run.top[m][i] = top;
            run.sum[m][i] = fmaf(rescale, run.sum[m][i], part);
#pragma unroll
            for (int d = 0; d < S::D_COLUMNS; d++)
                out[m][d][2 * i] *= rescale, out[m][d][2 * i + 1] *= rescale;
        }
}

/* 1 / sum of each row, and its log-sum-exp to `lse` (from row q0 on). */
template <typename S>
__device__ __forceinline__ void softmax_end(
        float (&factor)[S::M][2], const running_softmax<S::M> &run, float *lse,
        int q0, int T, float scale)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = run.sum[m][i];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            factor[m][i] = 1.0f / sum;
            int row = q0 + own_row<S>(m, i);
            if (row < T && column_of_thread() == 0)
                lse[row] = LN2 * (scale * run.top[m][i] + log2f(sum));
        }
}

/* Query tiles from the last, which see the most keys, to the first. */
template <typename S>
__device__ __forceinline__ void mma_forward(
        const attention_pass<typename S::E> &p)
{
    typedef typename S::E E;
    ZD_SHARED(E, shared);
    E *q_tile = shared, *k_tile = q_tile + S::OWN_TILE;
    E *v_tile = k_tile + S::OTHER_TILE;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * S::OWN;
    int h = blockIdx.y, b = blockIdx.z, kv = h / (p.H / p.KV);
    const E *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    const int32_t *starts = p.doc_start + (int64_t)b * p.T;
    int end = min(q0 + S::OWN, p.T), last_first = starts[end - 1];
    int k0 = starts[q0] / S::N * S::N;
    tile_fetch<S, S::OWN>(q_tile, q_rows(p, b, h), p.q_stride, q0, p.T, p.D);
    tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0, p.T, p.D);
    copy_async_commit();

    running_softmax<S::M> run;
    float out[S::M][S::D_COLUMNS][4], score[S::M][S::COLUMNS][4];
    int first[S::M][2];
    sums_clear(out);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = q0 + own_row<S>(m, i);
            run.top[m][i] = -INFINITY, run.sum[m][i] = 0.0f;
            first[m][i] = row < p.T ? starts[row] : p.T;
        }
    for (; k0 < end; k0 += S::N) {
        copy_async_wait<0>();
        __syncthreads(); /* k is there, v free */
        tile_fetch<S, S::N>(v_tile, v, p.v_stride, k0, p.T, p.D);
        copy_async_commit();
        rows_dot<S>(score, q_tile, k_tile);
        copy_async_wait<0>();
        __syncthreads(); /* v is there, k free */
        if (k0 + S::N < end)
            tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0 + S::N, p.T, p.D);
        copy_async_commit();
        if (k0 + S::N - 1 > q0 || k0 < last_first)
            scores_mask<S>(score, first, q0, k0);
        softmax_step<S>(score, run, out, p.scale * LOG2E);
        rows_add<S>(out, score, v_tile);
    }
    float factor[S::M][2];
    softmax_end<S>(
            factor, run, p.lse + lse_at(p, b, h), q0, p.T, p.scale * LOG2E);
    rows_store<S>(
            p.out + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.T, p.D, q_tile,
            out, factor);
}

/* --- backward: dq --------------------------------------------------------- */

/* score becomes ds / scale = p (dp - delta), for rows that are queries. */
template <typename S>
__device__ __forceinline__ void query_gradients(
        float (&score)[S::M][S::COLUMNS][4],
        const float (&dp)[S::M][S::COLUMNS][4], const float (&lse)[S::M][2],
        const float (&delta)[S::M][2], float scale)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float w =
                        fast_exp2(fmaf(scale, score[m][n][i], -lse[m][i / 2]));
                score[m][n][i] = w * (dp[m][n][i] - delta[m][i / 2]);
            }
}

template <typename S>
__device__ __forceinline__ void mma_dq(const attention_pass<typename S::E> &p)
{
    typedef typename S::E E;
    ZD_SHARED(E, shared);
    E *q_tile = shared, *g_tile = q_tile + S::OWN_TILE;
    E *k_tile = g_tile + S::OWN_TILE, *v_tile = k_tile + S::OTHER_TILE;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * S::OWN;
    int h = blockIdx.y, b = blockIdx.z, kv = h / (p.H / p.KV);
    const E *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    const int32_t *starts = p.doc_start + (int64_t)b * p.T;
    int end = min(q0 + S::OWN, p.T), last_first = starts[end - 1];
    int k0 = starts[q0] / S::N * S::N;
    tile_fetch<S, S::OWN>(
            g_tile, p.dout + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.T, p.D);
    tile_fetch<S, S::N>(v_tile, v, p.v_stride, k0, p.T, p.D);
    copy_async_commit();
    tile_fetch<S, S::OWN>(q_tile, q_rows(p, b, h), p.q_stride, q0, p.T, p.D);
    tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0, p.T, p.D);
    copy_async_commit();

    float dq[S::M][S::D_COLUMNS][4], score[S::M][S::COLUMNS][4];
    float dp[S::M][S::COLUMNS][4], lse[S::M][2], delta[S::M][2];
    int first[S::M][2];
    sums_clear(dq);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = q0 + own_row<S>(m, i);
            bool is_row = row < p.T;
            int64_t at = lse_at(p, b, h) + (is_row ? row : 0);
            lse[m][i] = is_row ? LOG2E * p.lse[at] : 0.0f;
            delta[m][i] = is_row ? p.delta[at] : 0.0f;
            first[m][i] = is_row ? starts[row] : p.T;
        }
    for (; k0 < end; k0 += S::N) {
        bool has_next = k0 + S::N < end;
        copy_async_wait<1>();
        __syncthreads(); /* v is there */
        rows_dot<S>(dp, g_tile, v_tile);
        copy_async_wait<0>();
        __syncthreads(); /* k is there, v free */
        if (has_next)
            tile_fetch<S, S::N>(v_tile, v, p.v_stride, k0 + S::N, p.T, p.D);
        copy_async_commit();
        rows_dot<S>(score, q_tile, k_tile);
        if (k0 + S::N - 1 > q0 || k0 < last_first)
            scores_mask<S>(score, first, q0, k0);
        query_gradients<S>(score, dp, lse, delta, p.scale * LOG2E);
        rows_add<S>(dq, score, k_tile);
        __syncthreads(); /* k free */
        if (has_next)
            tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0 + S::N, p.T, p.D);
        copy_async_commit();
    }
    float factor[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; m++)
        factor[m][0] = factor[m][1] = p.scale;
    rows_store<S>(
            p.dq + (int64_t)b * p.T * p.q_stride + h * p.D, p.q_stride, q0, p.T,
            p.D, q_tile, dq, factor);
}

/* --- backward: dk, dv ----------------------------------------------------- */

/* What is known of the N queries of a tile; zeros where there is no row. */
template <int N> struct query_tile_facts {
    float lse[N], delta[N];
    int first[N];
};

template <typename S>
__device__ __forceinline__ void facts_fetch(
        query_tile_facts<S::N> *facts, const attention_pass<typename S::E> &p,
        int b, int h, int q0)
{
    int64_t at = lse_at(p, b, h);
    for (int i = threadIdx.x; i < S::N; i += MMA_THREADS) {
        bool is_row = q0 + i < p.T;
        int row = is_row ? q0 + i : 0;
        copy_async_4(&facts->lse[i], p.lse + at + row, is_row);
        copy_async_4(&facts->delta[i], p.delta + at + row, is_row);
        copy_async_4(
                &facts->first[i], p.doc_start + (int64_t)b * p.T + row, is_row);
    }
}

/* Transposed: own rows are keys, columns queries. score becomes the weights.
 * Rows beyond T need no mask: their q, dout, lse and delta are zeros, and so is
 * what their weights of 1 add. */
template <typename S>
__device__ __forceinline__ void key_weights(
        float (&score)[S::M][S::COLUMNS][4],
        const query_tile_facts<S::N> *facts, int q0, int k0, bool masked,
        float scale)
{
#pragma unroll
    for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int column = 8 * n + column_of_thread() + j, row = q0 + column;
            float lse = LOG2E * facts->lse[column];
            int first = facts->first[column];
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2) {
                    float w = fast_exp2(fmaf(scale, score[m][n][i], -lse));
                    int key = k0 + own_row<S>(m, i / 2);
                    bool sees = !masked || (key >= first && key <= row);
                    score[m][n][i] = sees ? w : 0.0f;
                }
        }
}

/* weight becomes ds / scale. */
template <typename S>
__device__ __forceinline__ void key_gradients(
        float (&weight)[S::M][S::COLUMNS][4],
        const float (&dp)[S::M][S::COLUMNS][4],
        const query_tile_facts<S::N> *facts)
{
#pragma unroll
    for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float delta = facts->delta[8 * n + column_of_thread() + j];
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2)
                    weight[m][n][i] *= dp[m][n][i] - delta;
        }
}

/* How many tiles of queries, from the one that begins with key k0 on, see a key
 * below `end`. Every thread gets it. */
template <typename S>
__device__ __forceinline__ int tiles_that_see(
        const int32_t *starts, int k0, int end, int T, int *shared)
{
    if (threadIdx.x == 0)
        *shared = 0;
    __syncthreads();
    for (int i = threadIdx.x; k0 + i * S::N < T; i += MMA_THREADS)
        if (starts[k0 + i * S::N] < end)
            atomicMax(shared, i + 1);
    __syncthreads();
    return *shared;
}

/* The first tiles of keys are seen by the most queries and come first. */
template <typename S>
__device__ __forceinline__ void mma_dkv(const attention_pass<typename S::E> &p)
{
    typedef typename S::E E;
    __shared__ query_tile_facts<S::N> facts;
    __shared__ int tiles_shared;
    ZD_SHARED(E, shared);
    E *k_tile = shared, *v_tile = k_tile + S::OWN_TILE;
    E *q_tile = v_tile + S::OWN_TILE, *g_tile = q_tile + S::OTHER_TILE;
    int k0 = (int)blockIdx.x * S::OWN, kv = blockIdx.y, b = blockIdx.z;
    int group = p.H / p.KV, end = min(k0 + S::OWN, p.T);
    int64_t out_stride = (int64_t)p.H * p.D;
    const int32_t *starts = p.doc_start + (int64_t)b * p.T;
    tile_fetch<S, S::OWN>(v_tile, v_rows(p, b, kv), p.v_stride, k0, p.T, p.D);
    tile_fetch<S, S::N>(
            g_tile, p.dout + out_at(p, b, kv * group), out_stride, k0, p.T,
            p.D);
    copy_async_commit();
    tile_fetch<S, S::OWN>(k_tile, k_rows(p, b, kv), p.k_stride, k0, p.T, p.D);
    tile_fetch<S, S::N>(
            q_tile, q_rows(p, b, kv * group), p.q_stride, k0, p.T, p.D);
    facts_fetch<S>(&facts, p, b, kv * group, k0);
    copy_async_commit();
    int tiles = tiles_that_see<S>(starts, k0, end, p.T, &tiles_shared);

    float dk[S::M][S::D_COLUMNS][4], dv[S::M][S::D_COLUMNS][4];
    float score[S::M][S::COLUMNS][4], dp[S::M][S::COLUMNS][4];
    sums_clear(dk);
    sums_clear(dv);
    for (int step = 0; step < group * tiles; step++) {
        int q0 = k0 + step % tiles * S::N;
        int next = step + 1 < group * tiles ? step + 1 : step;
        int next_q0 = k0 + next % tiles * S::N;
        int next_h = kv * group + next / tiles;
        copy_async_wait<1>();
        __syncthreads(); /* dout is there */
        rows_dot<S>(dp, v_tile, g_tile);
        copy_async_wait<0>();
        __syncthreads(); /* q is there */
        rows_dot<S>(score, k_tile, q_tile);
        bool masked = q0 < k0 + S::OWN || starts[min(q0 + S::N, p.T) - 1] > k0;
        key_weights<S>(score, &facts, q0, k0, masked, p.scale * LOG2E);
        rows_add<S>(dv, score, g_tile);
        __syncthreads(); /* dout free */
        if (next > step)
            tile_fetch<S, S::N>(
                    g_tile, p.dout + out_at(p, b, next_h), out_stride, next_q0,
                    p.T, p.D);
        copy_async_commit();
        key_gradients<S>(score, dp, &facts);
        rows_add<S>(dk, score, q_tile);
        __syncthreads(); /* q and the facts free */
        if (next > step) {
            tile_fetch<S, S::N>(
                    q_tile, q_rows(p, b, next_h), p.q_stride, next_q0, p.T,
                    p.D);
            facts_fetch<S>(&facts, p, b, next_h, next_q0);
        }
        copy_async_commit();
    }
    float factor[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; m++)
        factor[m][0] = factor[m][1] = p.scale;
    rows_store<S>(
            p.dk + (int64_t)b * p.T * p.k_stride + kv * p.D, p.k_stride, k0,
            p.T, p.D, k_tile, dk, factor);
#pragma unroll
    for (int m = 0; m < S::M; m++)
        factor[m][0] = factor[m][1] = 1.0f;
    rows_store<S>(
            p.dv + (int64_t)b * p.T * p.v_stride + kv * p.D, p.v_stride, k0,
            p.T, p.D, v_tile, dv, factor);
}

/* --- launches ------------------------------------------------------------- */

/* On an architecture without them attention_cuda.cu does not come here, unless
 * a newer GPU runs code that was compiled for an old one alone: it fails aloud.
 */
#if ZD_MMA
#define MMA_BODY(call) call
#else
#define MMA_BODY(call) __trap()
#endif
#define MMA_KERNEL(name)                                                       \
    template <typename S>                                                      \
    __global__ void __launch_bounds__(MMA_THREADS)                             \
            name##_kernel(const attention_pass<typename S::E> p)               \
    {                                                                          \
        MMA_BODY(name<S>(p));                                                  \
    }
MMA_KERNEL(mma_forward)
MMA_KERNEL(mma_dq)
MMA_KERNEL(mma_dkv)
#undef MMA_KERNEL
#undef MMA_BODY

template <typename S>
static enum zd_status mma_forward_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = (S::OWN_TILE + 2 * S::OTHER_TILE) * sizeof(typename S::E);
    dim3 grid((unsigned)ceil_div(p.T, S::OWN), p.H, p.B);
    ZD_TRY(attention_allow_shared((const void *)mma_forward_kernel<S>, bytes));
    ZD_LAUNCH((mma_forward_kernel<S>), grid, MMA_THREADS, bytes, stream, p);
    return ZD_OK;
}

template <typename S>
static enum zd_status mma_dq_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = 2 * (S::OWN_TILE + S::OTHER_TILE) * sizeof(typename S::E);
    dim3 grid((unsigned)ceil_div(p.T, S::OWN), p.H, p.B);
    ZD_TRY(attention_allow_shared((const void *)mma_dq_kernel<S>, bytes));
    ZD_LAUNCH((mma_dq_kernel<S>), grid, MMA_THREADS, bytes, stream, p);
    return ZD_OK;
}

template <typename S>
static enum zd_status mma_dkv_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = 2 * (S::OWN_TILE + S::OTHER_TILE) * sizeof(typename S::E);
    dim3 grid((unsigned)ceil_div(p.T, S::OWN), p.KV, p.B);
    ZD_TRY(attention_allow_shared((const void *)mma_dkv_kernel<S>, bytes));
    ZD_LAUNCH((mma_dkv_kernel<S>), grid, MMA_THREADS, bytes, stream, p);
    return ZD_OK;
}

/* Head sizes up to 128; D is rounded up to the next that has a kernel. */
template <typename E>
enum zd_status mma_forward(cudaStream_t stream, const attention_pass<E> &p)
{
    if (p.D <= 64)
        return mma_forward_with<mma_shape<E, 64, 2, 64>>(stream, p);
    if (p.D <= 96)
        return mma_forward_with<mma_shape<E, 96, 2, 64>>(stream, p);
    return mma_forward_with<mma_shape<E, 128, 2, 64>>(stream, p);
}

template <typename E>
enum zd_status mma_backward(cudaStream_t stream, const attention_pass<E> &p)
{
    ZD_TRY(row_deltas(stream, p));
    if (p.D <= 64) {
        ZD_TRY((mma_dq_with<mma_shape<E, 64, 2, 64>>(stream, p)));
        return mma_dkv_with<mma_shape<E, 64, 2, 32>>(stream, p);
    }
    if (p.D <= 96) {
        ZD_TRY((mma_dq_with<mma_shape<E, 96, 1, 64>>(stream, p)));
        return mma_dkv_with<mma_shape<E, 96, 1, 64>>(stream, p);
    }
    ZD_TRY((mma_dq_with<mma_shape<E, 128, 1, 64>>(stream, p)));
    return mma_dkv_with<mma_shape<E, 128, 1, 64>>(stream, p);
}

#endif
