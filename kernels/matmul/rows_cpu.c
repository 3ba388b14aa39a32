/* rows_cpu.c - matmuls of a few rows with a matrix, as in a decode step.
 *
 * Each element of the matrix is used only a few times, so nothing is packed: it
 * is read from memory once, in storage order, by two rows at a time; the other
 * rows read it from the caches. Memory bandwidth is the limit. The order of an
 * element's sum depends only on K. */
#include "kernels/cpu/fast.h"
#include "kernels/matmul/matmul_cpu.h"

/* A (N, K) matrix is read one row at a time: several at once are read at half
 * the speed (bench/gemm). A (K, N) matrix is read DEPTH rows at a time, while
 * the sums of a strip of columns stay in the caches; with more rows of sums the
 * strip is narrower. */
enum { STRIP = 2048, NARROW_STRIP = 512, DEPTH = 4 };

/* ROWS_TOGETHER rows are multiplied as the matrix is read; the others while it
 * is in the caches. Several sums at once hide the latency of additions. */
enum { ROWS_TOGETHER = 2, SUMS = 4, STEP = SUMS * VL };

typedef float strip_sums[MATMUL_ROWS_MAX][STRIP];

ALWAYS_INLINE void add_products(
        vf sum[ROWS_TOGETHER], const elem *a, int64_t a_row, int rows,
        const elem *b, int count)
{
    vf bv = load_some(b, count);
    for (int m = 0; m < rows; m++)
        sum[m] += load_some(a + m * a_row, count) * bv;
}

/* sums[m][i] = a(m, :) . b(column, :), for `rows` rows from m; i: the column
 * within a strip. */
ALWAYS_INLINE void dot_run(
        const struct matmul *p, int m, int rows, int column, int i,
        strip_sums sums)
{
    const elem *a = (const elem *)p->a.data + (size_t)m * (size_t)p->K;
    const elem *b = (const elem *)p->b.data + (size_t)column * (size_t)p->K;
    vf of[SUMS][ROWS_TOGETHER];
    int k = 0;
    memset(of, 0, sizeof of);
    for (; k + STEP <= p->K; k += STEP)
        for (int s = 0; s < SUMS; s++)
            add_products(of[s], a + k + s * VL, p->K, rows, b + k + s * VL, VL);
    for (; k < p->K; k += VL)
        add_products(of[0], a + k, p->K, rows, b + k, p->K - k);
    static_assert(SUMS == 4, "the order of these");
    for (int r = 0; r < rows; r++)
        sums[m + r][i] = vf_sum((of[0][r] + of[1][r]) + (of[2][r] + of[3][r]));
}

/* sums[m][c] += a(m, k) b(k, column + c), k < depth, c < columns, for `rows`
 * rows from m. */
ALWAYS_INLINE void add_rows(
        const struct matmul *p, int m, int rows, int depth, int k, int column,
        int columns, strip_sums sums)
{
    const elem *a = (const elem *)p->a.data + (size_t)m * (size_t)p->K + k;
    const elem *b = (const elem *)p->b.data + (size_t)k * (size_t)p->N + column;
    float factor[ROWS_TOGETHER][DEPTH];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < depth; i++)
            factor[r][i] = elem_to_float(a[(int64_t)r * p->K + i]);
    for (int c = 0; c < columns; c += VL) {
        vf bv[DEPTH];
        for (int i = 0; i < depth; i++)
            bv[i] = load_some(b + (int64_t)i * p->N + c, columns - c);
        for (int r = 0; r < rows; r++) {
            vf sum = vf_load(&sums[m + r][c]);
            for (int i = 0; i < depth; i++)
                sum += factor[r][i] * bv[i];
            vf_store(&sums[m + r][c], sum);
        }
    }
}

/* Runs `run` for each ROWS_TOGETHER rows and for the rest, so that the loops
 * over rows are unrolled. */
#define FOR_ROWS(p, m, run)                                                    \
    for (int m = 0; m < (p)->M; m += ROWS_TOGETHER)                            \
        if ((p)->M - m >= ROWS_TOGETHER) {                                     \
            enum { ROWS = ROWS_TOGETHER };                                     \
            run;                                                               \
        } else {                                                               \
            enum { ROWS = 1 };                                                 \
            run;                                                               \
        }
static_assert(ROWS_TOGETHER == 2, "one is left at most");

static void strip_run(
        const struct matmul *p, int column, int columns, strip_sums sums)
{
    int k = 0;
    if (p->b.transposed) {
        for (int i = 0; i < columns; i++)
            FOR_ROWS(p, m, dot_run(p, m, ROWS, column + i, i, sums))
        return;
    }
    for (int m = 0; m < p->M; m++)
        memset(sums[m], 0, sizeof sums[m]);
    for (; k + DEPTH <= p->K; k += DEPTH)
        FOR_ROWS(p, m, add_rows(p, m, ROWS, DEPTH, k, column, columns, sums))
    for (; k < p->K; k++)
        FOR_ROWS(p, m, add_rows(p, m, ROWS, 1, k, column, columns, sums))
}

/* Stores the sums of `count` columns [+ bias] to out: rounded, or in fp32,
 * where they may be added to it. */
static void put_sums(
        void *out, enum dtype out_type, const elem *bias, bool accumulate,
        const float *sums, int count)
{
    for (int i = 0; i < count; i += VL) {
        vf sum = vf_load_some(sums + i, count - i);
        if (bias)
            sum += load_some(bias + i, count - i);
        if (out_type == DTYPE_FP32) {
            float *to = (float *)out + i;
            if (accumulate)
                sum += vf_load_some(to, count - i);
            vf_store_some(to, sum, count - i);
        } else {
            store_some((elem *)out + i, sum, count - i);
        }
    }
}

static void share_of(const struct matmul *p, int first, int last)
{
    strip_sums sums;
    int strip = p->M > ROWS_TOGETHER ? NARROW_STRIP : STRIP;
    for (int c = first; c < last; c += strip) {
        int columns = last - c < strip ? last - c : strip;
        strip_run(p, c, columns, sums);
        for (int m = 0; m < p->M; m++) {
            size_t at = (size_t)m * (size_t)p->N + (size_t)c;
            put_sums(
                    (char *)p->out.data + at * dtype_bytes(p->out.type),
                    p->out.type, p->bias ? (const elem *)p->bias + c : NULL,
                    p->accumulate, sums[m], columns);
        }
    }
}

void FAST(rows_run)(const struct matmul *p)
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
