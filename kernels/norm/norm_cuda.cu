/* norm_cuda.cu - norms on a GPU, forward.
 *
 * A row is read once and kept in registers (norm_rows.cuh), so mean, variance
 * and result need one pass over memory. With `b` the row is a + b, rounded as
 * it is stored, which saves reading the sum again. Heads of q and k are rotated
 * before they are stored: each thread also norms the other half of its pairs,
 * which it reads from the first-level cache. */
#include "kernels/norm/norm_rows.cuh"
#include "kernels/rope/rope.cuh"

/* Norms a pack of a row. */
template <typename T, int W>
static __device__ inline void center_pack(
        float (&x)[W], const T *weight, const T *bias, float mean, float rstd)
{
    float w[W], shift[W];
    load_floats<W>(w, weight);
    load_floats<W>(shift, bias);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = (x[j] - mean) * rstd * w[j] + shift[j];
}

/* The same without a mean. */
template <typename T, int W>
static __device__ inline void scale_pack(
        float (&x)[W], const T *weight, float rstd, enum rmsnorm_form form)
{
    float w[W];
    load_floats<W>(w, weight);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = norm_scaled<T>(x[j] * rstd, w[j], form);
}

/* Rotates x, a normed pack, with both halves rounded to T first. */
template <typename T, int W>
static __device__ inline void turn_normed(
        float (&x)[W], const struct norm_forward &p,
        const struct rope_angles &angles, int64_t n, const T *row, int c,
        float rstd)
{
    float mate[W];
    int m = mate_of(c, p.C);
    load_floats<W>(mate, row + m);
    scale_pack(mate, (const T *)p.weight + m, rstd, p.form);
    unpack(x, packed<T, W>(x));
    unpack(mate, packed<T, W>(mate));
    turn_half<W>(x, mate, angles, norm_token(n, p.heads), c, p.C, 1.0f);
}

/* The work of block `block` on p. TURNS: rotate by `angles`. */
template <typename T, int W, int PACKS, bool CENTERED, bool TURNS>
static __device__ inline void norm_forward_rows(
        const struct norm_forward &p, int lanes,
        const struct rope_angles &angles, unsigned block,
        float (*shared)[NORM_WARPS])
{
    int lane = (int)threadIdx.x % lanes, team = (int)threadIdx.x / lanes;
    int64_t n = (int64_t)block * (NORM_BLOCK / lanes) + team;
    bool is_row = n < p.N;
    const T *a = (const T *)p.x + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = (const T *)p.add;
    T *out = (T *)p.out + norm_row(n, p.C, p.heads, p.out_stride);
    float x[PACKS][W], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * lanes + lane) * W;
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
            if (!CENTERED)
                squares += x[k][j] * x[k][j];
        }
    }
    team_sum(&total, &squares, lanes, shared);
    float mean = 0.0f;
    if (CENTERED) {
        mean = total / (float)p.C;
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                float d = x[k][j] - mean;
                if ((k * lanes + lane) * W < p.C)
                    squares += d * d;
            }
        team_sum(&squares, &total, lanes, shared);
    }
    if (!is_row)
        return;
    if (!p.out) {
        if (lane == 0)
            p.parts.mine[n] = squares;
        return;
    }
    squares = norm_sum(&p.parts, n, squares);
    float rstd =
            1.0f / sqrtf(squares / (float)norm_width(&p.parts, p.C) + p.eps);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * lanes + lane) * W;
        if (c >= p.C)
            break;
        if (CENTERED)
            center_pack(
                    x[k], (const T *)p.weight + c, (const T *)p.bias + c, mean,
                    rstd);
        else
            scale_pack(x[k], (const T *)p.weight + c, rstd, p.form);
        if (TURNS)
            turn_normed(x[k], p, angles, n, a, c, rstd);
        store_floats<W>(out + c, x[k]);
    }
    if (lane == 0) {
        if (CENTERED)
            p.mean[n] = mean;
        p.rstd[n] = rstd;
    }
}

template <typename T, int W, int PACKS, bool CENTERED>
static __global__ void norm_forward_kernel(struct norm_forward p, int lanes)
{
    __shared__ float shared[2][NORM_WARPS];
    const struct rope_angles none = {};
    norm_forward_rows<T, W, PACKS, CENTERED, false>(
            p, lanes, none, blockIdx.x, shared);
}

/* q, k: the first q_blocks blocks are q's. */
struct turned_forward {
    struct norm_forward of[2];
    struct rope_angles angles;
    unsigned q_blocks;
    int lanes;
};

template <typename T, int W, int PACKS>
static __global__ void head_norm_rope_forward_kernel(struct turned_forward p)
{
    __shared__ float shared[2][NORM_WARPS];
    bool is_k = blockIdx.x >= p.q_blocks;
    norm_forward_rows<T, W, PACKS, false, true>(
            p.of[is_k], p.lanes, p.angles, blockIdx.x - (is_k ? p.q_blocks : 0),
            shared);
}

/* --- rows too long for registers: a block to a row, several passes ----------
 */

template <typename T, bool CENTERED>
static __global__ void norm_forward_long_kernel(struct norm_forward p)
{
    __shared__ float shared[MAX_WARPS];
    int64_t n = blockIdx.x;
    const T *a = (const T *)p.x + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = p.add ? (const T *)p.add + n * p.C : NULL;
    T *sum = p.add ? (T *)p.sum + n * p.C : NULL;
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
    /* a thread reads only what it has written itself */
    const T *row = b ? sum : a;
    if (CENTERED)
        mean = block_sum(total, shared) / (float)p.C;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float d = to_float(row[c]) - mean;
        squares += d * d;
    }
    squares = block_sum(squares, shared);
    if (!p.out) {
        if (threadIdx.x == 0)
            p.parts.mine[n] = squares;
        return;
    }
    squares = norm_sum(&p.parts, n, squares);
    float rstd =
            1.0f / sqrtf(squares / (float)norm_width(&p.parts, p.C) + p.eps);
    T *out = (T *)p.out + norm_row(n, p.C, p.heads, p.out_stride);
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float x = (to_float(row[c]) - mean) * rstd;
        float w = to_float(((const T *)p.weight)[c]);
        out[c] = from_float<T>(
                CENTERED ? x * w + to_float(((const T *)p.bias)[c])
                         : norm_scaled<T>(x, w, p.form));
    }
    if (threadIdx.x == 0) {
        if (CENTERED)
            p.mean[n] = mean;
        p.rstd[n] = rstd;
    }
}

/* --- launches ----------------------------------------------------------------
 */

static bool is_wide(const struct norm_forward &p, int W)
{
    bool gaps = p.heads && (p.x_stride % W != 0 || p.out_stride % W != 0);
    return p.C % W == 0 && !gaps &&
           are_aligned(p.sum, p.out, p.x, p.add, p.weight, p.bias);
}

/* p.N: rows. */
template <typename T, bool CENTERED>
static enum zd_status norm_forward_by(
        cudaStream_t on, const struct norm_forward &p)
{
    const int W = full_width<T>::value;
    bool wide = is_wide(p, W);
    int lanes = norm_lanes(p.C, wide ? W : 1, NORM_COLUMNS);
    if (lanes == 0) {
        ZD_LAUNCH(
                (norm_forward_long_kernel<T, CENTERED>), (unsigned)p.N,
                NORM_BLOCK, 0, on, p);
        return ZD_OK;
    }
    unsigned grid = (unsigned)ceil_div(p.N, NORM_BLOCK / lanes);
    if (!wide) {
        ZD_LAUNCH(
                (norm_forward_kernel<T, 1, NORM_SINGLES, CENTERED>), grid,
                NORM_BLOCK, 0, on, p, lanes);
        return ZD_OK;
    }
    return by_packs<T>(norm_packs(p.C, W, lanes), [&](auto packs) {
        const int PACKS = decltype(packs)::value;
        ZD_LAUNCH(
                (norm_forward_kernel<T, W, PACKS, CENTERED>), grid, NORM_BLOCK,
                0, on, p, lanes);
        return ZD_OK;
    });
}

template <typename T>
static enum zd_status norm_forward_any(
        struct stream *stream, const struct norm_forward *norm)
{
    cudaStream_t on = device_cuda_stream(stream);
    struct norm_forward p = *norm;
    p.N = (int)norm_rows(norm->N, norm->heads);
    if (p.N <= 0)
        return ZD_OK;
    return p.mean ? norm_forward_by<T, true>(on, p)
                  : norm_forward_by<T, false>(on, p);
}

/* One kernel if rows and halves of heads are whole packs; its sums have the
 * order of norm_forward_by. */
template <typename T>
static enum zd_status head_norm_rope_forward_any(
        struct stream *stream, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles)
{
    const int W = full_width<T>::value, D = q->C;
    cudaStream_t on = device_cuda_stream(stream);
    int lanes = norm_lanes(D, W, NORM_COLUMNS);
    struct turned_forward p = {{*q, *k}, *angles, 0, lanes};
    if (q->N <= 0)
        return ZD_OK;
    if (lanes == 0 || !is_wide(*q, W) || !is_wide(*k, W) ||
        !turns_in_packs(angles, D, W))
        return ZD_ERR_UNFIT;
    for (int i = 0; i < 2; i++)
        p.of[i].N *= p.of[i].heads;
    p.q_blocks = (unsigned)ceil_div(p.of[0].N, NORM_BLOCK / lanes);
    unsigned blocks =
            p.q_blocks + (unsigned)ceil_div(p.of[1].N, NORM_BLOCK / lanes);
    return by_packs<T>(norm_packs(D, W, lanes), [&](auto packs) {
        ZD_LAUNCH(
                (head_norm_rope_forward_kernel<T, W, decltype(packs)::value>),
                blocks, NORM_BLOCK, 0, on, p);
        return ZD_OK;
    });
}

CUDA_DEFINE(norm_forward);
CUDA_DEFINE(head_norm_rope_forward);
