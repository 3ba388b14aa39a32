/* codes_rows_cpu.c - a row of the matrix is decoded, a piece at a time, into
 * the first-level cache and multiplied from there as rows_cpu.c multiplies. */
#include "kernels/cpu/fast.h"
#include "kernels/matmul/rows_sums.h"
#include "kernels/quant/codes_rows.h"
#include "kernels/quant/quant_cpu.h"

codes_rows_fn FAST(codes_rows);

enum { PIECE = 2048, CUT = 64 };
static_assert(PIECE % ROWS_STEP == 0, "sums in the order of whole rows");

struct codes_product {
    struct codes_reader reader;
    elem *out;
    const elem *a, *bias;
    int64_t stride;
    int K, M;
};

/* sums[m] of row n of the matrix. */
ALWAYS_INLINE void row_run(
        const struct codes_product *p, int rows, int64_t n,
        float sums[ROWS_TOGETHER])
{
    elem piece[PIECE];
    struct rows_sums of;
    memset(&of, 0, sizeof of);
    for (int k = 0; k < p->K; k += PIECE) {
        int count = p->K - k < PIECE ? p->K - k : PIECE;
        FAST(codes_read)
        (piece, &p->reader, (size_t)n * (size_t)p->K + (size_t)k,
         (size_t)count);
        rows_add(&of, p->a + k, p->K, rows, piece, count);
    }
    for (int m = 0; m < rows; m++)
        sums[m] = rows_total(&of, m);
}

/* At most CUT columns of out. */
static void cut_run(const struct codes_product *p, int64_t first, int count)
{
    float sums[ROWS_TOGETHER][CUT], of[ROWS_TOGETHER];
    static_assert(ROWS_TOGETHER == 2, "a case for each");
    for (int i = 0; i < count; i++) {
        if (p->M == 1)
            row_run(p, 1, first + i, of);
        else
            row_run(p, 2, first + i, of);
        for (int m = 0; m < p->M; m++)
            sums[m][i] = of[m];
    }
    for (int m = 0; m < p->M; m++)
        rows_put(
                p->out + m * p->stride + first, ELEM_DTYPE,
                p->bias ? p->bias + first : NULL, false, sums[m], count);
}

enum zd_status FAST(codes_rows)(
        struct stream *stream, void *out, int64_t stride, const void *a,
        const void *codes, const void *scales,
        const struct quant_matrix *matrix, const void *bias, int M)
{
    struct codes_product p = {
            .out = out,
            .a = a,
            .bias = bias,
            .stride = stride,
            .K = (int)matrix->columns,
            .M = M};
    assert(M <= ROWS_TOGETHER);
    FAST(codes_reader_init)(&p.reader, codes, scales, matrix);
#pragma omp parallel for schedule(static)                                      \
        num_threads(threads_for(quant_matrix_count(matrix)))
    for (int64_t n = 0; n < matrix->rows; n += CUT)
        cut_run(&p, n, matrix->rows - n < CUT ? (int)(matrix->rows - n) : CUT);
    return ZD_OK;
}
