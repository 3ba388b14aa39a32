/* attention_mma_forward.cuh - attention on tensor cores, forward:
 *
 *   own q;  other k, v:  s = q k', out += p v
 *
 * The tiles of k and v are copied asynchronously: each is refilled as soon as
 * the block has finished reading it, while the block works on the other.
 *
 * Source: Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithm 1. */
#pragma once

#include "kernels/attention/attention_mma_tiles.cuh"

template <int M> struct running_softmax {
    float top[M][2], sum[M][2]; /* sum: over this thread's columns only */
};

/* Turns scores into weights 2^(scale score - scale top) and rescales the sums
 * so far. scale > 0. */
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

/* factor = 1 / sum of each row; stores the rows' log-sum-exp to `lse`. */
template <typename S>
__device__ __forceinline__ void softmax_end(
        float (&factor)[S::M][2], const running_softmax<S::M> &run, float *lse,
        int q0, int Q, float scale)
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
            if (row < Q && column_of_thread() == 0)
                lse[row] = LN2 * (scale * run.top[m][i] + log2f(sum));
        }
}

/* The last query tiles see the most keys and run first. */
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
    const E *k = k_rows(p, b, kv);
    const int32_t *starts = starts_of(p, b);
    const tile_facts *facts = (const tile_facts *)(q_tile + S::DP);
    tile_sources<E> *from = (tile_sources<E> *)(q_tile + S::ROW + S::DP);
    if (threadIdx.x == 0)
        *from = {k, v_rows(p, b, kv)};
    int k0 = facts_begin<S>(q_tile, p, starts, q0);
    tile_fetch<S, S::OWN>(q_tile, q_rows(p, b, h), p.q_stride, q0, p.Q, p.D);
    tile_fetch<S, S::N>(k_tile, k, p.k_stride, k0, p.T, p.D);
    copy_async_commit();

    running_softmax<S::M> run;
    float out[S::M][S::D_COLUMNS][4], score[S::M][S::COLUMNS][4];
    sums_clear(out);
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            run.top[m][i] = -INFINITY, run.sum[m][i] = 0.0f;
    do {
        copy_async_wait<0>();
        __syncthreads(); /* k is there, v free */
        tile_fetch<S, S::N>(v_tile, from->v, p.v_stride, k0, p.T, p.D);
        copy_async_commit();
        rows_dot<S>(score, q_tile, k_tile);
        if (p.cap_in != 0.0f)
            scores_cap<S>(score, p);
        copy_async_wait<0>();
        __syncthreads(); /* v is there, k free */
        if (is_masked<S>(*facts, k0))
            scores_mask<S>(score, p, starts, q0, k0);
        softmax_step<S>(score, run, out, p.scale * LOG2E);
        k0 += S::N;
        if (k0 < facts->end)
            tile_fetch<S, S::N>(k_tile, from->k, p.k_stride, k0, p.T, p.D);
        copy_async_commit();
        rows_add<S>(out, score, v_tile);
    } while (k0 < facts->end);
    float factor[S::M][2];
    softmax_end<S>(
            factor, run, p.lse + lse_at(p, b, h), q0, p.Q, p.scale * LOG2E);
    rows_store<S>(
            p.out + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.Q, p.D, q_tile,
            out, factor);
}
