#include "kernels/cpu/fast.h"
#include "kernels/rope/rope.h"

rope_fn FAST(rope);

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
