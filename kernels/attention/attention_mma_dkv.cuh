/* attention_mma_dkv.cuh - attention on tensor cores, the gradients of keys and
 * values: both in one pass, or one pass each for heads wider than 128, whose
 * sums fill the registers:
 *
 *   own k, v;  other q, dout:  s' = k q', dv += p' dout
 *                              dp' = v dout', dk += ds' q
 *
 * Scores are computed transposed: rows are keys, columns queries. */
#pragma once

#include "kernels/attention/attention_mma_tiles.cuh"

/* Facts of a query; zeros where there is no row. They are stored after the
 * query's row in shared memory, in the 16 bytes of padding. */
struct query_facts {
    float lse, delta;
    int first; /* token of its document */
};

template <typename S, typename E>
__device__ __forceinline__ query_facts *facts_of(E *q_tile, int row)
{
    return (query_facts *)(q_tile + row * S::ROW + S::DP);
}

template <typename S, typename E>
__device__ __forceinline__ void facts_fetch(
        E *q_tile, const attention_pass<E> &p, int b, int h, int q0)
{
    int64_t at = lse_at(p, b, h);
    if ((int)threadIdx.x >= S::N)
        return;
    query_facts *facts = facts_of<S>(q_tile, threadIdx.x);
    bool is_row = q0 + (int)threadIdx.x < p.Q;
    int row = is_row ? q0 + (int)threadIdx.x : 0;
    copy_async_4(&facts->lse, p.lse + at + row, is_row);
    copy_async_4(&facts->delta, p.delta + at + row, is_row);
    copy_async_4(&facts->first, starts_of(p, b) + row, is_row);
}

/* Turns score into weights. Rows beyond Q need no mask: their q, dout, lse and
 * delta are zeros, so their weights of 1 add zeros. */
template <typename S, typename E>
__device__ __forceinline__ void key_weights(
        float (&score)[S::M][S::COLUMNS][4], E *q_tile,
        const attention_pass<E> &p, int q0, int k0, bool masked)
{
    float scale = p.scale * LOG2E;
#pragma unroll
    for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int column = 8 * n + column_of_thread() + j;
            int token = token_of(p, q0 + column);
            query_facts facts = *facts_of<S>(q_tile, column);
            float lse = LOG2E * facts.lse;
            int first = attention_first(p.window, facts.first, token);
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2) {
                    float w = fast_exp2(fmaf(scale, score[m][n][i], -lse));
                    int key = k0 + own_row<S>(m, i / 2);
                    bool sees = !masked || (key >= first && key <= token);
                    score[m][n][i] = sees ? w : 0.0f;
                }
        }
}

/* Applies the cap's slope to dp; score is capped. */
template <typename S, typename E>
__device__ __forceinline__ void key_slopes(
        float (&dp)[S::M][S::COLUMNS][4],
        const float (&score)[S::M][S::COLUMNS][4], E *q_tile,
        const attention_pass<E> &p)
{
#pragma unroll
    for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int column = 8 * n + column_of_thread() + j;
            float delta = facts_of<S>(q_tile, column)->delta;
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2)
                    dp[m][n][i] = sloped(p, dp[m][n][i], delta, score[m][n][i]);
        }
}

/* Turns weight into ds / scale. */
template <typename S, typename E>
__device__ __forceinline__ void key_gradients(
        float (&weight)[S::M][S::COLUMNS][4],
        const float (&dp)[S::M][S::COLUMNS][4], E *q_tile)
{
#pragma unroll
    for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int column = 8 * n + column_of_thread() + j;
            float delta = facts_of<S>(q_tile, column)->delta;
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int i = j; i < 4; i += 2)
                    weight[m][n][i] *= dp[m][n][i] - delta;
        }
}

/* Tiles of queries, from row `first` on. Stored in the padding after the first
 * row of keys, as query_facts are: the loop has no register for it. */
struct query_range {
    int first, tiles;
};

/* Finds the queries that see a key of this block, for all threads. */
template <typename S>
__device__ __forceinline__ void range_find(
        query_range *range, const attention_pass<typename S::E> &p,
        const int32_t *starts, int q0, int end)
{
    if (threadIdx.x == 0)
        *range = {q0, 0};
    __syncthreads();
    for (int i = threadIdx.x; q0 + i * S::N < p.Q; i += S::THREADS)
        if (first_of(p, starts, q0 + i * S::N) < end)
            atomicMax(&range->tiles, i + 1);
    __syncthreads();
}

/* Stores this warp's rows of dk or dv. */
template <typename S, typename E>
__device__ __forceinline__ void key_rows_store(
        E *to, int64_t stride, int k0, const attention_pass<E> &p, E *tile,
        const float (&sum)[S::M][S::D_COLUMNS][4], float scale)
{
    float factor[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; m++)
        factor[m][0] = factor[m][1] = scale;
    rows_store<S>(to, stride, k0, p.T, p.D, tile, sum, factor);
}

/* Iterates over the tiles of queries of every head that shares the keys. */
struct query_tile {
    int h, q0;
};

template <typename S>
__device__ __forceinline__ query_tile
query_tile_after(query_tile tile, query_range range)
{
    tile.q0 += S::N;
    if (tile.q0 == range.first + range.tiles * S::N)
        tile.h++, tile.q0 = range.first;
    return tile;
}

template <typename S, typename E>
__device__ __forceinline__ void queries_fetch(
        E *q_tile, const attention_pass<E> &p, int b, query_tile tile)
{
    tile_fetch<S, S::N>(
            q_tile, q_rows(p, b, tile.h), p.q_stride, tile.q0, p.Q, p.D);
    facts_fetch<S>(q_tile, p, b, tile.h, tile.q0);
}

template <typename S, typename E>
__device__ __forceinline__ void gradients_fetch(
        E *g_tile, const attention_pass<E> &p, int b, query_tile tile)
{
    tile_fetch<S, S::N>(
            g_tile, p.dout + out_at(p, b, tile.h), (int64_t)p.H * p.D, tile.q0,
            p.Q, p.D);
}

/* The first tiles of keys are seen by the most queries and run first. DK, DV:
 * which gradients this pass computes. */
template <typename S, bool DK, bool DV>
__device__ __forceinline__ void mma_dkv(const attention_pass<typename S::E> &p)
{
    typedef typename S::E E;
    ZD_SHARED(E, shared);
    E *k_tile = shared, *q_tile = k_tile + S::OWN_TILE;
    E *g_tile = q_tile + S::OTHER_TILE, *v_tile = g_tile + S::OTHER_TILE;
    int k0 = (int)blockIdx.x * S::OWN, kv = blockIdx.y, b = blockIdx.z;
    int group = p.H / p.KV, end = min(k0 + S::OWN, p.T), q0 = row_of(p, k0);
    query_tile tile = {kv * group, q0};
    if (DK)
        tile_fetch<S, S::OWN>(
                v_tile, v_rows(p, b, kv), p.v_stride, k0, p.T, p.D);
    gradients_fetch<S>(g_tile, p, b, tile);
    copy_async_commit();
    tile_fetch<S, S::OWN>(k_tile, k_rows(p, b, kv), p.k_stride, k0, p.T, p.D);
    queries_fetch<S>(q_tile, p, b, tile);
    copy_async_commit();
    query_range *range = (query_range *)(k_tile + S::DP);
    range_find<S>(range, p, starts_of(p, b), q0, end);

    float dk[DK ? S::M : 1][DK ? S::D_COLUMNS : 1][4];
    float dv[DV ? S::M : 1][DV ? S::D_COLUMNS : 1][4];
    float score[S::M][S::COLUMNS][4], dp[DK ? S::M : 1][S::COLUMNS][4];
    sums_clear(dk);
    sums_clear(dv);
    for (int left = group * range->tiles; left > 0; left--) {
        if constexpr (DK) {
            copy_async_wait<1>();
            __syncthreads(); /* dout is there */
            rows_dot<S>(dp, v_tile, g_tile);
        }
        copy_async_wait<0>();
        __syncthreads(); /* q and dout are there */
        rows_dot<S>(score, k_tile, q_tile);
        if (p.cap_in != 0.0f) {
            scores_cap<S>(score, p);
            if constexpr (DK)
                key_slopes<S>(dp, score, q_tile, p);
        }
        int last = min(S::N, p.Q - tile.q0) - 1; /* starts latest */
        int starts = attention_first(
                p.window, facts_of<S>(q_tile, last)->first,
                token_of(p, tile.q0 + last));
        bool masked = token_of(p, tile.q0) < k0 + S::OWN || starts > k0;
        key_weights<S>(score, q_tile, p, tile.q0, k0, masked);
        tile = query_tile_after<S>(tile, *range);
        if constexpr (DV)
            rows_add<S>(dv, score, g_tile);
        __syncthreads(); /* dout free */
        if (left > 1)
            gradients_fetch<S>(g_tile, p, b, tile);
        copy_async_commit();
        if constexpr (DK) {
            key_gradients<S>(score, dp, q_tile);
            rows_add<S>(dk, score, q_tile);
            __syncthreads(); /* q free */
        }
        if (left > 1)
            queries_fetch<S>(q_tile, p, b, tile);
        copy_async_commit();
    }
    if (range->tiles == 0) { /* no query sees the keys; wait for their copy */
        copy_async_wait<0>();
        __syncthreads();
    }
    int64_t row = (int64_t)b * p.T;
    if constexpr (DK)
        key_rows_store<S>(
                p.dk + row * p.k_stride + kv * p.D, p.k_stride, k0, p, v_tile,
                dk, p.scale);
    if constexpr (DV)
        key_rows_store<S>(
                p.dv + row * p.v_stride + kv * p.D, p.v_stride, k0, p, k_tile,
                dv, 1.0f);
}
