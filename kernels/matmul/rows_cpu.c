/* rows_cpu.c - products of a few rows with a matrix, as a decode step has them.
 *
 * Nothing of the matrix is used twice, so nothing is packed: it is read once,
 * in the order in which it is stored, and memory's bandwidth is the bound.
 * What one element sums, and in which order, depends on K alone. */
#include "kernels/matmul/rows_cpu.h"
#include "kernels/cpu/fast.h"
#include "kernels/matmul/rows_sums.h"

/* Of a (N, K) matrix one row is read at a time: rows side by side are read at
 * half the speed (bench/gemm). Of a (K, N) matrix DEPTH rows are, and the sums
 * of STRIP columns wait in the caches. */
enum { STRIP = 2048, DEPTH = 4 };

/* sums[m][i] = a(m, :) . b(column, :), which is column i of a strip. */
ALWAYS_INLINE void dot_run(
        const struct rows_product *p, int rows, int column, int i,
        float sums[MATMUL_ROWS_MAX][STRIP])
{
    const elem *b = (const elem *)p->b + (size_t)column * (size_t)p->K;
    struct rows_sums of;
    memset(&of, 0, sizeof of);
    rows_add(&of, p->a, p->K, rows, b, p->K);
    for (int m = 0; m < rows; m++)
        sums[m][i] = rows_total(&of, m);
}

/* sums[m][c] += a(m, k) b(k, column + c), k < depth, c < columns. */
ALWAYS_INLINE void add_rows(
        const struct rows_product *p, int rows, int depth, int k, int column,
        int columns, float sums[MATMUL_ROWS_MAX][STRIP])
{
    const elem *a = (const elem *)p->a + k;
    const elem *b = (const elem *)p->b + (size_t)k * (size_t)p->N + column;
    float factor[MATMUL_ROWS_MAX][DEPTH];
    for (int m = 0; m < rows; m++)
        for (int i = 0; i < depth; i++)
            factor[m][i] = elem_to_float(a[(int64_t)m * p->K + i]);
    for (int c = 0; c < columns; c += VL) {
        vf bv[DEPTH];
        for (int i = 0; i < depth; i++)
            bv[i] = load_some(b + (int64_t)i * p->N + c, columns - c);
        for (int m = 0; m < rows; m++) {
            vf sum = vf_load(&sums[m][c]);
            for (int i = 0; i < depth; i++)
                sum += factor[m][i] * bv[i];
            vf_store(&sums[m][c], sum);
        }
    }
}

ALWAYS_INLINE void strip_run(
        const struct rows_product *p, int rows, int column, int columns,
        float sums[MATMUL_ROWS_MAX][STRIP])
{
    int k = 0;
    if (p->trans_b) {
        for (int i = 0; i < columns; i++)
            dot_run(p, rows, column + i, i, sums);
        return;
    }
    for (int m = 0; m < rows; m++)
        memset(sums[m], 0, sizeof sums[m]);
    for (; k + DEPTH <= p->K; k += DEPTH)
        add_rows(p, rows, DEPTH, k, column, columns, sums);
    for (; k < p->K; k++)
        add_rows(p, rows, 1, k, column, columns, sums);
}

ALWAYS_INLINE void share_run(
        const struct rows_product *p, int rows, int first, int last)
{
    float sums[MATMUL_ROWS_MAX][STRIP];
    for (int c = first; c < last; c += STRIP) {
        int columns = last - c < STRIP ? last - c : STRIP;
        strip_run(p, rows, c, columns, sums);
        for (int m = 0; m < rows; m++) {
            size_t at = (size_t)m * (size_t)p->N + (size_t)c;
            rows_put(
                    (char *)p->out + at * dtype_bytes(p->out_type), p->out_type,
                    p->bias ? (const elem *)p->bias + c : NULL, p->accumulate,
                    sums[m], columns);
        }
    }
}

/* So that the loops over rows are unrolled. */
static void share_of(const struct rows_product *p, int first, int last)
{
    static_assert(MATMUL_ROWS_MAX == 2, "a case for each");
    if (p->M == 1)
        share_run(p, 1, first, last);
    else
        share_run(p, 2, first, last);
}

void FAST(rows_run)(const struct rows_product *p)
{
    enum { CUT = 64 }; /* columns: whole cache lines of any type */
    int cuts = (p->N + CUT - 1) / CUT;
    int threads = threads_for((size_t)p->N * (size_t)p->K);
    threads = threads < cuts ? threads : cuts;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        int first = (int)((int64_t)cuts * t / threads) * CUT;
        int last = (int)((int64_t)cuts * (t + 1) / threads) * CUT;
        share_of(p, first, last < p->N ? last : p->N);
    }
}
