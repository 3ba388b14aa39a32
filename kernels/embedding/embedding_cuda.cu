/* embedding_cuda.cu - embeddings on a GPU.
 *
 * Backward: `order` lists the tokens by id, so that equal ids form runs. The
 * list is cut into pieces of 32 tokens; a block adds up each run within its
 * piece, in token order. A run that is complete within the piece is added to
 * its row of the table at once: no other block has that row. The sum of a run
 * that extends to a neighboring piece goes to the workspace,
 *
 *   piece      |  p          |  p + 1      |  p + 2      |
 *   ids         3 3 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 7 7 7 7
 *   left              (LAST) |    (FIRST)  | (FIRST)
 *
 * as the sum of the piece's FIRST run when it began before, else of its LAST.
 * A second kernel adds up such a run in the order of the pieces, in the block
 * of the piece where it begins. So many blocks share long runs (positions,
 * frequent tokens), and the order of every sum depends only on the ids. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/embedding/embedding.h"
}

enum {
    FORWARD_BLOCK = 128,
    BACKWARD_BLOCK = 128,
    FIRST = 0,
    LAST = 1,
    NO_ID = -1
};

template <typename T, int W>
static __global__ void embedding_forward_kernel(
        T *out, const int32_t *ids, const T *table, int C, int tiles, bool add)
{
    int64_t n = blockIdx.x / (unsigned)tiles;
    int tile = (int)(blockIdx.x % (unsigned)tiles);
    int c = (tile * FORWARD_BLOCK + (int)threadIdx.x) * W;
    if (c >= C)
        return;
    float zeros[W] = {0};
    pack<T, W> e = packed<T, W>(zeros);
    if (ids[n] >= 0)
        e = load_pack<W>(table + (int64_t)ids[n] * C + c);
    T *to = out + n * C + c;
    if (add) {
        float x[W], y[W];
        unpack(x, e);
        load_floats<W>(y, to);
#pragma unroll
        for (int j = 0; j < W; j++)
            y[j] += x[j];
        e = packed<T, W>(y);
    }
    store_pack<W>(to, e);
}

/* The token list. */
struct embedding_list {
    const int32_t *ids, *order;
    int N;
};

static __device__ inline int32_t id_at(struct embedding_list list, int i)
{
    return list.ids[list.order[i]];
}

static __device__ inline int piece_end(struct embedding_list list, int piece)
{
    int end = (piece + 1) * EMBEDDING_PIECE;
    return end < list.N ? end : list.N;
}

/* Does the run of `id` continue at position i (which may be outside)? */
static __device__ inline bool goes_on(
        struct embedding_list list, int32_t id, int i)
{
    return i >= 0 && i < list.N && id_at(list, i) == id;
}

static __device__ inline float *sums_at(
        float *sums, int piece, int which, int C)
{
    return sums + ((int64_t)piece * EMBEDDING_SUMS + which) * C;
}

template <int W>
static __device__ inline void add_to_row(float *row, const float (&sum)[W])
{
    float was[W];
    read_fp32<W>(was, row);
#pragma unroll
    for (int j = 0; j < W; j++)
        was[j] += sum[j];
    write_fp32<W>(row, was);
}

/* blockIdx.x: piece; blockIdx.y: tile of columns, W per thread. */
template <typename T, int W>
static __global__ void embedding_backward_kernel(
        float *dtable, float *sums, struct embedding_list list, const T *dout,
        int C)
{
    /* ids also has the neighbors' ids, at 0 and at the end */
    __shared__ int32_t tokens[EMBEDDING_PIECE], ids[EMBEDDING_PIECE + 2];
    int piece = (int)blockIdx.x, first = piece * EMBEDDING_PIECE;
    int count = piece_end(list, piece) - first;
    for (int i = (int)threadIdx.x; i < count + 2; i += BACKWARD_BLOCK) {
        int at = first + i - 1;
        bool is_token = at >= 0 && at < list.N;
        ids[i] = is_token ? id_at(list, at) : NO_ID;
        if (i > 0 && i <= count)
            tokens[i - 1] = list.order[at];
    }
    __syncthreads();
    int c = ((int)blockIdx.y * BACKWARD_BLOCK + (int)threadIdx.x) * W;
    if (c >= C)
        return;
    for (int i = 0; i < count;) {
        int32_t id = ids[i + 1];
        bool began_before = i == 0 && ids[0] == id;
        float sum[W] = {0};
        for (; i < count && ids[i + 1] == id; i++) {
            float d[W];
            load_floats<W>(d, dout + (int64_t)tokens[i] * C + c);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += d[j];
        }
        if (id < 0)
            continue;
        bool ends_later = i == count && ids[count + 1] == id;
        if (began_before)
            write_fp32<W>(sums_at(sums, piece, FIRST, C) + c, sum);
        else if (ends_later)
            write_fp32<W>(sums_at(sums, piece, LAST, C) + c, sum);
        else
            add_to_row<W>(dtable + (int64_t)id * C + c, sum);
    }
}

/* Adds up the run that begins in this piece and ends in a later one, if any. */
template <int W>
static __global__ void embedding_join_kernel(
        float *dtable, float *sums, struct embedding_list list, int C)
{
    int piece = (int)blockIdx.x, first = piece * EMBEDDING_PIECE;
    int end = piece_end(list, piece);
    int c = ((int)blockIdx.y * BACKWARD_BLOCK + (int)threadIdx.x) * W;
    int32_t id = id_at(list, end - 1);
    if (c >= C || id < 0 || !goes_on(list, id, end))
        return;
    if (id_at(list, first) == id && goes_on(list, id, first - 1))
        return; /* it began in an earlier piece */
    float sum[W];
    read_fp32<W>(sum, sums_at(sums, piece, LAST, C) + c);
    do {
        float more[W];
        end = piece_end(list, ++piece);
        read_fp32<W>(more, sums_at(sums, piece, FIRST, C) + c);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += more[j];
    } while (id_at(list, end - 1) == id && goes_on(list, id, end));
    add_to_row<W>(dtable + (int64_t)id * C + c, sum);
}

template <typename T>
static enum zd_status embedding_forward_any(
        struct stream *stream, void *out, const int32_t *ids, const void *table,
        int N, int C, bool add)
{
    cudaStream_t on = device_cuda_stream(stream);
    bool is_packed = C % full_width<T>::value == 0 && are_aligned(out, table);
    if (N <= 0 || C <= 0)
        return ZD_OK;
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        int64_t tiles = ceil_div(C, (int64_t)FORWARD_BLOCK * W);
        assert(N * tiles <= GRID_MOST);
        ZD_LAUNCH(
                (embedding_forward_kernel<T, W>), (unsigned)(N * tiles),
                FORWARD_BLOCK, 0, on, (T *)out, ids, (const T *)table, C,
                (int)tiles, add);
        return ZD_OK;
    });
}

template <typename T>
static enum zd_status embedding_backward_any(
        struct stream *stream, float *dtable, const int32_t *ids,
        const int32_t *order, const void *dout, int N, int C)
{
    cudaStream_t on = device_cuda_stream(stream);
    struct embedding_list list = {ids, order, N};
    bool is_packed = C % full_width<T>::value == 0 && are_aligned(dtable, dout);
    if (N <= 0 || C <= 0)
        return ZD_OK;
    float *sums = (float *)cuda_workspace(embedding_cuda_workspace_bytes(N, C));
    assert(order && sums);
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        dim3 grid(
                (unsigned)ceil_div(N, EMBEDDING_PIECE),
                (unsigned)ceil_div(C, (int64_t)BACKWARD_BLOCK * W));
        ZD_LAUNCH(
                (embedding_backward_kernel<T, W>), grid, BACKWARD_BLOCK, 0, on,
                dtable, sums, list, (const T *)dout, C);
        ZD_LAUNCH(
                (embedding_join_kernel<W>), grid, BACKWARD_BLOCK, 0, on, dtable,
                sums, list, C);
        return ZD_OK;
    });
}

CUDA_DEFINE(embedding_forward);
CUDA_DEFINE(embedding_backward);
