#include "kernels/cpu/fast.h"
#include "kernels/cpu/pairs.h"
#include "kernels/elementwise/activation.h"
#if HAS_BF16
#include "kernels/elementwise/gelu_segments.h"
#endif

gelu_forward_fn FAST(gelu_forward);
gelu_backward_fn FAST(gelu_backward);
gated_forward_fn FAST(gated_forward);
gated_backward_fn FAST(gated_backward);

/* Elements a thread takes at a time. It makes their divisors first: of a long
 * chain of operations two halves overlap better. */
enum { RUN = 1024 };

/* The tanh form is x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), which
 * loses nothing to cancellation where tanh is near -1. */
static const float two_scale = 1.5957691216f;
static const float cube = 0.044715f;

/* What 1 is divided by for the sigmoid of a gate: 1 + e^-v, with the power kept
 * finite; of gelu v is 2 u. */
ALWAYS_INLINE vf divisor(vf v, enum gate by)
{
#if HAS_EXP2
    const float log2_e = 1.44269504f, scale = two_scale * -log2_e;
    vf t = by == GATE_GELU ? v * (scale + scale * cube * (v * v)) : v * -log2_e;
    return 1.0f + vf_exp2_elem(vf_min(vf_all(115.0f), t));
#else
    if (by == GATE_GELU)
        v = two_scale * (v + cube * v * v * v);
    return 1.0f + vf_exp(-vf_max(vf_all(-80.0f), v));
#endif
}

ALWAYS_INLINE void divisors(
        struct two *d, const elem *x, int64_t n, enum gate by)
{
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two v = load_two_some(x + i, n - i);
        d[i / 2 / VL] = (struct two){divisor(v.a, by), divisor(v.b, by)};
    }
}

/* The order of fp32's steps decides its bits; a narrow type's take fewer. */
enum { IS_NARROW = KERNEL_TYPE != KERNEL_FP32 };

ALWAYS_INLINE vf gelu_slope(vf v, vf s)
{
    if (IS_NARROW) {
        vf rise = v * (two_scale + 3.0f * two_scale * cube * (v * v));
        return s + s * (rise - rise * s);
    }
    vf du = two_scale * (1.0f + 3.0f * cube * v * v);
    return s + v * s * (1.0f - s) * du;
}

#if HAS_BF16
/* The polynomial of the segment of a. Adding 1.5 * 2^21 rounds to a fourth and
 * leaves the segment in the low bits. Of NaN and infinity NaN. */
ALWAYS_INLINE vf
segment_value(const float (*table)[GELU_SEGMENTS], int degree, vf a)
{
    const float quarters = 3145728.0f;
    vf last = vf_all(quarters + 7.75f);
    __m512i segment = _mm512_min_epi32((__m512i)(a + quarters), (__m512i)last);
    vf p = {0};
#pragma GCC unroll 8
    for (int i = 0; i <= degree; i++) {
        vf c = _mm512_permutex2var_ps(
                vf_load(table[i]), segment, vf_load(table[i] + VL));
        p = i ? p * a + c : c;
    }
    return p;
}

ALWAYS_INLINE struct two gelu_of(vu x)
{
    struct two a = two_of_pairs(x & 0x7fff7fffu);
    vu above_0 = (vu)_mm512_max_epi16((__m512i)x, _mm512_setzero_si512());
    struct two out = two_of_pairs(above_0);
    out.a -= a.a * segment_value(gelu_below, 3, a.a);
    out.b -= a.b * segment_value(gelu_below, 3, a.b);
    return out;
}

/* dout gelu'(x) */
ALWAYS_INLINE struct two gelu_gradient(vu x, vu dout)
{
    vu is_below_0 = (vu)_mm512_srai_epi16((__m512i)x, 15);
    struct two a = two_of_pairs(x & 0x7fff7fffu);
    struct two by = two_of_pairs(dout ^ (~x & 0x80008000u));
    struct two out = two_of_pairs(dout & ~is_below_0);
    out.a += by.a * segment_value(gelu_slopes, 4, a.a);
    out.b += by.b * segment_value(gelu_slopes, 4, a.b);
    return out;
}

static void gelu_run(elem *out, const elem *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        store_two(out + i, gelu_of(load_pairs(x + i)));
    if (i < n)
        store_two_some(out + i, gelu_of(load_pairs_some(x + i, n - i)), n - i);
}

static void gelu_back_run(elem *dx, const elem *dout, const elem *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2 * VL) {
        vu v = load_pairs_some(x + i, n - i);
        vu g = load_pairs_some(dout + i, n - i);
        store_two_some(dx + i, gelu_gradient(v, g), n - i);
    }
}

static void geglu_run(elem *out, const elem *gate, const elem *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two g = gelu_of(load_pairs_some(gate + i, n - i));
        struct two u = read_two(up + i, n - i);
        g.a *= u.a, g.b *= u.b;
        store_two_some(out + i, g, n - i);
    }
}
#else
static void gelu_run(elem *out, const elem *x, int64_t n)
{
    struct two d[RUN / 2 / VL];
    divisors(d, x, n, GATE_GELU);
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two v = load_two_some(x + i, n - i), *s = &d[i / 2 / VL];
        v.a *= vf_reciprocal(s->a);
        v.b *= vf_reciprocal(s->b);
        store_two_some(out + i, v, n - i);
    }
}

static void gelu_back_run(elem *dx, const elem *dout, const elem *x, int64_t n)
{
    struct two d[RUN / 2 / VL];
    divisors(d, x, n, GATE_GELU);
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two v = load_two_some(x + i, n - i), *s = &d[i / 2 / VL];
        struct two g = load_two_some(dout + i, n - i);
        g.a *= gelu_slope(v.a, vf_reciprocal(s->a));
        g.b *= gelu_slope(v.b, vf_reciprocal(s->b));
        store_two_some(dx + i, g, n - i);
    }
}
#endif

enum zd_status FAST(gelu_forward)(
        struct stream *stream, void *out, const void *x, size_t count)
{
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t i = 0; i < count; i += RUN)
        gelu_run(
                (elem *)out + i, (const elem *)x + i,
                (int64_t)(count - i < RUN ? count - i : RUN));
    return ZD_OK;
}

enum zd_status FAST(gelu_backward)(
        struct stream *stream, void *dx, const void *dout, const void *x,
        size_t count)
{
#pragma omp parallel for num_threads(threads_for(count))
    for (size_t i = 0; i < count; i += RUN)
        gelu_back_run(
                (elem *)dx + i, (const elem *)dout + i, (const elem *)x + i,
                (int64_t)(count - i < RUN ? count - i : RUN));
    return ZD_OK;
}

/* --- gated: `n` elements of a row ----------------------------------------- */

ALWAYS_INLINE void gated_run(
        elem *out, const elem *gate, const elem *up, int64_t n, enum gate by)
{
    struct two d[RUN / 2 / VL];
    divisors(d, gate, n, by);
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two g = load_two_some(gate + i, n - i), *s = &d[i / 2 / VL];
        struct two u = load_two_some(up + i, n - i);
        g.a = g.a * vf_reciprocal(s->a) * u.a;
        g.b = g.b * vf_reciprocal(s->b) * u.b;
        store_two_some(out + i, g, n - i);
    }
}

/* d and u become the gradients of the gate and of what it lets through. */
ALWAYS_INLINE void gated_back(vf *d, vf *u, vf g, vf s, enum gate by)
{
    vf dout = *d;
    *d = dout * *u;
    if (by == GATE_GELU)
        *d *= gelu_slope(g, s);
    else if (IS_NARROW)
        *d *= s + (g * s - g * s * s);
    else
        *d = *d * s * (1.0f + g * (1.0f - s));
    *u = IS_NARROW ? dout * (g * s) : dout * g * s;
}

ALWAYS_INLINE void gated_back_run(
        elem *dgate, elem *dup, const elem *dout, const elem *gate,
        const elem *up, int64_t n, enum gate by)
{
    struct two over[RUN / 2 / VL];
    divisors(over, gate, n, by);
    for (int64_t i = 0; i < n; i += 2 * VL) {
        struct two d = load_two_some(dout + i, n - i), *s = &over[i / 2 / VL];
        struct two g = load_two_some(gate + i, n - i);
        struct two u = load_two_some(up + i, n - i);
        gated_back(&d.a, &u.a, g.a, vf_reciprocal(s->a), by);
        gated_back(&d.b, &u.b, g.b, vf_reciprocal(s->b), by);
        store_two_some(dup + i, u, n - i);
        store_two_some(dgate + i, d, n - i);
    }
}

#if !HAS_BF16
static void geglu_run(elem *out, const elem *gate, const elem *up, int64_t n)
{
    gated_run(out, gate, up, n, GATE_GELU);
}
#endif

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
        for (int64_t first = 0; first < rows.length; first += RUN) {
            int64_t left = rows.length - first, n = left < RUN ? left : RUN;
            int64_t at = row * rows.stride + first;
            elem *o = (elem *)out + row * rows.length + first;
            const elem *g = (const elem *)gate + at;
            const elem *u = (const elem *)up + at;
            if (by == GATE_GELU)
                geglu_run(o, g, u, n);
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
        for (int64_t first = 0; first < rows.length; first += RUN) {
            int64_t left = rows.length - first, n = left < RUN ? left : RUN;
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
