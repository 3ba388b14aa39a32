#include "kernels/cpu/fast.h"
#include "kernels/cpu/pairs.h"
#include "kernels/elementwise/elementwise.h"

add_fn FAST(add);
reduce_rows_fn FAST(reduce_rows);

/* Elements a thread takes at a time; columns summed in the first-level cache,
 * at most; rows summed before they join the total. */
enum { PIECE = 4096, COLUMNS = 2048, ROWS = 128, SIDE_BY_SIDE = 8 };

enum zd_status FAST(add)(
        struct stream *stream, void *out, const void *a, const void *b,
        size_t count)
{
    const elem *ea = a, *eb = b;
    elem *eout = out;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        for (size_t i = first; i < end; i += VL) {
            int64_t rest = (int64_t)(end - i);
            vf sum = load_some(ea + i, rest) + load_some(eb + i, rest);
            store_some(eout + i, sum, rest);
        }
    }
    return ZD_OK;
}

/* Adds rows that are C elements apart to `sums`, from column c on. */
ALWAYS_INLINE void rows_step(
        struct two *sums, const elem *x, int64_t C, int rows, int c, int count)
{
    struct two sum = sums[c / (2 * VL)];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        struct two v = read_two(x + i * C + c, count);
        sum.a += v.a, sum.b += v.b;
    }
    sums[c / (2 * VL)] = sum;
}

ALWAYS_INLINE void rows_add(
        struct two *sums, const elem *x, int64_t C, int rows, int columns)
{
    int c = 0;
    for (; c + 2 * VL <= columns; c += 2 * VL)
        rows_step(sums, x, C, rows, c, 2 * VL);
    if (c < columns)
        rows_step(sums, x, C, rows, c, columns - c);
}

enum zd_status FAST(reduce_rows)(
        struct stream *stream, float *out, const void *x, int N, int C,
        bool accumulate)
{
    int threads = threads_for((size_t)N * (size_t)C), part = 2 * VL * threads;
    int share = (C + part - 1) / part * 2 * VL;
    int most = share < COLUMNS ? share : COLUMNS;
#pragma omp parallel for num_threads(threads)
    for (int first = 0; first < C; first += most) {
        int columns = C - first < most ? C - first : most;
        struct two sums[COLUMNS / (2 * VL)];
        if (!accumulate)
            memset(out + first, 0, (size_t)columns * sizeof *out);
        for (int n = 0; n < N;) {
            const elem *rows = (const elem *)x + (size_t)n * C + first;
            if (n % ROWS == 0)
                memset(sums, 0, sizeof sums);
            int count = N - n < SIDE_BY_SIDE ? 1 : SIDE_BY_SIDE;
            if (count == 1)
                rows_add(sums, rows, C, 1, columns);
            else
                rows_add(sums, rows, C, SIDE_BY_SIDE, columns);
            n += count;
            if (n % ROWS == 0 || n == N)
                for (int c = 0; c < columns; c += 2 * VL)
                    two_add_some(
                            out + first + c, sums[c / (2 * VL)], columns - c);
        }
    }
    return ZD_OK;
}
