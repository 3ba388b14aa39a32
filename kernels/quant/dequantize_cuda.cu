/* dequantize_cuda.cu - quantized matrices, decoded into memory that a
 * matmul reads next. A thread takes the elements of one 16-byte store; what
 * bounds it is memory, so tables lie in shared memory and scales come from the
 * caches. */
#include "kernels/quant/codes.cuh"

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

/* W elements lie in one row, and in one tile. */
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

template <typename T>
static enum zd_status dequantize_4bit(
        cudaStream_t on, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    int64_t count = (int64_t)quant_matrix_count(matrix);
    struct blocks_of_4bit m = blocks_of(codes, scales, matrix);
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
    struct rows_of_8bit m = rows_of(codes, scales, matrix);
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
