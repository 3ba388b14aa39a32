#include "kernels/cpu/fast.h"

/* Elements a thread takes at a time; columns summed in the first-level cache;
 * rows summed before they join the total. */
enum { PIECE = 4096, COLUMNS = 512, ROWS = 128 };

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
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int first = 0; first < C; first += COLUMNS) {
        int columns = C - first < COLUMNS ? C - first : COLUMNS;
        float sum[COLUMNS];
        if (!accumulate)
            memset(out + first, 0, (size_t)columns * sizeof *out);
        for (int n = 0; n < N; n++) {
            const elem *row = (const elem *)x + (size_t)n * C + first;
            if (n % ROWS == 0)
                memset(sum, 0, sizeof sum);
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

enum zd_status FAST(embedding_forward)(
        struct stream *stream, void *out, const int32_t *ids, const void *table,
        int N, int C, bool add)
{
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        const elem *row = (const elem *)table + (size_t)ids[n] * C;
        elem *o = (elem *)out + (size_t)n * C;
        if (!add) {
            memcpy(o, row, (size_t)C * sizeof *o);
            continue;
        }
        for (int c = 0; c < C; c += VL) {
            vf sum = load_some(o + c, C - c) + load_some(row + c, C - c);
            store_some(o + c, sum, C - c);
        }
    }
    return ZD_OK;
}

/* Threads share out the columns: equal ids then add in token order. */
enum zd_status FAST(embedding_backward)(
        struct stream *stream, float *dtable, const int32_t *ids,
        const int32_t *order, const void *dout, int N, int C)
{
    enum { BLOCK = 64 };
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int first = 0; first < C; first += BLOCK) {
        int end = C - first < BLOCK ? C : first + BLOCK;
        for (int n = 0; n < N; n++) {
            const elem *g = (const elem *)dout + (size_t)n * C;
            float *d = dtable + (size_t)ids[n] * C;
            for (int c = first; c < end; c += VL) {
                vf sum = vf_load_some(d + c, end - c) +
                         load_some(g + c, end - c);
                vf_store_some(d + c, sum, end - c);
            }
        }
    }
    return ZD_OK;
}

enum zd_status FAST(rope)(
        struct stream *stream, void *x, const float *cosine, const float *sine,
        const int32_t *positions, int N, int H, int D, int64_t row_stride,
        bool backward)
{
    int half = D / 2;
#pragma omp parallel for num_threads(threads_for((size_t)N *H *D))
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++) {
            elem *low = (elem *)x + n * row_stride + (int64_t)h * D;
            elem *high = low + half;
            const float *pc = cosine + (size_t)positions[n] * half;
            const float *ps = sine + (size_t)positions[n] * half;
            for (int i = 0; i < half; i += VL) {
                vf c = vf_load_some(pc + i, half - i);
                vf s = vf_load_some(ps + i, half - i);
                vf lo = load_some(low + i, half - i);
                vf hi = load_some(high + i, half - i);
                if (backward)
                    s = -s;
                store_some(low + i, lo * c - hi * s, half - i);
                store_some(high + i, hi * c + lo * s, half - i);
            }
        }
    return ZD_OK;
}
