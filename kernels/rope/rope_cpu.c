#include "kernels/cpu/fast.h"
#include "kernels/rope/rope.h"

rope_fn FAST(rope);

/* The compiler fuses one of the two products with the sum (-ffp-contract);
 * which one depends on this order of loads and stores, so bits do too. */
ALWAYS_INLINE void turn_halves(
        elem *low, const float *cosine, const float *sine, int pairs,
        bool backward)
{
    elem *high = low + pairs;
    for (int i = 0; i < pairs; i += VL) {
        vf c = vf_load_some(cosine + i, pairs - i);
        vf s = vf_load_some(sine + i, pairs - i);
        vf lo = load_some(low + i, pairs - i);
        vf hi = load_some(high + i, pairs - i);
        if (backward)
            s = -s;
        store_some(low + i, lo * c - hi * s, pairs - i);
        store_some(high + i, hi * c + lo * s, pairs - i);
    }
}

/* Interleaved pairs: splits them into halves, rotates, and interleaves again.
 */
static void turn_neighbors(
        elem *head, const float *cosine, const float *sine, int pairs,
        bool backward)
{
    for (int i = 0; i < pairs; i += VL) {
        elem *at = head + 2 * i;
        int64_t left = 2 * (int64_t)(pairs - i);
        float mixed[2 * VL] = {0}, apart[2][VL];
        vf_store(mixed, load_some(at, left));
        if (left > VL)
            vf_store(mixed + VL, load_some(at + VL, left - VL));
        for (int j = 0; j < 2 * VL; j++)
            apart[j % 2][j / 2] = mixed[j];
        vf c = vf_load_some(cosine + i, pairs - i);
        vf s = vf_load_some(sine + i, pairs - i);
        vf lo = vf_load(apart[0]), hi = vf_load(apart[1]);
        if (backward)
            s = -s;
        vf_store(apart[0], lo * c - hi * s);
        vf_store(apart[1], hi * c + lo * s);
        for (int j = 0; j < 2 * VL; j++)
            mixed[j] = apart[j % 2][j / 2];
        store_some(at, vf_load(mixed), left);
        if (left > VL)
            store_some(at + VL, vf_load(mixed + VL), left - VL);
    }
}

enum zd_status FAST(rope)(
        struct stream *stream, void *x, const struct rope_angles *angles, int N,
        int H, int D, int64_t row_stride, bool backward)
{
    int pairs = rope_pairs_of(angles, D);
    assert(2 * pairs <= D);
#pragma omp parallel for num_threads(threads_for((size_t)N *H *D))
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++) {
            elem *head = (elem *)x + n * row_stride + (int64_t)h * D;
            size_t entry = (size_t)angles->positions[n] * pairs;
            const float *c = angles->cosine + entry, *s = angles->sine + entry;
            if (angles->interleaved)
                turn_neighbors(head, c, s, pairs, backward);
            else
                turn_halves(head, c, s, pairs, backward);
        }
    return ZD_OK;
}
