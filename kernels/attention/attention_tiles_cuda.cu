/* attention_tiles_cuda.cu - attention in fp32 by multiply-adds on tiles in
 * shared memory.
 *
 * A block has 16 x 16 threads and owns R = 16 I queries (or keys). For each
 * tile of R keys (or queries) it computes an R x R tile of scores; thread (ty,
 * tx) has rows ty + 16 i and columns tx + 16 j. In the sums, rows of D values,
 * the thread has columns 64 c + 4 tx .. + 3. Rows in shared memory are D + 4
 * floats apart, so that 8 neighboring threads read 16 bytes each without bank
 * conflicts.
 *
 * I is the largest for which tiles fit into 64 KB of shared memory (sm_75, the
 * smallest of all supported GPUs). */
#include "kernels/attention/attention_cuda.cuh"

static constexpr int SIDE = 16, THREADS = SIDE * SIDE;

/* The tile of a kernel: R rows of DP floats (D rounded up to 64). */
template <int DP_, int I_> struct tile_shape {
    static constexpr int DP = DP_, I = I_, R = SIDE * I_;
    static constexpr int ROW = DP_ + 4, P_ROW = R + 4;
    static constexpr int TILE = R * ROW, P_TILE = R * P_ROW;
    static constexpr int C = DP_ / 64; /* float4 columns of a thread */
};

__device__ __forceinline__ int tx_of_thread(void)
{
    return threadIdx.x % SIDE;
}

__device__ __forceinline__ int ty_of_thread(void)
{
    return threadIdx.x / SIDE;
}

/* Loads rows from `first` on into a tile; zeros beyond `count` rows and D. */
template <typename S>
__device__ void tile_load(
        float *tile, const float *from, int64_t stride, int first, int count,
        int D)
{
    for (int i = threadIdx.x; i < S::R * (S::DP / 4); i += THREADS) {
        int r = i / (S::DP / 4), d = i % (S::DP / 4) * 4;
        float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (first + r < count && d < D)
            load_floats<4>(x, from + (int64_t)(first + r) * stride + d);
        write_fp32<4>(tile + r * S::ROW + d, x);
    }
}

/* score[i][j] = row (ty + 16 i) of a  .  row (tx + 16 j) of b. */
template <typename S>
__device__ __forceinline__ void tile_dot(
        float (&score)[S::I][S::I], const float *a, const float *b)
{
    a += ty_of_thread() * S::ROW, b += tx_of_thread() * S::ROW;
#pragma unroll
    for (int i = 0; i < S::I; i++)
#pragma unroll
        for (int j = 0; j < S::I; j++)
            score[i][j] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < S::DP; d += 4) {
        float x[S::I][4], y[S::I][4];
#pragma unroll
        for (int i = 0; i < S::I; i++) {
            read_fp32<4>(x[i], a + i * SIDE * S::ROW + d);
            read_fp32<4>(y[i], b + i * SIDE * S::ROW + d);
        }
#pragma unroll
        for (int i = 0; i < S::I; i++)
#pragma unroll
            for (int j = 0; j < S::I; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    score[i][j] = fmaf(x[i][e], y[j][e], score[i][j]);
    }
}

template <typename S>
__device__ __forceinline__ void scores_cap(
        float (&score)[S::I][S::I], const attention_pass<float> &p)
{
    if (p.cap_in == 0.0f)
        return;
#pragma unroll
    for (int i = 0; i < S::I; i++)
#pragma unroll
        for (int j = 0; j < S::I; j++)
            score[i][j] = capped(p, score[i][j]);
}

template <typename S>
__device__ __forceinline__ void scores_store(
        float *p_tile, const float (&score)[S::I][S::I])
{
#pragma unroll
    for (int i = 0; i < S::I; i++)
#pragma unroll
        for (int j = 0; j < S::I; j++)
            p_tile[(ty_of_thread() + SIDE * i) * S::P_ROW + tx_of_thread() +
                   SIDE * j] = score[i][j];
}

/* sum[i] += (row ty + 16 i of p) times b, for this thread's columns. */
template <typename S>
__device__ __forceinline__ void tile_multiply_add(
        float (&sum)[S::I][S::C][4], const float *p_tile, const float *b)
{
    p_tile += ty_of_thread() * S::P_ROW, b += 4 * tx_of_thread();
#pragma unroll 2
    for (int j = 0; j < S::R; j += 4) {
        float p[S::I][4];
#pragma unroll
        for (int i = 0; i < S::I; i++)
            read_fp32<4>(p[i], p_tile + i * SIDE * S::P_ROW + j);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int c = 0; c < S::C; c++) {
                float y[4];
                read_fp32<4>(y, b + (j + e) * S::ROW + 64 * c);
#pragma unroll
                for (int i = 0; i < S::I; i++)
#pragma unroll
                    for (int x = 0; x < 4; x++)
                        sum[i][c][x] = fmaf(p[i][e], y[x], sum[i][c][x]);
            }
    }
}

/* Stores this thread's sums, each times its factor, to rows of `to`. */
template <typename S>
__device__ void sums_store(
        float *to, int64_t stride, int first, int count, int D,
        const float (&sum)[S::I][S::C][4], const float (&factor)[S::I])
{
#pragma unroll
    for (int i = 0; i < S::I; i++)
#pragma unroll
        for (int c = 0; c < S::C; c++) {
            int row = first + ty_of_thread() + SIDE * i;
            int d = 64 * c + 4 * tx_of_thread();
            float x[4];
            for (int e = 0; e < 4; e++)
                x[e] = factor[i] * sum[i][c][e];
            if (row < count && d < D)
                store_floats<4>(to + (int64_t)row * stride + d, x);
        }
}

/* Reduces over the 16 threads of a row of scores; all get the result. */
__device__ __forceinline__ float side_max(float x)
{
#ifdef ZD_EMULATE
    return zd_emulate_max(x, SIDE);
#endif
#pragma unroll
    for (int offset = SIDE / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

/* Turns scores into weights under a running maximum and rescales the sums so
 * far. Row i sees keys first[i] .. last[i] (first[i] = T: not a row). A row
 * that has seen no key yet keeps top = -inf and adds nothing. */
template <typename S>
__device__ __forceinline__ void softmax_step(
        float (&score)[S::I][S::I], float (&top)[S::I], float (&sum)[S::I],
        float (&acc)[S::I][S::C][4], const int (&first)[S::I],
        const int (&last)[S::I], int k0, float scale)
{
#pragma unroll
    for (int i = 0; i < S::I; i++) {
        float most = -INFINITY;
#pragma unroll
        for (int j = 0; j < S::I; j++) {
            int key = k0 + tx_of_thread() + SIDE * j;
            bool sees = key >= first[i] && key <= last[i];
            score[i][j] = sees ? scale * score[i][j] : -INFINITY;
            most = fmaxf(most, score[i][j]);
        }
        float new_top = fmaxf(top[i], side_max(most));
        float base = new_top == -INFINITY ? 0.0f : new_top;
        float rescale = exp2f(top[i] - base), part = 0.0f;
#pragma unroll
        for (int j = 0; j < S::I; j++) {
            score[i][j] = exp2f(score[i][j] - base);
            part += score[i][j];
        }
        sum[i] = fmaf(rescale, sum[i], lanes_sum(part, SIDE));
        top[i] = new_top;
#pragma unroll
        for (int c = 0; c < S::C; c++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[i][c][e] *= rescale;
    }
}

/* The last query tiles see the most keys and run first. */
template <typename S>
__device__ __forceinline__ void forward_by_tiles(const attention_pass<float> &p)
{
    ZD_SHARED(float, shared);
    float *own = shared, *other = own + S::TILE, *weights = other + S::TILE;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * S::R;
    int h = blockIdx.y, b = blockIdx.z, kv = h / (p.H / p.KV);
    const float *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    const int32_t *starts = starts_of(p, b);
    float top[S::I], sum[S::I], acc[S::I][S::C][4] = {};
    int first[S::I], last[S::I];
#pragma unroll
    for (int i = 0; i < S::I; i++) {
        int row = q0 + ty_of_thread() + SIDE * i;
        first[i] = row < p.Q ? first_of(p, starts, row) : p.T;
        last[i] = token_of(p, row);
        top[i] = -INFINITY, sum[i] = 0.0f;
    }
    tile_load<S>(own, q_rows(p, b, h), p.q_stride, q0, p.Q, p.D);
    int end = token_of(p, min(q0 + S::R, p.Q) - 1) + 1;
    int k0 = first_of(p, starts, q0) / S::R * S::R;
    for (; k0 < end; k0 += S::R) {
        float score[S::I][S::I];
        tile_load<S>(other, k, p.k_stride, k0, p.T, p.D);
        __syncthreads();
        tile_dot<S>(score, own, other);
        scores_cap<S>(score, p);
        softmax_step<S>(score, top, sum, acc, first, last, k0, p.scale * LOG2E);
        scores_store<S>(weights, score);
        __syncthreads();
        tile_load<S>(other, v, p.v_stride, k0, p.T, p.D);
        __syncthreads();
        tile_multiply_add<S>(acc, weights, other);
        __syncthreads();
    }
    float factor[S::I];
#pragma unroll
    for (int i = 0; i < S::I; i++) {
        int row = q0 + ty_of_thread() + SIDE * i;
        factor[i] = 1.0f / sum[i];
        if (row < p.Q && tx_of_thread() == 0)
            p.lse[lse_at(p, b, h) + row] = LN2 * (top[i] + log2f(sum[i]));
    }
    sums_store<S>(
            p.out + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.Q, p.D, acc,
            factor);
}

/* Facts of a query for backward; a tile's are in shared memory. */
struct query_facts {
    float lse, delta; /* lse times LOG2E */
    int first, last;  /* keys that it sees; first = T: not a row */
};

template <typename S>
__device__ void facts_load(
        query_facts *facts, const attention_pass<float> &p, int b, int h,
        int q0)
{
    for (int r = threadIdx.x; r < S::R; r += THREADS) {
        int row = q0 + r;
        bool is_row = row < p.Q;
        int64_t at = lse_at(p, b, h) + (is_row ? row : 0);
        facts[r].lse = is_row ? LOG2E * p.lse[at] : 0.0f;
        facts[r].delta = is_row ? p.delta[at] : 0.0f;
        facts[r].first = p.T;
        facts[r].last = token_of(p, row);
        if (is_row)
            facts[r].first = first_of(p, starts_of(p, b), row);
    }
}

/* Recomputes the weight of a key for a query. */
__device__ __forceinline__ float weight_again(
        float score, float scale, query_facts facts, int key)
{
    bool sees = key >= facts.first && key <= facts.last;
    return sees ? exp2f(scale * score - facts.lse) : 0.0f;
}

template <typename S>
__device__ __forceinline__ void dq_by_tiles(const attention_pass<float> &p)
{
    ZD_SHARED(float, shared);
    float *q_tile = shared, *g_tile = q_tile + S::TILE;
    float *k_tile = g_tile + S::TILE, *v_tile = k_tile + S::TILE;
    float *weights = v_tile + S::TILE;
    query_facts *facts = (query_facts *)(weights + S::P_TILE);
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * S::R;
    int h = blockIdx.y, b = blockIdx.z, kv = h / (p.H / p.KV);
    const float *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    float acc[S::I][S::C][4] = {};
    facts_load<S>(facts, p, b, h, q0);
    tile_load<S>(q_tile, q_rows(p, b, h), p.q_stride, q0, p.Q, p.D);
    tile_load<S>(
            g_tile, p.dout + out_at(p, b, h), (int64_t)p.H * p.D, q0, p.Q, p.D);
    int end = token_of(p, min(q0 + S::R, p.Q) - 1) + 1;
    int k0 = first_of(p, starts_of(p, b), q0) / S::R * S::R;
    for (; k0 < end; k0 += S::R) {
        float score[S::I][S::I], dp[S::I][S::I];
        tile_load<S>(k_tile, k, p.k_stride, k0, p.T, p.D);
        tile_load<S>(v_tile, v, p.v_stride, k0, p.T, p.D);
        __syncthreads();
        tile_dot<S>(score, q_tile, k_tile);
        tile_dot<S>(dp, g_tile, v_tile);
        scores_cap<S>(score, p);
#pragma unroll
        for (int i = 0; i < S::I; i++) {
            int r = ty_of_thread() + SIDE * i;
            query_facts f = facts[r];
#pragma unroll
            for (int j = 0; j < S::I; j++) {
                int key = k0 + tx_of_thread() + SIDE * j;
                float w = weight_again(score[i][j], p.scale * LOG2E, f, key);
                score[i][j] =
                        w * (dp[i][j] - f.delta) * cap_slope(p, score[i][j]);
            }
        }
        scores_store<S>(weights, score);
        __syncthreads();
        tile_multiply_add<S>(acc, weights, k_tile);
        __syncthreads();
    }
    float factor[S::I];
#pragma unroll
    for (int i = 0; i < S::I; i++)
        factor[i] = p.scale;
    float *dq = p.dq + (int64_t)b * p.Q * p.q_stride + h * p.D;
    sums_store<S>(dq, p.q_stride, q0, p.Q, p.D, acc, factor);
}

/* Adds the contributions of one loaded tile of queries to dv and dk of a tile
 * of keys. */
template <typename S>
__device__ void keys_step(
        float (&sum_k)[S::I][S::C][4], float (&sum_v)[S::I][S::C][4],
        const float *k_tile, const float *v_tile, const float *q_tile,
        const float *g_tile, float *weights, const query_facts *facts, int k0,
        const attention_pass<float> &p)
{
    float score[S::I][S::I], dp[S::I][S::I];
    tile_dot<S>(score, k_tile, q_tile);
    tile_dot<S>(dp, v_tile, g_tile);
    scores_cap<S>(score, p);
#pragma unroll
    for (int j = 0; j < S::I; j++) {
        int r = tx_of_thread() + SIDE * j;
        query_facts f = facts[r];
#pragma unroll
        for (int i = 0; i < S::I; i++) {
            int key = k0 + ty_of_thread() + SIDE * i;
            float slope = cap_slope(p, score[i][j]);
            score[i][j] = weight_again(score[i][j], p.scale * LOG2E, f, key);
            dp[i][j] = score[i][j] * (dp[i][j] - f.delta) * slope;
        }
    }
    scores_store<S>(weights, score);
    __syncthreads();
    tile_multiply_add<S>(sum_v, weights, g_tile);
    __syncthreads();
    scores_store<S>(weights, dp);
    __syncthreads();
    tile_multiply_add<S>(sum_k, weights, q_tile);
    __syncthreads();
}

/* A tile of keys of a key/value head: sums over all heads of its group. The
 * first tiles are seen by the most queries and run first. */
template <typename S>
__device__ __forceinline__ void dkv_by_tiles(const attention_pass<float> &p)
{
    ZD_SHARED(float, shared);
    float *k_tile = shared, *v_tile = k_tile + S::TILE;
    float *q_tile = v_tile + S::TILE, *g_tile = q_tile + S::TILE;
    float *weights = g_tile + S::TILE;
    query_facts *facts = (query_facts *)(weights + S::P_TILE);
    int k0 = (int)blockIdx.x * S::R, kv = blockIdx.y, b = blockIdx.z;
    int group = p.H / p.KV, end = min(k0 + S::R, p.T);
    const int32_t *starts = starts_of(p, b);
    float sum_k[S::I][S::C][4] = {}, sum_v[S::I][S::C][4] = {};
    tile_load<S>(k_tile, k_rows(p, b, kv), p.k_stride, k0, p.T, p.D);
    tile_load<S>(v_tile, v_rows(p, b, kv), p.v_stride, k0, p.T, p.D);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        const float *q = q_rows(p, b, h), *dout = p.dout + out_at(p, b, h);
        for (int q0 = row_of(p, k0); q0 < p.Q && first_of(p, starts, q0) < end;
             q0 += S::R) {
            tile_load<S>(q_tile, q, p.q_stride, q0, p.Q, p.D);
            tile_load<S>(g_tile, dout, (int64_t)p.H * p.D, q0, p.Q, p.D);
            facts_load<S>(facts, p, b, h, q0);
            __syncthreads();
            keys_step<S>(
                    sum_k, sum_v, k_tile, v_tile, q_tile, g_tile, weights,
                    facts, k0, p);
        }
    }
    float factor_k[S::I], factor_v[S::I];
#pragma unroll
    for (int i = 0; i < S::I; i++)
        factor_k[i] = p.scale, factor_v[i] = 1.0f;
    float *dk = p.dk + (int64_t)b * p.T * p.k_stride + kv * p.D;
    float *dv = p.dv + (int64_t)b * p.T * p.v_stride + kv * p.D;
    sums_store<S>(dk, p.k_stride, k0, p.T, p.D, sum_k, factor_k);
    sums_store<S>(dv, p.v_stride, k0, p.T, p.D, sum_v, factor_v);
}

template <typename S>
__global__ void __launch_bounds__(THREADS, 2)
        tiles_forward_kernel(const attention_pass<float> p)
{
    forward_by_tiles<S>(p);
}

template <typename S>
__global__ void __launch_bounds__(THREADS, 2)
        tiles_dq_kernel(const attention_pass<float> p)
{
    dq_by_tiles<S>(p);
}

template <typename S>
__global__ void __launch_bounds__(THREADS, 2)
        tiles_dkv_kernel(const attention_pass<float> p)
{
    dkv_by_tiles<S>(p);
}

template <typename S>
static enum zd_status forward_with(
        cudaStream_t stream, const attention_pass<float> &p)
{
    size_t bytes = (2 * S::TILE + S::P_TILE) * sizeof(float);
    dim3 grid((p.Q + S::R - 1) / S::R, p.H, p.B);
    ZD_TRY(attention_allow_shared(
            (const void *)tiles_forward_kernel<S>, bytes));
    ZD_LAUNCH((tiles_forward_kernel<S>), grid, THREADS, bytes, stream, p);
    return ZD_OK;
}

template <typename S>
static enum zd_status backward_with(
        cudaStream_t stream, const attention_pass<float> &p)
{
    size_t bytes = (4 * S::TILE + S::P_TILE) * sizeof(float) +
                   S::R * sizeof(query_facts);
    dim3 queries((p.Q + S::R - 1) / S::R, p.H, p.B);
    dim3 keys((p.T + S::R - 1) / S::R, p.KV, p.B);
    ZD_TRY(row_deltas(stream, p));
    ZD_TRY(attention_allow_shared((const void *)tiles_dq_kernel<S>, bytes));
    ZD_LAUNCH((tiles_dq_kernel<S>), queries, THREADS, bytes, stream, p);
    ZD_TRY(attention_allow_shared((const void *)tiles_dkv_kernel<S>, bytes));
    ZD_LAUNCH((tiles_dkv_kernel<S>), keys, THREADS, bytes, stream, p);
    return ZD_OK;
}

enum zd_status tiles_forward(
        cudaStream_t stream, const attention_pass<float> &p)
{
    if (p.D <= 64)
        return forward_with<tile_shape<64, 4>>(stream, p);
    return forward_with<tile_shape<128, 2>>(stream, p);
}

enum zd_status tiles_backward(
        cudaStream_t stream, const attention_pass<float> &p)
{
    if (p.D <= 64)
        return backward_with<tile_shape<64, 2>>(stream, p);
    return backward_with<tile_shape<128, 1>>(stream, p);
}
