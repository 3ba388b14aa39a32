/* attention_mma_dq.cuh - attention on tensor cores, the gradient of queries:
 *
 *   own q, dout;  other k, v:  dp = dout v', s = q k', dq += ds k
 *
 * Source: Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithm 2. There dq
 * is summed by atomics in the pass over keys (five matmuls in all); here it has
 * its own pass, which repeats two matmuls, so that sums have a fixed order. */
#pragma once

#include "kernels/attention/attention_mma_tiles.cuh"

/* Turns score into ds / scale = p (dp - delta); rows are queries. */
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
__device__ __forceinline__ void query_slopes(
        float (&dp)[S::M][S::COLUMNS][4],
        const float (&score)[S::M][S::COLUMNS][4],
        const float (&delta)[S::M][2], const attention_pass<typename S::E> &p)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] =
                        sloped(p, dp[m][n][i], delta[m][i / 2], score[m][n][i]);
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
    const int32_t *starts = starts_of(p, b);
    int last = min(q0 + S::OWN, p.Q) - 1, end = token_of(p, last) + 1;
    int last_first = first_of(p, starts, last), t0 = token_of(p, q0);
    int k0 = first_of(p, starts, q0) / S::N * S::N;
    tile_fetch<S, S::OWN>(
            g_tile, p.dout + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.Q, p.D);
    tile_fetch<S, S::N>(v_tile, v, p.v_stride, k0, p.T, p.D);
    copy_async_commit();
    tile_fetch<S, S::OWN>(q_tile, q_rows(p, b, h), p.q_stride, q0, p.Q, p.D);
    tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0, p.T, p.D);
    copy_async_commit();

    float dq[S::M][S::D_COLUMNS][4], score[S::M][S::COLUMNS][4];
    float dp[S::M][S::COLUMNS][4], lse[S::M][2], delta[S::M][2];
    sums_clear(dq);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = q0 + own_row<S>(m, i);
            bool is_row = row < p.Q;
            int64_t at = lse_at(p, b, h) + (is_row ? row : 0);
            lse[m][i] = is_row ? LOG2E * p.lse[at] : 0.0f;
            delta[m][i] = is_row ? p.delta[at] : 0.0f;
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
        if (p.cap_in != 0.0f) {
            scores_cap<S>(score, p);
            query_slopes<S>(dp, score, delta, p);
        }
        if (k0 + S::N - 1 > t0 || k0 < last_first)
            scores_mask<S>(score, p, starts, q0, k0);
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
            p.dq + (int64_t)b * p.Q * p.q_stride + h * p.D, p.q_stride, q0, p.Q,
            p.D, q_tile, dq, factor);
}
