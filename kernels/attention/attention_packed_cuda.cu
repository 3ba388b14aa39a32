/* attention_packed_cuda.cu - see attention_packed.h. None of it is hot: a table
 * has one entry per document, results are copied once, and a graph's results
 * are compared only at its first use. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/attention/attention_packed.h"
}

static const int BLOCK = 256;
static const int64_t MOST_BLOCKS = 1024;

static unsigned blocks_of(int64_t count)
{
    int64_t blocks = (count + BLOCK - 1) / BLOCK;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

/* Elements per token in each table's array; T and H: for a log-sum-exp of (B,
 * H, T). */
struct packed_steps {
    int32_t step[PACKED_TABLES];
    int32_t H, T;
    bool by_head;
};

static __global__ void tables_kernel(
        int32_t *tables, int plane, const int32_t *first, int bucket,
        struct packed_steps s)
{
    for (int64_t i = thread_of_grid(); i <= bucket; i += threads_of_grid()) {
        int32_t at = first[i], sample = at / s.T;
        tables[PACKED_LENGTHS * plane + i] = i < bucket ? first[i + 1] - at : 0;
        for (int k = PACKED_Q; k < PACKED_LSE; k++)
            tables[k * plane + i] = at * s.step[k];
        tables[PACKED_LSE * plane + i] =
                s.by_head ? at : sample * s.H * s.T + at % s.T;
    }
}

extern "C" enum zd_status attention_packed_tables(
        void *stream, int32_t *tables, const struct packed_room *room,
        const struct attention_shape *shape, bool by_head)
{
    struct packed_steps s = {};
    s.step[PACKED_Q] = (int32_t)shape->q_stride;
    s.step[PACKED_K] = (int32_t)shape->k_stride;
    s.step[PACKED_V] = (int32_t)shape->v_stride;
    s.step[PACKED_OUT] = shape->H * shape->D;
    s.step[PACKED_KV] = shape->KV * shape->D;
    s.H = shape->H, s.T = shape->T, s.by_head = by_head;
    ZD_LAUNCH(
            tables_kernel, blocks_of(room->bucket + 1), BLOCK, 0,
            (cudaStream_t)stream, tables, (int)room->plane, shape->first_tokens,
            room->bucket, s);
    return ZD_OK;
}

static __global__ void lse_kernel(
        float *to, const float *lse, int B, int H, int T)
{
    int64_t tokens = (int64_t)B * T, count = tokens * H;
    for (int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
        int64_t b = i / T / H, h = i / T % H, t = i % T;
        to[h * tokens + b * T + t] = lse[i];
    }
}

extern "C" enum zd_status attention_packed_lse(
        void *stream, float *to, const float *lse,
        const struct attention_shape *shape)
{
    int64_t count = (int64_t)shape->B * shape->H * shape->T;
    ZD_LAUNCH(
            lse_kernel, blocks_of(count), BLOCK, 0, (cudaStream_t)stream, to,
            lse, shape->B, shape->H, shape->T);
    return ZD_OK;
}

/* Sizes are in packs of 16 bytes. */
struct packed_copy {
    uint4 *to;
    const uint4 *from;
    int64_t stride; /* packs between rows of `to` */
    int row;        /* packs of a row */
};

static __global__ void results_kernel(
        struct packed_copy q, struct packed_copy k, struct packed_copy v,
        int64_t tokens)
{
    int all = q.row + k.row + v.row;
    for (int64_t i = thread_of_grid(); i < tokens * all;
         i += threads_of_grid()) {
        int64_t n = i / all;
        int column = (int)(i % all);
        struct packed_copy c = q;
        if (column >= q.row + k.row) {
            c = v;
            column -= q.row + k.row;
        } else if (column >= q.row) {
            c = k;
            column -= q.row;
        }
        c.to[n * c.stride + column] = c.from[n * c.row + column];
    }
}

extern "C" enum zd_status attention_packed_results(
        void *stream, void *const to[3], const void *const from[3],
        const struct attention_shape *shape)
{
    enum { PACK = 8 };
    const int64_t strides[] = {
            shape->q_stride, shape->k_stride, shape->v_stride};
    int64_t tokens = (int64_t)shape->B * shape->T;
    struct packed_copy copies[3];
    for (int i = 0; i < 3; i++) {
        int heads = i == 0 ? shape->H : shape->KV;
        copies[i].to = (uint4 *)to[i];
        copies[i].from = (const uint4 *)from[i];
        copies[i].stride = strides[i] / PACK;
        copies[i].row = heads * shape->D / PACK;
    }
    ZD_LAUNCH(
            results_kernel,
            blocks_of(tokens * (copies[0].row + 2 * copies[1].row)), BLOCK, 0,
            (cudaStream_t)stream, copies[0], copies[1], copies[2], tokens);
    return ZD_OK;
}

template <typename T>
static __global__ void compare_kernel(
        float *worst, struct packed_rows own, struct packed_rows got, int heads,
        int D, int64_t tokens)
{
    ZD_SHARED(float, shared);
    int64_t rows = tokens * heads;
    float squares = 0, most = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        const T *x = (const T *)own.at + r / heads * own.stride + r % heads * D;
        for (int d = 0; d < D; d++)
            squares += to_float(x[d]) * to_float(x[d]);
    }
    float mean = block_sum(squares, shared) / (float)rows;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        const T *x = (const T *)own.at + r / heads * own.stride + r % heads * D;
        const T *y = (const T *)got.at + r / heads * got.stride + r % heads * D;
        float size = 0, off = 0;
        for (int d = 0; d < D; d++) {
            float apart = to_float(y[d]) - to_float(x[d]);
            size += to_float(x[d]) * to_float(x[d]);
            off += apart * apart;
        }
        float ratio = off == 0 ? 0 : sqrtf(off) / (sqrtf(size) + sqrtf(mean));
        most = fmaxf(most, ratio >= 0 ? ratio : INFINITY); /* also for NaN */
    }
    most = block_max(most, shared);
    if (threadIdx.x == 0) /* NaN is not below infinity */
        *worst = mean < INFINITY && (mean > 0 || most > 0) ? most : -1;
}

extern "C" enum zd_status attention_packed_compare(
        void *stream, float *worst, enum dtype dtype, struct packed_rows own,
        struct packed_rows got, int heads, int D, int64_t tokens)
{
    const size_t shared = MAX_WARPS * sizeof(float);
    if (dtype == DTYPE_FP32)
        ZD_LAUNCH(
                compare_kernel<float>, 1, 2 * BLOCK, shared,
                (cudaStream_t)stream, worst, own, got, heads, D, tokens);
    else if (dtype == DTYPE_BF16)
        ZD_LAUNCH(
                compare_kernel<bf16>, 1, 2 * BLOCK, shared,
                (cudaStream_t)stream, worst, own, got, heads, D, tokens);
    else
        ZD_LAUNCH(
                compare_kernel<fp16>, 1, 2 * BLOCK, shared,
                (cudaStream_t)stream, worst, own, got, heads, D, tokens);
    return ZD_OK;
}
