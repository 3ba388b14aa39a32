#include "kernels/cpu/fast.h"
#include "kernels/elementwise/elementwise.h"

add_fn FAST(add);
reduce_rows_fn FAST(reduce_rows);

/* Elements a thread takes at a time; columns summed in the first-level cache,
 * at most; rows summed before they join the total. */
enum { PIECE = 4096, COLUMNS = 2048, ROWS = 128 };

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

enum zd_status FAST(reduce_rows)(
        struct stream *stream, float *out, const void *x, int N, int C,
        bool accumulate)
{
    int threads = threads_for((size_t)N * (size_t)C);
    int share = (C + threads * VL - 1) / (threads * VL) * VL;
    int most = share < COLUMNS ? share : COLUMNS;
#pragma omp parallel for num_threads(threads)
    for (int first = 0; first < C; first += most) {
        int columns = C - first < most ? C - first : most;
        float sum[COLUMNS];
        if (!accumulate)
            memset(out + first, 0, (size_t)columns * sizeof *out);
        for (int n = 0; n < N; n++) {
            const elem *row = (const elem *)x + (size_t)n * C + first;
            if (n % ROWS == 0)
                memset(sum, 0, (size_t)most * sizeof *sum);
            for (int c = 0; c < columns; c += VL)
                vf_store(
                        sum + c,
                        vf_load(sum + c) + load_some(row + c, columns - c));
            if (n % ROWS == ROWS - 1 || n == N - 1)
                for (int c = 0; c < columns; c++)
                    out[first + c] += sum[c];
        }
    }
    return ZD_OK;
}
