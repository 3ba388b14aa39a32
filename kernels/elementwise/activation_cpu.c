#include "kernels/cpu/fast.h"
#include "kernels/elementwise/activation.h"

gelu_forward_fn FAST(gelu_forward);
gelu_backward_fn FAST(gelu_backward);
gated_forward_fn FAST(gated_forward);
gated_backward_fn FAST(gated_backward);

/* Elements a thread takes at a time. */
enum { PIECE = 4096 };

/* The tanh form is x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), which
 * loses nothing to cancellation where tanh is near -1. */
static const float two_scale = 1.5957691216f;
static const float cube = 0.044715f;

ALWAYS_INLINE vf gelu_sigmoid(vf v)
{
#if HAS_EXP2
    const float by = two_scale * -1.44269504f; /* of 2^t */
    vf t = v * (by + by * cube * (v * v));
    return vf_reciprocal(1.0f + vf_exp2_elem(vf_min(vf_all(115.0f), t)));
#else
    return vf_sigmoid(two_scale * (v + cube * v * v * v));
#endif
}

ALWAYS_INLINE vf gelu_slope(vf v, vf s)
{
    vf du = two_scale * (1.0f + 3.0f * cube * v * v);
    return s + v * s * (1.0f - s) * du;
}

ALWAYS_INLINE void gelu_step(elem *out, const elem *x, int64_t count)
{
    vf v = load_some(x, count);
    store_some(out, v * gelu_sigmoid(v), count);
}

ALWAYS_INLINE void gelu_back_step(
        elem *dx, const elem *dout, const elem *x, int64_t count)
{
    vf v = load_some(x, count), g = load_some(dout, count);
    store_some(dx, g * gelu_slope(v, gelu_sigmoid(v)), count);
}

enum zd_status FAST(gelu_forward)(
        struct stream *stream, void *out, const void *x, size_t count)
{
    const elem *ex = x;
    elem *eout = out;
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t first = 0; first < count; first += PIECE) {
        size_t end = count - first < PIECE ? count : first + PIECE;
        size_t i = first;
        for (; i + VL <= end; i += VL)
            gelu_step(eout + i, ex + i, VL);
        if (i < end)
            gelu_step(eout + i, ex + i, (int64_t)(end - i));
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
        size_t i = first;
        for (; i + VL <= end; i += VL)
            gelu_back_step(ed + i, eg + i, ex + i, VL);
        if (i < end)
            gelu_back_step(ed + i, eg + i, ex + i, (int64_t)(end - i));
    }
    return ZD_OK;
}

/* --- gated: `n` elements of a row ----------------------------------------- */

ALWAYS_INLINE void gated_run(
        elem *out, const elem *gate, const elem *up, int64_t n, enum gate by)
{
    for (int64_t i = 0; i < n; i += VL) {
        vf g = load_some(gate + i, n - i);
        vf u = load_some(up + i, n - i);
        vf s = by == GATE_GELU ? gelu_sigmoid(g) : vf_sigmoid(g);
        store_some(out + i, g * s * u, n - i);
    }
}

ALWAYS_INLINE void gated_back_run(
        elem *dgate, elem *dup, const elem *dout, const elem *gate,
        const elem *up, int64_t n, enum gate by)
{
    for (int64_t i = 0; i < n; i += VL) {
        vf d = load_some(dout + i, n - i);
        vf g = load_some(gate + i, n - i);
        vf u = load_some(up + i, n - i);
        vf s = by == GATE_GELU ? gelu_sigmoid(g) : vf_sigmoid(g);
        store_some(dup + i, d * g * s, n - i);
        d = by == GATE_GELU ? d * u * gelu_slope(g, s)
                            : d * u * s * (1.0f + g * (1.0f - s));
        store_some(dgate + i, d, n - i);
    }
}

/* Rows as pieces of work: those that lie together are one long row. */
struct rows {
    int64_t count, length, stride; /* of gate and up; the others are dense */
};

static struct rows rows_of(int N, int F, int64_t stride)
{
    if (stride == F)
        return (struct rows){1, (int64_t)N * F, 0};
    return (struct rows){N, F, stride};
}

enum zd_status FAST(gated_forward)(
        struct stream *stream, enum gate by, void *out, const void *gate,
        const void *up, int N, int F, int64_t stride)
{
    struct rows rows = rows_of(N, F, stride);
    int threads = threads_for((size_t)N * (size_t)F);
#pragma omp parallel for num_threads(threads) collapse(2)
    for (int64_t row = 0; row < rows.count; row++)
        for (int64_t first = 0; first < rows.length; first += PIECE) {
            int64_t left = rows.length - first, n = left < PIECE ? left : PIECE;
            int64_t at = row * rows.stride + first;
            elem *o = (elem *)out + row * rows.length + first;
            const elem *g = (const elem *)gate + at;
            const elem *u = (const elem *)up + at;
            if (by == GATE_GELU)
                gated_run(o, g, u, n, GATE_GELU);
            else
                gated_run(o, g, u, n, GATE_SILU);
        }
    return ZD_OK;
}

enum zd_status FAST(gated_backward)(
        struct stream *stream, enum gate by, void *dgate, void *dup,
        const void *dout, const void *gate, const void *up, int N, int F,
        int64_t stride)
{
    struct rows rows = rows_of(N, F, stride);
    int threads = threads_for((size_t)N * (size_t)F);
#pragma omp parallel for num_threads(threads) collapse(2)
    for (int64_t row = 0; row < rows.count; row++)
        for (int64_t first = 0; first < rows.length; first += PIECE) {
            int64_t left = rows.length - first, n = left < PIECE ? left : PIECE;
            int64_t at = row * rows.stride + first;
            elem *dg = (elem *)dgate + at, *du = (elem *)dup + at;
            const elem *d = (const elem *)dout + row * rows.length + first;
            const elem *g = (const elem *)gate + at;
            const elem *u = (const elem *)up + at;
            if (by == GATE_GELU)
                gated_back_run(dg, du, d, g, u, n, GATE_GELU);
            else
                gated_back_run(dg, du, d, g, u, n, GATE_SILU);
        }
    return ZD_OK;
}
