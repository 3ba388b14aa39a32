/* norm_cuda.cu - norms on a GPU, forward.
 *
 * A row is read once and kept in registers (norm_rows.cuh): the mean, the
 * variance about it and the result come of one pass over memory. With `b` the
 * row is a + b, rounded as it is stored, which saves the pass that would read
 * the sum again. Heads of q and k are rotated on their way out: each thread
 * norms the other half of its pairs once more,
 * which the first-level cache has. */
#include "kernels/norm/norm_rows.cuh"
#include "kernels/rope/rope.cuh"

extern "C" {
#include "kernels/norm/head_norm_rope.h"
#include "kernels/norm/norm.h"
}

struct norm_forward {
    void *sum, *out;
    float *mean, *rstd; /* mean: layernorm only */
    const void *a, *b;  /* b may be NULL: the row is a, and sum is not set */
    const void *weight, *bias;
    float eps;
    int N, C, lanes;
    int heads; /* of a token; 0: rows are dense (norm_rows.cuh) */
    int64_t out_stride, x_stride;
    enum rmsnorm_form form;
};

/* A pack of a row, normed. */
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

/* x, a normed pack, rotated: both halves as they would have been stored. */
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

/* What a block does that is the block'th of those for p. TURNS: by `angles`. */
template <typename T, int W, int PACKS, bool CENTERED, bool TURNS>
static __device__ inline void norm_forward_rows(
        const struct norm_forward &p, const struct rope_angles &angles,
        unsigned block, float (*shared)[NORM_WARPS])
{
    int lane = (int)threadIdx.x % p.lanes, team = (int)threadIdx.x / p.lanes;
    int64_t n = (int64_t)block * (NORM_BLOCK / p.lanes) + team;
    bool is_row = n < p.N;
    const T *a = (const T *)p.a + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = (const T *)p.b;
    T *out = (T *)p.out + norm_row(n, p.C, p.heads, p.out_stride);
    float x[PACKS][W], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * p.lanes + lane) * W;
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
    team_sum(&total, &squares, p.lanes, shared);
    float mean = 0.0f;
    if (CENTERED) {
        mean = total / (float)p.C;
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                float d = x[k][j] - mean;
                if ((k * p.lanes + lane) * W < p.C)
                    squares += d * d;
            }
        team_sum(&squares, &total, p.lanes, shared);
    }
    float rstd = 1.0f / sqrtf(squares / (float)p.C + p.eps);
    if (!is_row)
        return;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = (k * p.lanes + lane) * W;
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
static __global__ void norm_forward_kernel(struct norm_forward p)
{
    __shared__ float shared[2][NORM_WARPS];
    const struct rope_angles none = {};
    norm_forward_rows<T, W, PACKS, CENTERED, false>(
            p, none, blockIdx.x, shared);
}

/* q, k: the first q_blocks blocks are q's. */
struct turned_forward {
    struct norm_forward of[2];
    struct rope_angles angles;
    unsigned q_blocks;
};

template <typename T, int W, int PACKS>
static __global__ void head_norm_rope_forward_kernel(struct turned_forward p)
{
    __shared__ float shared[2][NORM_WARPS];
    bool is_k = blockIdx.x >= p.q_blocks;
    norm_forward_rows<T, W, PACKS, false, true>(
            p.of[is_k], p.angles, blockIdx.x - (is_k ? p.q_blocks : 0), shared);
}

/* --- rows too long for registers: a block to a row, several passes ----------
 */

template <typename T, bool CENTERED>
static __global__ void norm_forward_long_kernel(struct norm_forward p)
{
    __shared__ float shared[MAX_WARPS];
    int64_t n = blockIdx.x;
    const T *a = (const T *)p.a + norm_row(n, p.C, p.heads, p.x_stride);
    const T *b = p.b ? (const T *)p.b + n * p.C : NULL;
    T *sum = p.b ? (T *)p.sum + n * p.C : NULL;
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
    /* a thread reads again what it has written itself */
    const T *row = b ? sum : a;
    if (CENTERED)
        mean = block_sum(total, shared) / (float)p.C;
    for (int c = (int)threadIdx.x; c < p.C; c += NORM_BLOCK) {
        float d = to_float(row[c]) - mean;
        squares += d * d;
    }
    squares = block_sum(squares, shared);
    float rstd = 1.0f / sqrtf(squares / (float)p.C + p.eps);
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

template <typename T, int W, int PACKS, bool CENTERED>
static enum zd_status launch(cudaStream_t on, struct norm_forward p)
{
    int rows = NORM_BLOCK / p.lanes;
    ZD_LAUNCH(
            (norm_forward_kernel<T, W, PACKS, CENTERED>),
            (unsigned)ceil_div(p.N, rows), NORM_BLOCK, 0, on, p);
    return ZD_OK;
}

static bool is_wide(const struct norm_forward &p, int W)
{
    return p.C % W == 0 && p.x_stride % W == 0 && p.out_stride % W == 0 &&
           are_aligned(p.sum, p.out, p.a, p.b, p.weight, p.bias);
}

template <typename T, bool CENTERED>
static enum zd_status norm_forward_by(
        struct stream *stream, struct norm_forward p)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    cudaStream_t on = device_cuda_stream(stream);
    if (p.N <= 0)
        return ZD_OK;
    bool wide = is_wide(p, W);
    p.lanes = norm_lanes(p.C, wide ? W : 1);
    if (p.lanes == 0) {
        ZD_LAUNCH(
                (norm_forward_long_kernel<T, CENTERED>), (unsigned)p.N,
                NORM_BLOCK, 0, on, p);
        return ZD_OK;
    }
    if (!wide)
        return launch<T, 1, NORM_SINGLES, CENTERED>(on, p);
    int packs = norm_packs(p.C, W, p.lanes);
    if (packs <= PACKS / 4)
        return launch<T, W, PACKS / 4, CENTERED>(on, p);
    if (packs <= PACKS / 2)
        return launch<T, W, PACKS / 2, CENTERED>(on, p);
    if (packs <= PACKS / 4 * 3)
        return launch<T, W, PACKS / 4 * 3, CENTERED>(on, p);
    return launch<T, W, PACKS, CENTERED>(on, p);
}

template <typename T, int W, int PACKS>
static enum zd_status launch_turned(cudaStream_t on, struct turned_forward p)
{
    int rows = NORM_BLOCK / p.of[0].lanes;
    p.q_blocks = (unsigned)ceil_div(p.of[0].N, rows);
    ZD_LAUNCH(
            (head_norm_rope_forward_kernel<T, W, PACKS>),
            p.q_blocks + (unsigned)ceil_div(p.of[1].N, rows), NORM_BLOCK, 0, on,
            p);
    return ZD_OK;
}

static struct norm_forward forward_of(
        const struct head_norm_forward_args *h, float eps,
        enum rmsnorm_form form, int N, int D)
{
    struct norm_forward p = {NULL, h->out,        NULL,        h->rstd,
                             h->x, NULL,          h->weight,   NULL,
                             eps,  N * h->H,      D,           0,
                             h->H, h->out_stride, h->x_stride, form};
    return p;
}

/* Rows that lie in whole packs, as do the halves of their heads: one kernel
 * with the sums of norm_forward_by. Others in parts. */
template <typename T>
static enum zd_status head_norm_rope_forward_any(
        struct stream *stream, const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D)
{
    const int W = full_width<T>::value, PACKS = NORM_COLUMNS / W;
    const enum dtype type = dtype_of<T>::value;
    cudaStream_t on = device_cuda_stream(stream);
    struct turned_forward p = {
            {forward_of(q, eps, form, N, D), forward_of(k, eps, form, N, D)},
            *angles,
            0};
    int lanes = norm_lanes(D, W);
    if (N <= 0)
        return ZD_OK;
    if (D / 2 % W != 0 || lanes == 0 || !is_wide(p.of[0], W) ||
        !is_wide(p.of[1], W) || !are_aligned(angles->cosine, angles->sine) ||
        2 * rope_pairs_of(angles, D) != D || angles->interleaved)
        return head_norm_rope_forward_parts(
                head_norm_forward_cuda[type], rope_cuda[type], type, stream, q,
                k, angles, eps, form, N, D);
    p.of[0].lanes = p.of[1].lanes = lanes;
    int packs = norm_packs(D, W, lanes);
    if (packs <= PACKS / 4)
        return launch_turned<T, W, PACKS / 4>(on, p);
    if (packs <= PACKS / 2)
        return launch_turned<T, W, PACKS / 2>(on, p);
    if (packs <= PACKS / 4 * 3)
        return launch_turned<T, W, PACKS / 4 * 3>(on, p);
    return launch_turned<T, W, PACKS>(on, p);
}

template <typename T>
static enum zd_status add_layernorm_forward_any(
        struct stream *stream, void *sum, void *out, float *mean, float *rstd,
        const void *a, const void *b, const void *weight, const void *bias,
        float eps, int N, int C)
{
    struct norm_forward p = {
            sum, out, mean, rstd, a, b, weight, bias,
            eps, N,   C,    0,    0, 0, 0,      RMSNORM_ROUND_FIRST};
    return norm_forward_by<T, true>(stream, p);
}

template <typename T>
static enum zd_status layernorm_forward_any(
        struct stream *stream, void *out, float *mean, float *rstd,
        const void *x, const void *weight, const void *bias, float eps, int N,
        int C)
{
    return add_layernorm_forward_any<T>(
            stream, NULL, out, mean, rstd, x, NULL, weight, bias, eps, N, C);
}

template <typename T>
static enum zd_status add_rmsnorm_forward_any(
        struct stream *stream, void *sum, void *out, float *rstd, const void *a,
        const void *b, const void *weight, float eps, enum rmsnorm_form form,
        int N, int C)
{
    struct norm_forward p = {sum, out, NULL, rstd, a, b, weight, NULL,
                             eps, N,   C,    0,    0, 0, 0,      form};
    return norm_forward_by<T, false>(stream, p);
}

template <typename T>
static enum zd_status rmsnorm_forward_any(
        struct stream *stream, void *out, float *rstd, const void *x,
        const void *weight, float eps, enum rmsnorm_form form, int N, int C)
{
    return add_rmsnorm_forward_any<T>(
            stream, NULL, out, rstd, x, NULL, weight, eps, form, N, C);
}

template <typename T>
static enum zd_status head_norm_forward_any(
        struct stream *stream, void *out, float *rstd, const void *x,
        const void *weight, float eps, enum rmsnorm_form form, int N, int H,
        int D, int64_t out_stride, int64_t x_stride)
{
    struct head_norm_forward_args h = {out, rstd,       x,       weight,
                                       H,   out_stride, x_stride};
    return norm_forward_by<T, false>(stream, forward_of(&h, eps, form, N, D));
}

CUDA_DEFINE(layernorm_forward);
CUDA_DEFINE(add_layernorm_forward);
CUDA_DEFINE(rmsnorm_forward);
CUDA_DEFINE(add_rmsnorm_forward);
CUDA_DEFINE(head_norm_forward);
CUDA_DEFINE(head_norm_rope_forward);
