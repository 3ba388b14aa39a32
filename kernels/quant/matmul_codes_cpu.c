/* matmul_codes_cpu.c - our own matmul, which asks for the rows of a
 * quantized matrix as it packs them. */
#include "kernels/cpu/fast.h"
#include "kernels/matmul/matmul_cpu.h"
#include "kernels/quant/codes_rows.h"
#include "kernels/quant/matmul_codes.h"
#include "kernels/quant/quant_cpu.h"

matmul_codes_fn FAST(matmul_codes);
codes_rows_fn FAST(codes_rows);

/* Matrices one after the other. */
struct codes_source {
    struct codes_reader parts[CODES_PARTS];
    int first[CODES_PARTS + 1]; /* row of each, and after the last */
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

/* As many rows of a as a decode step has: codes_rows reads the matrix once for
 * two of them. */
static enum zd_status few_rows(
        struct stream *stream, const struct matmul *m,
        const struct codes_view *parts, int part_count)
{
    const elem *a = m->a.data, *bias = m->bias;
    elem *out = m->out.data;
    for (int row = 0; row < m->M; row += ROWS_TOGETHER) {
        int64_t first = 0;
        for (int i = 0; i < part_count; first += parts[i++].matrix->rows)
            ZD_TRY(FAST(codes_rows)(
                    stream, out + (int64_t)row * m->N + first, m->N,
                    a + (int64_t)row * m->K, parts[i].codes, parts[i].scales,
                    parts[i].matrix, bias ? bias + first : NULL,
                    m->M - row < ROWS_TOGETHER ? m->M - row : ROWS_TOGETHER));
    }
    return ZD_OK;
}

enum zd_status FAST(matmul_codes)(
        struct stream *stream, const struct matmul *m,
        const struct codes_view *parts, int part_count)
{
    struct codes_source source;
    assert(part_count > 0 && part_count <= CODES_PARTS);
    if (rows_are_few(m) && m->b.transposed && m->out.type == ELEM_DTYPE &&
        !m->accumulate)
        return few_rows(stream, m, parts, part_count);
    source.first[0] = 0;
    for (int i = 0; i < part_count; i++) {
        FAST(codes_reader_init)
        (&source.parts[i], parts[i].codes, parts[i].scales, parts[i].matrix);
        source.first[i + 1] = source.first[i] + (int)parts[i].matrix->rows;
    }
    assert(source.first[part_count] == (m->b.transposed ? m->N : m->K));
    return FAST(gemm_made)(m, &(struct gemm_rows){make_row, &source});
}
