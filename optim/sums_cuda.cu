/* sums_cuda.cu - sums over gradients on a GPU: squares for the norm, and
 * Adam-mini's blocks. Both end in integers, so the order of additions does not
 * matter. */
#include "kernels/cuda/cuda.cuh"

#include "base/number/exact_sum_cuda.cuh"

extern "C" {
#include "optim/device_cuda.h"
#include "optim/pair.h"
}

enum { THREADS = 256, WARPS = THREADS / WARP, MOST_BLOCKS = 2048 };

/* --- squares -------------------------------------------------------------- */

/* Eight threads are the eight lanes of a piece (optim_add_squares), and a warp
 * has four pieces. A lane's elements lie eight apart, so the warp reads its
 * pieces in packs of 16 bytes, which neighbors have next to each other, and
 * the lanes take their elements out of shared memory. */
enum { PIECE_LANES = 8, PIECES = WARP / PIECE_LANES };

/* Of a warp. Eight elements between pieces: then lanes of one place in two
 * pieces are in different banks. */
template <typename T> struct alignas(16) warp_pieces {
    T elements[PIECES][OPTIM_QBLOCK + PIECE_LANES];
};

/* The warp's pieces, all whole and aligned. */
template <typename T>
__device__ static inline void read_pieces(
        struct warp_pieces<T> *pieces, const T *grad)
{
    const int W = full_width<T>::value, PACKS = OPTIM_QBLOCK / W;
    const int EACH = PIECES * PACKS / WARP;
    pack<T, W> packs[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        packs[i] = load_pack<W>(grad + (i * WARP + lane_of_warp()) * W);
    __syncwarp(ALL_LANES); /* everyone has taken what was there */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int at = i * WARP + lane_of_warp();
        store_pack<W>(&pieces->elements[at / PACKS][at % PACKS * W], packs[i]);
    }
    __syncwarp(ALL_LANES);
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
__device__ static inline double sum_of_lanes(double sum)
{
    sum += __shfl_xor_sync(ALL_LANES, sum, 4);
    sum += __shfl_xor_sync(ALL_LANES, sum, 2);
    return sum + __shfl_xor_sync(ALL_LANES, sum, 1);
}

/* A lane's sum over `count` elements of a piece. */
template <typename T>
__device__ static inline double lane_sum(const T *piece, int64_t count)
{
    double sum = 0;
#pragma unroll 8
    for (int i = lane_of_warp() % PIECE_LANES; i < count; i += PIECE_LANES) {
        double x = (double)to_float(piece[i]);
        sum += x * x;
    }
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) squares_kernel(
        struct exact_sum *sum, const T *grad, int64_t count, bool is_packed)
{
    __shared__ struct warp_pieces<T> shared[WARPS];
    struct warp_pieces<T> *mine = &shared[warp_of_block()];
    struct exact_window window = exact_window_empty();
    int place = lane_of_warp() / PIECE_LANES;
    int64_t pieces = (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK;
    int64_t warp = (int64_t)blockIdx.x * WARPS + warp_of_block();
    int64_t step = (int64_t)gridDim.x * WARPS * PIECES;
    for (int64_t first = warp * PIECES; first < pieces; first += step) {
        int64_t at = (first + place) * OPTIM_QBLOCK;
        double squares;
        if (is_packed && (first + PIECES) * OPTIM_QBLOCK <= count) {
            read_pieces(mine, grad + first * OPTIM_QBLOCK);
            squares = lane_sum(mine->elements[place], OPTIM_QBLOCK);
        } else {
            int64_t rest = count - at, most = OPTIM_QBLOCK;
            squares = lane_sum(grad + at, rest < most ? rest : most);
        }
        squares = sum_of_lanes(squares);
        if (at < count && lane_of_warp() % PIECE_LANES == 0)
            exact_window_add(sum, &window, squares);
    }
    exact_window_flush(sum, &window);
    if (thread_of_grid() == 0)
        exact_sum_pending(sum, pieces);
}

template <typename T>
static enum zd_status add_squares(
        struct exact_sum *sum, const void *grad, size_t count)
{
    int64_t pieces = ceil_div((int64_t)count, OPTIM_QBLOCK);
    ZD_LAUNCH(
            (squares_kernel<T>), grid_for(pieces, WARPS * PIECES, MOST_BLOCKS),
            THREADS, 0, device_cuda_stream(NULL), sum, (const T *)grad,
            (int64_t)count, is_aligned(grad));
    return ZD_OK;
}

extern "C" enum zd_status optim_add_squares_cuda(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    if (!count)
        return ZD_OK;
    switch (type) {
    case DTYPE_BF16:
        return add_squares<bf16>(sum, grad, count);
    case DTYPE_FP16:
        return add_squares<fp16>(sum, grad, count);
    default:
        return add_squares<float>(sum, grad, count);
    }
}

/* --- Adam-mini's block sums ----------------------------------------------- */

/* Carried to less than 2^42 before it is shared. */
__device__ static inline void share(int64_t *words, struct pair sum)
{
    pair_carry(&sum);
    if (sum.high)
        atomicAdd(
                (unsigned long long *)&words[0], (unsigned long long)sum.high);
    if (sum.low)
        atomicAdd((unsigned long long *)&words[1], (unsigned long long)sum.low);
}

template <typename T> struct run {
    int64_t *sums;
    struct tensor_blocks blocks;
    const T *grad;     /* of element `begin` */
    size_t begin, end; /* in the tensor */
    double inverse;    /* 1 / N^2 */
};

__device__ static inline int64_t block_of_row(
        const struct tensor_blocks *blocks, size_t element)
{
    return tensor_blocks_of_line(blocks, (int64_t)element / blocks->columns);
}

/* A warp's partial sum of a block; all lanes have the same block. */
struct held {
    int64_t block; /* -1: none */
    struct pair sum;
};

__device__ static inline void flush(int64_t *sums, struct held *held)
{
    struct pair sum;
    sum.high = (int64_t)warp_sum((long long)held->sum.high);
    sum.low = (int64_t)warp_sum((long long)held->sum.low);
    if (held->block >= 0 && lane_of_warp() == 0)
        share(sums + 2 * held->block, sum);
    held->sum.high = held->sum.low = 0;
}

/* Elements of a warp, and of one pass of it. A lane adds 1/32 of a warp's
 * before it carries. */
enum { WARP_ELEMENTS = 4096, PASS = 256 };

/* Blocks of rows are runs of elements: a pass within one block is added to what
 * the warp holds of it; one across a border is shared at once. */
template <typename T>
static __global__ void rows_kernel(const struct run<T> run)
{
    size_t warp = (size_t)blockIdx.x * WARPS + (size_t)warp_of_block();
    size_t at = run.begin + warp * WARP_ELEMENTS;
    size_t end = at + WARP_ELEMENTS < run.end ? at + WARP_ELEMENTS : run.end;
    struct held held = {-1, {0, 0}};
    for (; at < end; at += PASS) {
        size_t last = at + PASS < end ? at + PASS : end;
        int64_t block = block_of_row(&run.blocks, at);
        bool is_one = block == block_of_row(&run.blocks, last - 1);
        if (held.block != block || !is_one) {
            flush(run.sums, &held);
            held.block = is_one ? block : -1;
        }
        for (size_t e = at + (size_t)lane_of_warp(); e < last; e += WARP) {
            float grad = to_float(run.grad[e - run.begin]);
            struct pair one = {0, 0};
            struct pair *sum = is_one ? &held.sum : &one;
            pair_add(&sum->high, &sum->low, grad, run.inverse);
            if (!is_one)
                share(run.sums + 2 * block_of_row(&run.blocks, e), one);
        }
    }
    flush(run.sums, &held);
}

/* Blocks of columns: a thread goes down a strip of rows of one column. */
enum { STRIP_ROWS = 128 };

template <typename T>
static __global__ void columns_kernel(const struct run<T> run)
{
    size_t columns = (size_t)run.blocks.columns;
    size_t column = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t row = run.begin / columns + (size_t)blockIdx.y * STRIP_ROWS;
    struct pair sum = {0, 0};
    if (column >= columns)
        return;
    for (int i = 0; i < STRIP_ROWS; i++, row++) {
        size_t e = row * columns + column;
        if (e >= run.end)
            break;
        if (e >= run.begin)
            pair_add(
                    &sum.high, &sum.low, to_float(run.grad[e - run.begin]),
                    run.inverse);
    }
    share(run.sums + 2 * tensor_blocks_of_line(&run.blocks, (int64_t)column),
          sum);
}

template <typename T>
static enum zd_status add_blocks(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        size_t begin, size_t count, double norm)
{
    enum { MOST_STRIPS = 65535 }; /* of a grid's second axis */
    struct run<T> run = {
        sums, *blocks, (const T *)grad, begin, begin + count, 1 / (norm * norm)
    };
    if (!blocks->by_column) {
        int64_t warps = ceil_div((int64_t)count, WARP_ELEMENTS);
        ZD_LAUNCH(
                (rows_kernel<T>), grid_for(warps, WARPS, GRID_MOST), THREADS, 0,
                device_cuda_stream(NULL), run);
        return ZD_OK;
    }
    int64_t columns = blocks->columns;
    int64_t first = (int64_t)begin / columns;
    int64_t rows = ((int64_t)run.end - 1) / columns + 1 - first;
    assert(ceil_div(rows, STRIP_ROWS) <= MOST_STRIPS);
    dim3 grid(
            grid_for(columns, THREADS, GRID_MOST),
            (unsigned)ceil_div(rows, STRIP_ROWS));
    ZD_LAUNCH(
            (columns_kernel<T>), grid, THREADS, 0, device_cuda_stream(NULL),
            run);
    return ZD_OK;
}

extern "C" enum zd_status optim_add_block_sums_cuda(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm)
{
    if (norm == 0 || count == 0)
        return ZD_OK;
    switch (type) {
    case DTYPE_BF16:
        return add_blocks<bf16>(sums, blocks, grad, begin, count, norm);
    case DTYPE_FP16:
        return add_blocks<fp16>(sums, blocks, grad, begin, count, norm);
    default:
        return add_blocks<float>(sums, blocks, grad, begin, count, norm);
    }
}

/* --- the new v of blocks -------------------------------------------------- */

struct blocks_update {
    float *v;
    const int64_t *sums;
    struct tensor_blocks blocks;
    float beta2, gain2;
    double scale, line_count;
};

__device__ static inline int64_t lines_of_block(
        const struct tensor_blocks *blocks, int64_t block)
{
    int s = blocks->section_count - 1;
    while (s > 0 && block < blocks->sections[s].first)
        s--;
    const struct tensor_section *section = &blocks->sections[s];
    int64_t begin = section->begin + (block - section->first) * section->group;
    return tensor_blocks_end(blocks, begin) - begin;
}

static __global__ void update_blocks_kernel(const struct blocks_update update)
{
    int64_t block = thread_of_grid();
    if (block >= update.blocks.count)
        return;
    struct pair sum = {update.sums[2 * block], update.sums[2 * block + 1]};
    pair_carry(&sum);
    /* high is below 2^53: the sum is rounded once, as an integer's is */
    double units = fma((double)sum.high, 0x1p42, (double)sum.low);
    double lines = (double)lines_of_block(&update.blocks, block);
    double mean = units * 0x1p-92 / (update.line_count * lines);
    float square = (float)(mean * update.scale * update.scale);
    float before = update.v[block];
    update.v[block] = update.beta2 * before + update.gain2 * square;
}

extern "C" enum zd_status optim_update_blocks_cuda(
        float *block_v, const int64_t *sums, const struct tensor_blocks *blocks,
        const struct optim_step *step, double norm)
{
    struct blocks_update update = {
            block_v,
            sums,
            *blocks,
            (float)step->options->adam_beta2,
            (float)(1.0 - step->options->adam_beta2),
            (double)step->grad_scale * norm,
            (double)tensor_blocks_line_count(blocks)};
    if (!blocks->count)
        return ZD_OK;
    ZD_LAUNCH(
            update_blocks_kernel, grid_for(blocks->count, THREADS, GRID_MOST),
            THREADS, 0, device_cuda_stream(NULL), update);
    return ZD_OK;
}
