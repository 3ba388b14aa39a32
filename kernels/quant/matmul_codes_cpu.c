/* matmul_codes_cpu.c - our own matrix product, which asks for the rows of a
 * matrix in codes as it packs them. */
#include "kernels/cpu/fast.h"
#include "kernels/matmul/gemm_cpu.h"
#include "kernels/quant/codes_rows.h"
#include "kernels/quant/matmul_codes.h"
#include "kernels/quant/quant_cpu.h"

matmul_codes_fn FAST(matmul_codes);
codes_rows_fn FAST(codes_rows);

/* Matrices one after the other. */
struct codes_source {
    struct codes_reader parts[CODES_PARTS];
    int first[CODES_PARTS + 1]; /* row of each, and behind the last */
};

static void make_row(const void *ctx, elem *out, int row, int begin, int count)
{
    const struct codes_source *source = ctx;
    int part = 0;
    while (row >= source->first[part + 1])
        part++;
    const struct codes_reader *reader = &source->parts[part];
    size_t columns = (size_t)reader->m->columns;
    FAST(codes_read)
    (out, reader, (size_t)(row - source->first[part]) * columns + (size_t)begin,
     (size_t)count);
}

/* As many rows of a as a decode step has, by those who read the matrix in codes
 * once for two of them. */
static enum zd_status few_by_codes(
        struct stream *stream, elem *out, const elem *a,
        const struct codes_view *parts, int part_count, const elem *bias, int M,
        int N, int K)
{
    for (int m = 0; m < M; m += ROWS_TOGETHER) {
        int64_t first = 0;
        for (int i = 0; i < part_count; first += parts[i++].matrix->rows)
            ZD_TRY(FAST(codes_rows)(
                    stream, out + (int64_t)m * N + first, N, a + (int64_t)m * K,
                    parts[i].codes, parts[i].scales, parts[i].matrix,
                    bias ? bias + first : NULL,
                    M - m < ROWS_TOGETHER ? M - m : ROWS_TOGETHER));
    }
    return ZD_OK;
}

enum zd_status FAST(matmul_codes)(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const struct codes_view *parts, int part_count, const void *bias, int M,
        int N, int K, bool trans_b, bool accumulate)
{
    struct codes_source source;
    assert(part_count > 0 && part_count <= CODES_PARTS);
    if (rows_are_few(M, false) && trans_b && out_type == ELEM_DTYPE &&
        !accumulate)
        return few_by_codes(stream, out, a, parts, part_count, bias, M, N, K);
    source.first[0] = 0;
    for (int i = 0; i < part_count; i++) {
        FAST(codes_reader_init)
        (&source.parts[i], parts[i].codes, parts[i].scales, parts[i].matrix);
        source.first[i + 1] = source.first[i] + (int)parts[i].matrix->rows;
    }
    assert(source.first[part_count] == (trans_b ? N : K));
    return FAST(gemm_made)(
            out, out_type, a, &(struct gemm_rows){make_row, &source}, bias, M,
            N, K, trans_b, accumulate);
}
