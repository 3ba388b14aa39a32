#include "kernels/cpu/fast.h"
#include "kernels/elementwise/masked.h"

scale_rows_fn FAST(scale_rows);

/* Elements of a row whose scales are made at a time. */
enum { PIECE = 64 };

/* scale or 0 for elements c .. c + PIECE - 1. */
static void fill_scales(
        float scales[PIECE], const struct dropout *dropout, int n, int C, int c,
        float scale)
{
    for (int i = 0; i < PIECE && c + i < C; i += DROPOUT_WORDS) {
        uint32_t words[DROPOUT_WORDS];
        dropout_words(dropout, n, C, (c + i) / DROPOUT_WORDS, words);
        for (int j = 0; j < DROPOUT_WORDS; j++)
            scales[i + j] = words[j] < dropout->threshold ? 0.0f : scale;
    }
}

static void scale_row(
        elem *out, const elem *x, int n, int C, float scale,
        const struct dropout *dropout, bool add)
{
    float scales[PIECE];
    for (int i = 0; i < PIECE; i++)
        scales[i] = scale;
    for (int c = 0; c < C; c += PIECE) {
        int end = C - c < PIECE ? C : c + PIECE;
        if (dropout->threshold)
            fill_scales(scales, dropout, n, C, c, scale);
        for (int i = c; i < end; i += VL) {
            vf v = vf_load(scales + (i - c)) * load_some(x + i, end - i);
            if (add)
                v += load_some(out + i, end - i);
            store_some(out + i, v, end - i);
        }
    }
}

enum zd_status FAST(scale_rows)(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int N, int C, float scale, const struct dropout *dropout, bool add)
{
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++)
        scale_row(
                (elem *)out + n * out_stride, (const elem *)x + (int64_t)n * C,
                n, C, scale, dropout, add);
    return ZD_OK;
}
