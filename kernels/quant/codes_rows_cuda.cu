/* codes_rows_cuda.cu - one or two rows by a quantized matrix. A warp has a row
 * of the matrix: its lanes take turns at packs of W elements, which are as many
 * codes and one 16-byte load of each row of a, and meet in one sum. Codes are
 * read once; a stays in the caches. */
#include "kernels/quant/codes.cuh"

extern "C" {
#include "kernels/quant/codes_rows.h"
}

enum { ROWS_WARPS = CODES_BLOCK / WARP };

template <typename T> struct rows_of_codes {
    T *out;
    int64_t stride;
    const T *a, *bias;
    int64_t N, K;
};

/* Codes i .. i + W - 1 of a matrix as the compute type has them. They lie in
 * one block, or in one row and one tile. */
template <int W> struct decoder_of_4bit {
    struct blocks_of_4bit m;

    __device__ void read(
            float (&x)[W], const struct tables_of_4bit *tables, int64_t i,
            int64_t, int64_t) const
    {
        if (W == 1) {
            x[0] = value_of_4bit(&m, tables, i);
            return;
        }
        float absmax = absmax_at(&m, tables, i);
        pack<uint8_t, code_bytes<W>::of_4bit> codes =
                load_pack_once<code_bytes<W>::of_4bit>(m.codes + i / 2);
#pragma unroll
        for (int j = 0; j < W; j++) {
            unsigned byte = codes.at[j / 2];
            x[j] = tables->values[j % 2 ? byte & 15u : byte >> 4] * absmax;
        }
    }
    __device__ void load(struct tables_of_4bit *tables) const
    {
        load_tables(tables, &m);
    }
};

template <int W> struct decoder_of_8bit {
    struct rows_of_8bit m;

    __device__ void read(
            float (&x)[W], const struct tables_of_4bit *, int64_t i,
            int64_t row, int64_t column) const
    {
        pack<uint8_t, code_bytes<W>::of_8bit> codes;
        if (W == 1)
            codes.at[0] = m.codes[i];
        else
            codes = load_pack_once<code_bytes<W>::of_8bit>(m.codes + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = value_of_8bit(&m, codes.at[j], row, column);
    }
    __device__ void load(struct tables_of_4bit *) const
    {
    }
};

/* sum[m] += the lane's share of a(m, :) . W(row, :) */
template <typename T, int W, int M, typename D>
__device__ inline void add_share(
        float (&sum)[M], const struct rows_of_codes<T> &p, const D &decoder,
        const struct tables_of_4bit *tables, int64_t row)
{
    for (int64_t k = lane_of_warp() * W; k < p.K; k += WARP * W) {
        float w[W], x[W];
        decoder.read(w, tables, row * p.K + k, row, k);
#pragma unroll
        for (int j = 0; j < W; j++)
            w[j] = rounded_to<T>(w[j]);
#pragma unroll
        for (int m = 0; m < M; m++) {
            load_floats<W>(x, p.a + m * p.K + k);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[m] = fmaf(x[j], w[j], sum[m]);
        }
    }
}

template <typename T, int W, int M, typename D>
static __global__ void codes_rows_kernel(struct rows_of_codes<T> p, D decoder)
{
    __shared__ struct tables_of_4bit tables;
    decoder.load(&tables);
    for (int64_t row = (int64_t)blockIdx.x * ROWS_WARPS + warp_of_block();
         row < p.N; row += (int64_t)gridDim.x * ROWS_WARPS) {
        float sum[M] = {};
        add_share<T, W, M>(sum, p, decoder, &tables, row);
#pragma unroll
        for (int m = 0; m < M; m++) {
            float all = warp_sum(sum[m]);
            if (lane_of_warp() != 0)
                continue;
            if (p.bias)
                all += to_float(p.bias[row]);
            p.out[m * p.stride + row] = from_float<T>(all);
        }
    }
}

template <typename T, int W, typename D>
static enum zd_status launch(
        cudaStream_t on, const struct rows_of_codes<T> &p, const D &decoder,
        int M)
{
    unsigned grid = grid_for(p.N, ROWS_WARPS, GRID_MOST);
    if (M == 1)
        ZD_LAUNCH(
                (codes_rows_kernel<T, W, 1, D>), grid, CODES_BLOCK, 0, on, p,
                decoder);
    else
        ZD_LAUNCH(
                (codes_rows_kernel<T, W, 2, D>), grid, CODES_BLOCK, 0, on, p,
                decoder);
    return ZD_OK;
}

template <typename T>
static enum zd_status codes_rows_any(
        struct stream *stream, void *out, int64_t stride, const void *a,
        const void *codes, const void *scales,
        const struct quant_matrix *matrix, const void *bias, int M)
{
    cudaStream_t on = device_cuda_stream(stream);
    struct rows_of_codes<T> p = {
        (T *)out, stride, (const T *)a,
                (const T *)bias, matrix->rows, matrix->columns
    };
    bool is_packed = are_aligned(a, codes) && p.K % full_width<T>::value == 0;
    static_assert(ROWS_TOGETHER == 2, "a kernel for each");
    assert(M <= ROWS_TOGETHER);
    return by_width<T>(is_packed, [&](auto width) {
        const int W = decltype(width)::value;
        if (quant_is_4bit(matrix))
            return launch<T, W>(
                    on, p, decoder_of_4bit<W>{blocks_of(codes, scales, matrix)},
                    M);
        return launch<T, W>(
                on, p, decoder_of_8bit<W>{rows_of(codes, scales, matrix)}, M);
    });
}

CUDA_DEFINE(codes_rows);
