/* attention_rows_cuda.cu - attention of any shape, a block per row.
 *
 * The warps of a block divide the rows of the other side and keep their sums in
 * registers; the block adds these in the order of the warps. Also decoding: few
 * queries, many keys. */
#include "kernels/attention/attention_cuda.cuh"

static constexpr int WARPS = 4;
static constexpr int MAX_D = 512;

/* A row spread over a warp: lane l holds elements l, l + 32, ... (N of them).
 */
template <int N, typename E>
__device__ __forceinline__ void row_load(float (&x)[N], const E *row, int D)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int d = lane + 32 * i;
        x[i] = d < D ? to_float(row[d]) : 0.0f;
    }
}

template <int N>
__device__ __forceinline__ float row_dot(
        const float (&x)[N], const float (&y)[N])
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum = fmaf(x[i], y[i], sum);
    return warp_sum(sum);
}

template <int N>
__device__ __forceinline__ void row_add(
        float (&x)[N], float factor, const float (&y)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = fmaf(factor, y[i], x[i]);
}

/* Sums the warps' rows over the block; the first warp scales and stores it. */
template <int N, typename E>
__device__ void row_store(
        E *out, const float (&x)[N], float factor, int D, float *shared)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads(); /* `shared` may still be read */
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < D)
            shared[warp * MAX_D + lane + 32 * i] = factor * x[i];
    __syncthreads();
    for (int d = threadIdx.x; d < D; d += 32 * WARPS) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++)
            sum += shared[w * MAX_D + d];
        out[d] = from_float<E>(sum);
    }
}

/* Query row blockIdx.x of head blockIdx.y: each warp runs an online softmax
 * over its share of the keys, then the block merges the warps. */
template <typename E, int N>
__global__ void __launch_bounds__(32 * WARPS)
        rows_forward_kernel(const attention_pass<E> p)
{
    __shared__ float rows[WARPS * MAX_D], tops[WARPS], sums[WARPS];
    int t = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int kv = h / (p.H / p.KV);
    const E *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    int last = p.past + token_of(p, t);
    int start = p.doc_start ? starts_of(p, b)[t] : 0;
    int first = attention_first(p.window, start, last);
    float q[N], x[N], acc[N] = {0.0f}, top = -INFINITY, sum = 0.0f;
    row_load(q, q_rows(p, b, h) + t * p.q_stride, p.D);
    for (int j = first + warp; j <= last; j += WARPS) {
        row_load(x, k + j * p.k_stride, p.D);
        float s = p.scale * LOG2E * capped(p, row_dot(q, x));
        float new_top = fmaxf(top, s), rescale = exp2f(top - new_top);
        float e = exp2f(s - new_top);
        row_load(x, v + j * p.v_stride, p.D);
#pragma unroll
        for (int i = 0; i < N; i++)
            acc[i] = fmaf(e, x[i], rescale * acc[i]);
        sum = fmaf(rescale, sum, e);
        top = new_top;
    }
    if (lane == 0)
        tops[warp] = top, sums[warp] = sum;
    __syncthreads();
    float all_top = -INFINITY, all = 0.0f;
    for (int w = 0; w < WARPS; w++)
        all_top = fmaxf(all_top, tops[w]);
    for (int w = 0; w < WARPS; w++)
        all += sums[w] * exp2f(tops[w] - all_top);
    row_store(
            p.out + out_at(p, b, h) + (int64_t)t * p.H * p.D, acc,
            exp2f(top - all_top) / all, p.D, rows);
    if (p.lse && threadIdx.x == 0)
        p.lse[lse_at(p, b, h) + t] = LN2 * (all_top + log2f(all));
}

template <typename E, int N>
__global__ void __launch_bounds__(32 * WARPS)
        rows_dq_kernel(const attention_pass<E> p)
{
    __shared__ float rows[WARPS * MAX_D];
    int t = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    int warp = threadIdx.x >> 5, kv = h / (p.H / p.KV);
    const E *k = k_rows(p, b, kv), *v = v_rows(p, b, kv);
    float lse = p.lse[lse_at(p, b, h) + t];
    float delta = p.delta[lse_at(p, b, h) + t];
    int first = first_of(p, starts_of(p, b), t), last = token_of(p, t);
    float q[N], g[N], x[N], y[N], acc[N] = {0.0f};
    row_load(q, q_rows(p, b, h) + t * p.q_stride, p.D);
    row_load(g, p.dout + out_at(p, b, h) + (int64_t)t * p.H * p.D, p.D);
    for (int j = first + warp; j <= last; j += WARPS) {
        row_load(x, k + j * p.k_stride, p.D);
        row_load(y, v + j * p.v_stride, p.D);
        float s = capped(p, row_dot(q, x));
        float e = exp2f(LOG2E * (p.scale * s - lse));
        row_add(acc, e * (row_dot(g, y) - delta) * cap_slope(p, s), x);
    }
    E *dq = p.dq + ((int64_t)b * p.Q + t) * p.q_stride + h * p.D;
    row_store(dq, acc, p.scale, p.D, rows);
}

/* Key blockIdx.x of key/value head blockIdx.y: sums over all heads of its group
 * and all tokens that see it. */
template <typename E, int N>
__global__ void __launch_bounds__(32 * WARPS)
        rows_dkv_kernel(const attention_pass<E> p)
{
    __shared__ float rows[WARPS * MAX_D];
    int j = blockIdx.x, kv = blockIdx.y, b = blockIdx.z;
    int warp = threadIdx.x >> 5, group = p.H / p.KV;
    const int32_t *starts = starts_of(p, b);
    int begin = row_of(p, j);
    float k[N], v[N], x[N], y[N], sum_k[N] = {0.0f}, sum_v[N] = {0.0f};
    row_load(k, k_rows(p, b, kv) + j * p.k_stride, p.D);
    row_load(v, v_rows(p, b, kv) + j * p.v_stride, p.D);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        const E *q = q_rows(p, b, h), *dout = p.dout + out_at(p, b, h);
        const float *lse = p.lse + lse_at(p, b, h);
        const float *delta = p.delta + lse_at(p, b, h);
        for (int t = begin + warp; t < p.Q && first_of(p, starts, t) <= j;
             t += WARPS) {
            row_load(x, q + t * p.q_stride, p.D);
            row_load(y, dout + (int64_t)t * p.H * p.D, p.D);
            float s = capped(p, row_dot(k, x));
            float e = exp2f(LOG2E * (p.scale * s - lse[t]));
            row_add(sum_v, e, y);
            row_add(sum_k, e * (row_dot(v, y) - delta[t]) * cap_slope(p, s), x);
        }
    }
    int64_t token = (int64_t)b * p.T + j;
    row_store(p.dk + token * p.k_stride + kv * p.D, sum_k, p.scale, p.D, rows);
    row_store(p.dv + token * p.v_stride + kv * p.D, sum_v, 1.0f, p.D, rows);
}

/* `lanes` neighboring threads (a power of two) per row of each head; each reads
 * W elements at a time. */
template <typename E, int W>
__global__ void __launch_bounds__(32 * WARPS)
        row_delta_kernel(const attention_pass<E> p, int lanes)
{
    int lane = (int)threadIdx.x % lanes, rows = 32 * WARPS / lanes;
    int t = (int)blockIdx.x * rows + (int)threadIdx.x / lanes;
    int h = blockIdx.y, b = blockIdx.z;
    int64_t at = out_at(p, b, h) + (int64_t)t * p.H * p.D;
    float sum = 0.0f;
    for (int d = lane * W; t < p.Q && d < p.D; d += lanes * W) {
        float out[W], dout[W];
        load_floats<W>(out, p.out + at + d);
        load_floats<W>(dout, p.dout + at + d);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum = fmaf(out[j], dout[j], sum);
    }
    sum = lanes_sum(sum, lanes);
    if (lane == 0 && t < p.Q)
        p.delta[lse_at(p, b, h) + t] = sum;
}

template <typename E>
enum zd_status row_deltas(cudaStream_t stream, const attention_pass<E> &p)
{
    bool is_packed =
            p.D % full_width<E>::value == 0 && are_aligned(p.out, p.dout);
    return by_width<E>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        int lanes = 1;
        while (lanes < 32 && lanes * W < p.D)
            lanes *= 2;
        int rows = 32 * WARPS / lanes;
        dim3 grid((unsigned)ceil_div(p.Q, rows), p.H, p.B);
        ZD_LAUNCH(
                (row_delta_kernel<E, W>), grid, 32 * WARPS, 0, stream, p,
                lanes);
        return ZD_OK;
    });
}

template <typename E>
enum zd_status rows_forward(cudaStream_t stream, const attention_pass<E> &p)
{
    dim3 grid(p.Q, p.H, p.B);
    if (p.D <= 128)
        ZD_LAUNCH((rows_forward_kernel<E, 4>), grid, 32 * WARPS, 0, stream, p);
    else
        ZD_LAUNCH((rows_forward_kernel<E, 16>), grid, 32 * WARPS, 0, stream, p);
    return ZD_OK;
}

template <typename E>
enum zd_status rows_backward(cudaStream_t stream, const attention_pass<E> &p)
{
    dim3 queries(p.Q, p.H, p.B), keys(p.T, p.KV, p.B);
    ZD_TRY(row_deltas(stream, p));
    if (p.D <= 128) {
        ZD_LAUNCH((rows_dq_kernel<E, 4>), queries, 32 * WARPS, 0, stream, p);
        ZD_LAUNCH((rows_dkv_kernel<E, 4>), keys, 32 * WARPS, 0, stream, p);
    } else {
        ZD_LAUNCH((rows_dq_kernel<E, 16>), queries, 32 * WARPS, 0, stream, p);
        ZD_LAUNCH((rows_dkv_kernel<E, 16>), keys, 32 * WARPS, 0, stream, p);
    }
    return ZD_OK;
}

#define ROWS(E)                                                                \
    template enum zd_status rows_forward<E>(                                   \
            cudaStream_t, const attention_pass<E> &);                          \
    template enum zd_status rows_backward<E>(                                  \
            cudaStream_t, const attention_pass<E> &);                          \
    template enum zd_status row_deltas<E>(                                     \
            cudaStream_t, const attention_pass<E> &);
ROWS(float)
ROWS(bf16)
ROWS(fp16)
#undef ROWS
