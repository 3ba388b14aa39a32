/* dequantize_cuda.cu - decodes quantized matrices for the next matmul. A thread
 * decodes the elements of one 16-byte store. Memory bandwidth is the limit, so
 * tables are in shared memory and scales come from the caches. Compiled without
 * contraction, for the CPU's bits. */
#include "kernels/cuda/cuda.cuh"

#define QUANT_TABLE static __device__ const
#include "kernels/quant/quant_values.h"

extern "C" {
#include "kernels/quant/dequantize.h"
}

/* A block has as many threads as its largest table has entries. */
enum { CODES_BLOCK = 256, DYNAMIC = 127 };

/* --- 4 bits --------------------------------------------------------------- */

struct blocks_of_4bit {
    const uint8_t *codes;
    const float *scales; /* absmax; nested: the offset, scales of scales */
    const uint8_t *absmax_codes; /* NULL: not nested */
    int block_shift, nested_shift;
    bool is_nf4;
};

struct tables_of_4bit {
    float values[16];
    float map[2 * DYNAMIC + 2];
};

/* All threads of a block must call it. */
__device__ inline void load_tables(
        struct tables_of_4bit *tables, const struct blocks_of_4bit *m)
{
    int i = (int)threadIdx.x;
    if (i < 16)
        tables->values[i] = m->is_nf4 ? nf4_values[i] : fp4_values[i];
    if (m->absmax_codes) {
        float entry = 0;
        if (i < DYNAMIC)
            entry = -dynamic_values[DYNAMIC - 1 - i];
        else if (i > DYNAMIC && i <= 2 * DYNAMIC)
            entry = dynamic_values[i - DYNAMIC - 1];
        tables->map[i] = i == 2 * DYNAMIC + 1 ? 1.0f : entry;
    }
    __syncthreads();
}

/* absmax of the block of element i. */
__device__ inline float absmax_at(
        const struct blocks_of_4bit *m, const struct tables_of_4bit *tables,
        int64_t i)
{
    int64_t block = i >> m->block_shift;
    if (!m->absmax_codes)
        return m->scales[block];
    float nested = m->scales[1 + (block >> m->nested_shift)];
    float entry = tables->map[m->absmax_codes[block]] * nested;
    return entry + m->scales[0];
}

__device__ inline float value_of_4bit(
        const struct blocks_of_4bit *m, const struct tables_of_4bit *tables,
        int64_t i)
{
    unsigned byte = m->codes[i / 2];
    unsigned code = i % 2 ? byte & 15u : byte >> 4;
    return tables->values[code] * absmax_at(m, tables, i);
}

/* Bytes of the codes of W elements; also for single elements. */
template <int W> struct code_bytes {
    static const int of_4bit = W < 4 ? 2 : W / 2;
    static const int of_8bit = W < 2 ? 2 : W;
};

template <typename T, int W>
static __global__ void dequantize_4bit_kernel(
        T *out, struct blocks_of_4bit m, int64_t count)
{
    __shared__ struct tables_of_4bit tables;
    load_tables(&tables, &m);
    int64_t whole = W > 1 ? count / W * W : 0;
    for (int64_t i = thread_of_grid() * W; i < whole;
         i += threads_of_grid() * W) {
        float x[W];
        float absmax = absmax_at(&m, &tables, i);
        pack<uint8_t, code_bytes<W>::of_4bit> codes =
                load_pack<code_bytes<W>::of_4bit>(m.codes + i / 2);
#pragma unroll
        for (int j = 0; j < W; j++) {
            unsigned byte = codes.at[j / 2];
            x[j] = tables.values[j % 2 ? byte & 15u : byte >> 4] * absmax;
        }
        store_floats<W>(out + i, x);
    }
    for (int64_t i = whole + thread_of_grid(); i < count;
         i += threads_of_grid())
        out[i] = from_float<T>(value_of_4bit(&m, &tables, i));
}

/* --- 8 bits --------------------------------------------------------------- */

struct rows_of_8bit {
    const uint8_t *codes;
    const float *scales;
    int64_t columns, tiles; /* tiles: across, of fp8 */
    bool is_int8;
};

__device__ inline float e4m3_float(unsigned code)
{
    unsigned magnitude = code & 0x7fu;
    float value = float_of_bits(magnitude << 20) * 0x1p120f;
    uint32_t nan = magnitude == 0x7fu ? 0x7fc00000u : 0u;
    return float_of_bits(bits_of_float(value) | nan | (code & 0x80u) << 24);
}

__device__ inline float value_of_8bit(
        const struct rows_of_8bit *m, unsigned code, int64_t row,
        int64_t column)
{
    if (m->is_int8)
        return (float)(int8_t)code * m->scales[row] * QUANT_BY_127;
    return e4m3_float(code) *
           m->scales[row / QUANT_TILE * m->tiles + column / QUANT_TILE];
}

/* The row of element i. Avoids a 64-bit division, which would take as long as
 * everything else. */
__device__ inline int64_t row_of(
        const struct rows_of_8bit *m, int64_t i, int64_t count)
{
    if (count <= (int64_t)0xffffffff)
        return (int64_t)((uint32_t)i / (uint32_t)m->columns);
    return i / m->columns;
}

/* W elements are in one row and one tile. */
template <typename T, int W>
static __global__ void dequantize_8bit_kernel(
        T *out, struct rows_of_8bit m, int64_t count)
{
    for (int64_t i = thread_of_grid() * W; i < count;
         i += threads_of_grid() * W) {
        float x[W];
        int64_t row = row_of(&m, i, count), column = i - row * m.columns;
        pack<uint8_t, code_bytes<W>::of_8bit> codes;
        if (W == 1)
            codes.at[0] = m.codes[i];
        else
            codes = load_pack<code_bytes<W>::of_8bit>(m.codes + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = value_of_8bit(&m, codes.at[j], row, column);
        store_floats<W>(out + i, x);
    }
}

/* --- launchers ------------------------------------------------------------ */

static int shift_of(size_t power)
{
    int shift = 0;
    while ((size_t)1 << shift < power)
        shift++;
    return shift;
}

template <typename T>
static enum zd_status dequantize_4bit(
        cudaStream_t on, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    int64_t count = (int64_t)quant_matrix_count(matrix);
    size_t nested = matrix->nested_block ? matrix->nested_block : 1;
    struct quant_scales s = quant_scales_of(matrix, (void *)scales);
    struct blocks_of_4bit m = {(const uint8_t *)codes,
                               (const float *)scales,
                               s.codes,
                               shift_of(matrix->block),
                               shift_of(nested),
                               matrix->format == QUANT_NF4};
    bool is_packed = are_aligned(out, codes);
    ZD_LAUNCH_PACKED(
            dequantize_4bit_kernel, T, is_packed,
            grid_of_packs<T>(count, is_packed, CODES_BLOCK, GRID_MOST),
            CODES_BLOCK, on, (T *)out, m, count);
    return ZD_OK;
}

template <typename T>
static enum zd_status dequantize_8bit(
        cudaStream_t on, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    int64_t count = (int64_t)quant_matrix_count(matrix);
    struct rows_of_8bit m = {
            (const uint8_t *)codes, (const float *)scales, matrix->columns,
            ceil_div(matrix->columns, QUANT_TILE),
            matrix->format == QUANT_INT8};
    bool is_packed = are_aligned(out, codes) &&
                     matrix->columns % full_width<T>::value == 0;
    ZD_LAUNCH_PACKED(
            dequantize_8bit_kernel, T, is_packed,
            grid_of_packs<T>(count, is_packed, CODES_BLOCK, GRID_MOST),
            CODES_BLOCK, on, (T *)out, m, count);
    return ZD_OK;
}

template <typename T>
static enum zd_status dequantize_any(
        struct stream *stream, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    cudaStream_t on = device_cuda_stream(stream);
    return quant_is_4bit(matrix)
                   ? dequantize_4bit<T>(on, out, codes, scales, matrix)
                   : dequantize_8bit<T>(on, out, codes, scales, matrix);
}

CUDA_DEFINE(dequantize);
