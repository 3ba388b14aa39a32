/* fp8_cuda.cu - casts to 8-bit floats on a GPU. A block casts a tile of 128 x
 * 128: a thread reads 8 x 8 elements once, 16 bytes at a time, and writes codes
 * of rows from registers and codes of columns through shared memory.
 *
 * Compiled without contraction, so codes and scales have the CPU's bits. */
#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/fp8/fp8.h"
}

enum {
    TILE = FP8_BLOCK,
    SIDE = 8,             /* of a thread's square */
    ACROSS = TILE / SIDE, /* threads across a tile: half a warp */
    CAST_BLOCK = ACROSS * ACROSS,
    CAST_WARPS = CAST_BLOCK / WARP,
    CHUNKS = TILE / 16, /* 16-byte parts of a tile's column */
};

struct tiles {
    const void *x;
    const float *amax, *from_scales;
    uint8_t *codes, *transposed;
    float *scales, *transposed_scales;
    int rows, columns, stride, padded;
    int across; /* tiles across the matrix */
};

/* The tile of a block, and the first element of a thread. */
struct place {
    int tile_row, tile_column, row, column;
};

__device__ inline struct place place_of(const struct tiles &t)
{
    int tile_row = (int)(blockIdx.x / (unsigned)t.across);
    int tile_column = (int)(blockIdx.x % (unsigned)t.across);
    struct place p = {
            tile_row, tile_column,
            tile_row * TILE + (int)threadIdx.x / ACROSS * SIDE,
            tile_column * TILE + (int)threadIdx.x % ACROSS * SIDE};
    return p;
}

/* --- one element ---------------------------------------------------------- */

template <bool E5M2> __device__ inline uint32_t two_codes(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t both;
    if (E5M2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
            : "=h"(both)
            : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(both)
            : "f"(high), "f"(low));
    return both;
#else
    const enum dtype to = E5M2 ? DTYPE_E5M2 : DTYPE_E4M3;
    return float_to_fp8(low, to) | (uint32_t)float_to_fp8(high, to) << 8;
#endif
}

template <bool E5M2>
__device__ inline uint32_t four_codes(float a, float b, float c, float d)
{
    return two_codes<E5M2>(a, b) | two_codes<E5M2>(c, d) << 16;
}

/* scale multiplies a code to decode it, factor a value to encode it. */
struct scaling {
    float scale, factor;
};

template <bool E5M2> __device__ inline struct scaling scaling_of(float amax)
{
    const enum dtype to = E5M2 ? DTYPE_E5M2 : DTYPE_E4M3;
    struct scaling s = {fp8_scale(amax, to), fp8_factor(amax, to)};
    return s;
}

/* --- what a thread has ---------------------------------------------------- */

struct square {
    uint32_t word[SIDE][SIDE / 2]; /* two bf16, the even one in the low half */
};

__device__ inline float at(const struct square &s, int i, int j)
{
    uint32_t both = s.word[i][j / 2];
    return float_of_bits(j % 2 ? both & 0xffff0000u : both << 16);
}

/* Makes the compiler widen the elements again after this point: kept as floats
 * they would need twice the registers, and half as many warps would fit. */
__device__ inline void widen_again(struct square *s)
{
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE / 2; j++)
            asm volatile("" : "+r"(s->word[i][j]));
#else
    (void)s;
#endif
}

/* Zeros beyond the matrix. */
__device__ inline void load_square(
        struct square *s, const struct tiles &t, const struct place &p)
{
    const bf16 *x = (const bf16 *)t.x + (int64_t)p.row * t.stride + p.column;
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (p.column < t.columns && p.row + i < t.rows)
            v = __ldcs((const uint4 *)(x + (int64_t)i * t.stride));
        s->word[i][0] = v.x, s->word[i][1] = v.y;
        s->word[i][2] = v.z, s->word[i][3] = v.w;
    }
}

/* --- maxima --------------------------------------------------------------- */

/* The maximum of each row over the 16 threads that share it. Every step halves
 * the rows of a thread; it ends with row (lane % 16) / 2. */
__device__ inline float max_of_row(const struct square &s)
{
    float most[SIDE];
    int lane = lane_of_warp();
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        most[i] = fabsf(at(s, i, 0));
#pragma unroll
        for (int j = 1; j < SIDE; j++)
            most[i] = fmaxf(most[i], fabsf(at(s, i, j)));
    }
#pragma unroll
    for (int keep = SIDE / 2; keep > 0; keep /= 2) {
        bool is_upper = lane & (2 * keep);
#pragma unroll
        for (int i = 0; i < keep; i++) {
            float mine = is_upper ? most[i + keep] : most[i];
            float given = is_upper ? most[i] : most[i + keep];
            most[i] = fmaxf(mine, __shfl_xor_sync(ALL_LANES, given, 2 * keep));
        }
    }
    return fmaxf(most[0], __shfl_xor_sync(ALL_LANES, most[0], 1));
}

/* The maximum of each column over the rows of a warp, in shared memory. */
__device__ inline void max_of_columns(
        const struct square &s, float (*shared)[TILE])
{
    int lane = lane_of_warp();
#pragma unroll
    for (int j = 0; j < SIDE; j++) {
        float most = fabsf(at(s, 0, j));
#pragma unroll
        for (int i = 1; i < SIDE; i++)
            most = fmaxf(most, fabsf(at(s, i, j)));
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, ACROSS));
        if (lane < ACROSS)
            shared[warp_of_block()][lane * SIDE + j] = most;
    }
}

__device__ inline float max_of_tile(const struct square &s, float *shared)
{
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++)
            most = fmaxf(most, fabsf(at(s, i, j)));
    return block_max(most, shared);
}

/* --- codes ---------------------------------------------------------------- */

/* Each row has two words. */
struct codes {
    uint32_t word[SIDE][2];
};

template <bool E5M2>
__device__ inline void encode_rows(
        struct codes *out, const struct square &s, const float *factors)
{
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            out->word[i][h] = four_codes<E5M2>(
                    at(s, i, 4 * h) * factors[i],
                    at(s, i, 4 * h + 1) * factors[i],
                    at(s, i, 4 * h + 2) * factors[i],
                    at(s, i, 4 * h + 3) * factors[i]);
}

template <bool E5M2>
__device__ inline void encode_columns(
        struct codes *out, const struct square &s, const float *factors)
{
#pragma unroll
    for (int j = 0; j < SIDE; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            out->word[j][h] = four_codes<E5M2>(
                    at(s, 4 * h, j) * factors[j],
                    at(s, 4 * h + 1, j) * factors[j],
                    at(s, 4 * h + 2, j) * factors[j],
                    at(s, 4 * h + 3, j) * factors[j]);
}

/* Transposes 4 x 4 bytes. */
__device__ inline void transpose_4(
        struct codes *out, const struct codes &in, int rows, int columns)
{
    int first = 4 * rows;
    uint32_t a = in.word[first][columns], b = in.word[first + 1][columns];
    uint32_t c = in.word[first + 2][columns], d = in.word[first + 3][columns];
    uint32_t ab_low = __byte_perm(a, b, 0x5140);
    uint32_t ab_high = __byte_perm(a, b, 0x7362);
    uint32_t cd_low = __byte_perm(c, d, 0x5140);
    uint32_t cd_high = __byte_perm(c, d, 0x7362);
    out->word[4 * columns][rows] = __byte_perm(ab_low, cd_low, 0x5410);
    out->word[4 * columns + 1][rows] = __byte_perm(ab_low, cd_low, 0x7632);
    out->word[4 * columns + 2][rows] = __byte_perm(ab_high, cd_high, 0x5410);
    out->word[4 * columns + 3][rows] = __byte_perm(ab_high, cd_high, 0x7632);
}

__device__ inline void transpose(struct codes *out, const struct codes &in)
{
#pragma unroll
    for (int part = 0; part < 4; part++)
        transpose_4(out, in, part / 2, part % 2);
}

__device__ inline void store_codes(
        const struct tiles &t, const struct codes &codes, const struct place &p)
{
    if (!t.codes || p.column >= t.columns)
        return;
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        if (p.row + i < t.rows)
            *(uint2 *)(t.codes + (int64_t)(p.row + i) * t.columns + p.column) =
                    make_uint2(codes.word[i][0], codes.word[i][1]);
}

/* Stores a thread's columns to shared memory, 8 bytes each, in an order that
 * differs for each eight columns, so that neither writes nor reads have bank
 * conflicts. */
__device__ inline void share_columns(uint2 *shared, const struct codes &codes)
{
    int x = (int)threadIdx.x % ACROSS, y = (int)threadIdx.x / ACROSS;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        shared[(x * SIDE + j) * ACROSS + (y ^ x)] =
                make_uint2(codes.word[j][0], codes.word[j][1]);
}

__device__ inline void store_columns(
        const struct tiles &t, const uint4 *shared, const struct place &p)
{
    int first = p.tile_column * TILE, row = p.tile_row * TILE;
#pragma unroll
    for (int i = (int)threadIdx.x; i < TILE * CHUNKS; i += CAST_BLOCK) {
        int c = i / CHUNKS, chunk = i % CHUNKS, order = c / SIDE;
        int at = row + 16 * chunk;
        uint4 v = shared[c * CHUNKS + (chunk ^ order / 2)];
        if (order % 2)
            v = make_uint4(v.z, v.w, v.x, v.y);
        if (first + c < t.columns && at < t.padded)
            *(uint4 *)(t.transposed + (int64_t)(first + c) * t.padded + at) = v;
    }
}

/* All threads of a block must call it. */
__device__ inline void store_transposed(
        const struct tiles &t, uint4 *shared, const struct codes &codes,
        const struct place &p)
{
    share_columns((uint2 *)shared, codes);
    __syncthreads();
    store_columns(t, shared, p);
}

/* --- a tile --------------------------------------------------------------- */

/* Writes the scale of a tile for both matrices; returns the factor. */
template <bool E5M2>
__device__ inline float scale_tile(
        const struct tiles &t, float amax, const struct place &p)
{
    struct scaling s = scaling_of<E5M2>(amax);
    int row = p.tile_row * TILE, column = p.tile_column * TILE;
    if (t.from_scales)
        s.scale = t.from_scales[(int64_t)p.tile_row * t.across + p.tile_column];
    if (threadIdx.x == 0 && t.scales && row < t.rows)
        t.scales[fp8_scale_at(SCALES_128X128, t.rows, t.columns, row, column)] =
                s.scale;
    if (threadIdx.x == 0 && t.transposed_scales)
        t.transposed_scales[fp8_scale_at(
                SCALES_128X128, t.columns, t.padded, column, row)] = s.scale;
    return s.factor;
}

template <bool E5M2> __device__ inline float scale_tensor(const struct tiles &t)
{
    struct scaling s = scaling_of<E5M2>(*t.amax);
    if (thread_of_grid() == 0) {
        if (t.scales)
            *t.scales = s.scale;
        if (t.transposed_scales)
            *t.transposed_scales = s.scale;
    }
    return s.factor;
}

/* One factor for a whole tile, so both matrices have the same codes. */
template <bool E5M2, bool BY_TILE>
static __global__ void __launch_bounds__(CAST_BLOCK)
        fp8_cast_kernel(const struct tiles t)
{
    __shared__ uint4 shared[TILE * CHUNKS];
    __shared__ float maxima[MAX_WARPS];
    const struct place p = place_of(t);
    struct square s;
    struct codes codes, transposed;
    float factors[SIDE];
    load_square(&s, t, p);
    float factor = BY_TILE ? scale_tile<E5M2>(t, max_of_tile(s, maxima), p)
                           : scale_tensor<E5M2>(t);
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        factors[i] = factor;
    encode_rows<E5M2>(&codes, s, factors);
    store_codes(t, codes, p);
    if (!t.transposed)
        return;
    transpose(&transposed, codes);
    store_transposed(t, shared, transposed, p);
}

/* A factor for each row of a tile, and for the transpose one for each column.
 */
template <bool E5M2>
static __global__ void __launch_bounds__(CAST_BLOCK, 4)
        fp8_cast_rows_kernel(const struct tiles t)
{
    __shared__ uint4 shared[TILE * CHUNKS];
    __shared__ float maxima[CAST_WARPS][TILE], by_column[TILE];
    const struct place p = place_of(t);
    struct square s;
    struct codes codes;
    float factors[SIDE];
    load_square(&s, t, p);
    if (t.codes) {
        int lane = lane_of_warp(), mine = p.row + lane % ACROSS / 2;
        struct scaling of = scaling_of<E5M2>(max_of_row(s));
        widen_again(&s);
        if (lane % 2 == 0 && mine < t.rows)
            t.scales[fp8_scale_at(
                    SCALES_1X128, t.rows, t.columns, mine, p.column)] =
                    of.scale;
#pragma unroll
        for (int i = 0; i < SIDE; i++)
            factors[i] =
                    __shfl_sync(ALL_LANES, of.factor, (lane & ACROSS) + 2 * i);
        encode_rows<E5M2>(&codes, s, factors);
        store_codes(t, codes, p);
        widen_again(&s);
    }
    if (!t.transposed)
        return;
    max_of_columns(s, maxima);
    widen_again(&s);
    __syncthreads();
    if (threadIdx.x < TILE) {
        int c = (int)threadIdx.x, at = p.tile_column * TILE + c;
        float most = maxima[0][c];
#pragma unroll
        for (int warp = 1; warp < CAST_WARPS; warp++)
            most = fmaxf(most, maxima[warp][c]);
        struct scaling of = scaling_of<E5M2>(most);
        by_column[c] = of.factor;
        if (at < t.columns)
            t.transposed_scales[fp8_scale_at(
                    SCALES_1X128, t.columns, t.padded, at, p.tile_row * TILE)] =
                    of.scale;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        factors[j] = by_column[(int)threadIdx.x % ACROSS * SIDE + j];
    encode_columns<E5M2>(&codes, s, factors);
    store_transposed(t, shared, codes, p);
}

/* Transposes existing codes. */
static __global__ void __launch_bounds__(CAST_BLOCK)
        fp8_transpose_kernel(const struct tiles t)
{
    __shared__ uint4 shared[TILE * CHUNKS];
    const struct place p = place_of(t);
    const uint8_t *x =
            (const uint8_t *)t.x + (int64_t)p.row * t.stride + p.column;
    struct codes codes, transposed;
    scale_tile<false>(t, 0.0f, p);
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        uint2 v = make_uint2(0, 0);
        if (p.column < t.columns && p.row + i < t.rows)
            v = __ldcs((const uint2 *)(x + (int64_t)i * t.stride));
        codes.word[i][0] = v.x, codes.word[i][1] = v.y;
    }
    store_codes(t, codes, p);
    if (!t.transposed)
        return;
    transpose(&transposed, codes);
    store_transposed(t, shared, transposed, p);
}

/* --- the maximum of a matrix ---------------------------------------------- */

enum { AMAX_BLOCK = 256, AMAX_LOADS = 4, AMAX_BLOCKS = 2048 };

template <int W, typename T> __device__ inline float max_of_pack(pack<T, W> x)
{
    float most = fabsf(to_float(x.at[0]));
#pragma unroll
    for (int i = 1; i < W; i++)
        most = fmaxf(most, fabsf(to_float(x.at[i])));
    return most;
}

/* A row has `packs` packs of W; a dense matrix is one row. Nonnegative floats
 * compare like their bits as integers. */
template <typename T, int W>
static __global__ void __launch_bounds__(AMAX_BLOCK) fp8_amax_kernel(
        int *amax, const T *x, int rows, int64_t packs, int64_t stride)
{
    __shared__ float maxima[MAX_WARPS];
    float most = 0.0f;
    int64_t step = threads_of_grid();
    for (int row = (int)blockIdx.y; row < rows; row += (int)gridDim.y) {
        const T *from = x + row * stride;
        int64_t i = thread_of_grid();
        for (; i + (AMAX_LOADS - 1) * step < packs; i += AMAX_LOADS * step) {
            pack<T, W> part[AMAX_LOADS];
#pragma unroll
            for (int k = 0; k < AMAX_LOADS; k++)
                part[k] = load_pack<W>(from + (i + k * step) * W);
#pragma unroll
            for (int k = 0; k < AMAX_LOADS; k++)
                most = fmaxf(most, max_of_pack<W>(part[k]));
        }
        for (; i < packs; i += step)
            most = fmaxf(most, max_of_pack<W>(load_pack<W>(from + i * W)));
    }
    most = block_max(most, maxima);
    if (threadIdx.x == 0)
        atomicMax(amax, (int)bits_of_float(most));
}

/* --- launchers ------------------------------------------------------------ */

template <typename T>
static enum zd_status amax_of(
        cudaStream_t on, float *amax, const T *x, int rows, int columns,
        int stride)
{
    int width = full_width<T>::value;
    bool is_packed = is_aligned(x) && columns % width == 0 &&
                     (rows == 1 || stride % width == 0);
    int64_t packs = is_packed ? columns / width : columns;
    if (stride == columns) {
        packs *= rows;
        rows = 1;
    }
    int64_t most = AMAX_BLOCKS / (rows < AMAX_BLOCKS ? rows : AMAX_BLOCKS);
    dim3 grid(grid_for(packs, AMAX_BLOCK * AMAX_LOADS, most));
    grid.y = (unsigned)(rows < AMAX_BLOCKS ? rows : AMAX_BLOCKS);
    ZD_LAUNCH_PACKED(
            fp8_amax_kernel, T, is_packed, grid, AMAX_BLOCK, on, (int *)amax, x,
            rows, packs, (int64_t)stride);
    return ZD_OK;
}

template <bool E5M2>
static enum zd_status cast_as(
        cudaStream_t on, const struct tiles &t, unsigned grid,
        enum scale_layout layout)
{
    if (layout == SCALES_1X128)
        ZD_LAUNCH((fp8_cast_rows_kernel<E5M2>), grid, CAST_BLOCK, 0, on, t);
    else if (layout == SCALES_128X128)
        ZD_LAUNCH((fp8_cast_kernel<E5M2, true>), grid, CAST_BLOCK, 0, on, t);
    else
        ZD_LAUNCH((fp8_cast_kernel<E5M2, false>), grid, CAST_BLOCK, 0, on, t);
    return ZD_OK;
}

static enum zd_status amax_bf16(
        struct stream *stream, float *amax, const void *x, enum dtype type,
        int rows, int columns, int stride, bool merge)
{
    cudaStream_t on = device_cuda_stream(stream);
    if (!merge)
        ZD_CUDA(cudaMemsetAsync(amax, 0, sizeof *amax, on));
    if (type == DTYPE_FP32)
        return amax_of(on, amax, (const float *)x, rows, columns, stride);
    assert(type == DTYPE_BF16);
    return amax_of(on, amax, (const bf16 *)x, rows, columns, stride);
}

static enum zd_status cast_bf16(struct stream *stream, const struct fp8_cast *c)
{
    cudaStream_t on = device_cuda_stream(stream);
    struct tiles t = {
            c->x,
            c->amax,
            c->from_scales,
            c->codes,
            c->transposed,
            c->scales,
            c->transposed_scales,
            c->rows,
            c->columns,
            c->stride,
            c->padded,
            (int)ceil_div(c->columns, TILE)};
    unsigned grid =
            (unsigned)(ceil_div(c->transposed ? c->padded : c->rows, TILE) * t.across);
    assert(are_aligned(c->x, c->codes, c->transposed));
    assert(c->columns % FP8_ALIGN == 0 && c->stride % SIDE == 0);
    if (c->from == DTYPE_E4M3) {
        ZD_LAUNCH(fp8_transpose_kernel, grid, CAST_BLOCK, 0, on, t);
        return ZD_OK;
    }
    assert(c->from == DTYPE_BF16);
    return c->to == DTYPE_E5M2 ? cast_as<true>(on, t, grid, c->layout)
                               : cast_as<false>(on, t, grid, c->layout);
}

/* Only bf16 tables have FP8 matmuls. */
CUDA_DEFINE_AS(fp8_amax, NULL, amax_bf16, NULL);
CUDA_DEFINE_AS(fp8_cast, NULL, cast_bf16, NULL);
