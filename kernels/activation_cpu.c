#include "kernels/fast.h"

/* Elements a thread takes at a time. */
enum { PIECE = 4096 };

/* The tanh form is x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), which
 * loses nothing to cancellation where tanh is near -1. */
static const float two_scale = 1.5957691216f;
static const float cube = 0.044715f;

enum zd_status FAST(gelu_forward)(
        struct stream *stream, void *out, const void *x, size_t count)
{
    const elem *ex = x;
    elem *eout = out;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        for (size_t i = first; i < end; i += VL) {
            vf v = load_some(ex + i, (int64_t)(end - i));
            vf s = vf_sigmoid(two_scale * (v + cube * v * v * v));
            store_some(eout + i, v * s, (int64_t)(end - i));
        }
    }
    return ZD_OK;
}

enum zd_status FAST(gelu_backward)(
        struct stream *stream, void *dx, const void *dout, const void *x,
        size_t count)
{
    const elem *ex = x, *eg = dout;
    elem *ed = dx;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        for (size_t i = first; i < end; i += VL) {
            vf v = load_some(ex + i, (int64_t)(end - i));
            vf g = load_some(eg + i, (int64_t)(end - i));
            vf s = vf_sigmoid(two_scale * (v + cube * v * v * v));
            vf du = two_scale * (1.0f + 3.0f * cube * v * v);
            vf d = g * (s + v * s * (1.0f - s) * du);
            store_some(ed + i, d, (int64_t)(end - i));
        }
    }
    return ZD_OK;
}

enum zd_status FAST(swiglu_forward)(
        struct stream *stream, void *out, const void *gate, const void *up,
        size_t count)
{
    const elem *eg = gate, *eu = up;
    elem *eout = out;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        for (size_t i = first; i < end; i += VL) {
            vf g = load_some(eg + i, (int64_t)(end - i));
            vf u = load_some(eu + i, (int64_t)(end - i));
            store_some(eout + i, g * vf_sigmoid(g) * u, (int64_t)(end - i));
        }
    }
    return ZD_OK;
}

enum zd_status FAST(swiglu_backward)(
        struct stream *stream, void *dgate, void *dup, const void *dout,
        const void *gate, const void *up, size_t count)
{
    const elem *ed = dout, *eg = gate, *eu = up;
    elem *edg = dgate, *edu = dup;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        for (size_t i = first; i < end; i += VL) {
            vf d = load_some(ed + i, (int64_t)(end - i));
            vf g = load_some(eg + i, (int64_t)(end - i));
            vf u = load_some(eu + i, (int64_t)(end - i));
            vf s = vf_sigmoid(g);
            store_some(edu + i, d * g * s, (int64_t)(end - i));
            store_some(
                    edg + i, d * u * s * (1.0f + g * (1.0f - s)),
                    (int64_t)(end - i));
        }
    }
    return ZD_OK;
}
