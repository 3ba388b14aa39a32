#include "kernels/cpu/fast.h"
#include "kernels/embedding/embedding.h"

embedding_forward_fn FAST(embedding_forward);
embedding_backward_fn FAST(embedding_backward);

enum zd_status FAST(embedding_forward)(
        struct stream *stream, void *out, const int32_t *ids, const void *table,
        int N, int C, bool add)
{
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        elem *o = (elem *)out + (size_t)n * C;
        if (ids[n] < 0) {
            memset(o, 0, add ? 0 : (size_t)C * sizeof *o);
            continue;
        }
        const elem *row = (const elem *)table + (size_t)ids[n] * C;
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

/* Threads divide the columns, so equal ids add in token order. */
enum zd_status FAST(embedding_backward)(
        struct stream *stream, float *dtable, const int32_t *ids,
        const int32_t *order, const void *dout, int N, int C)
{
    enum { BLOCK = 64 };
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int first = 0; first < C; first += BLOCK) {
        int end = C - first < BLOCK ? C : first + BLOCK;
        for (int n = 0; n < N; n++) {
            if (ids[n] < 0)
                continue;
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
