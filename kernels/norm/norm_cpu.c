#include "kernels/cpu/fast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/norm.h"

norm_forward_fn FAST(norm_forward);
norm_backward_fn FAST(norm_backward);
add_fn FAST(add);

/* Rows whose columns are summed before they join the total: a long sum of small
 * numbers loses less when it is made of short ones. And rows side by side. */
enum { ROWS = KERNEL_TYPE == KERNEL_FP32 ? 128 : 64, SIDE_BY_SIDE = 2 };

/* A narrow type's sum of a row is two, one of each vector; the order of fp32's
 * decides its bits. */
ALWAYS_INLINE vf *second_sum(struct two *sum)
{
    return KERNEL_TYPE == KERNEL_FP32 ? &sum->a : &sum->b;
}

ALWAYS_INLINE float two_total(struct two sum)
{
    return vf_sum(KERNEL_TYPE == KERNEL_FP32 ? sum.a : sum.a + sum.b);
}

static float row_sum(const elem *x, int C)
{
    struct two sum = {{0}};
    int c = 0;
    for (; c + 2 * VL <= C; c += 2 * VL) {
        struct two v = load_two(x + c);
        sum.a += v.a, sum.b += v.b;
    }
    for (; c < C; c += VL)
        sum.a += load_some(x + c, C - c);
    return vf_sum(sum.a + sum.b);
}

/* sum (x - m)^2 */
static float row_squares(const elem *x, int C, float m)
{
    struct two squares = {{0}};
    float tail = 0.0f;
    int c = 0;
    for (; c + 2 * VL <= C; c += 2 * VL) {
        struct two d = load_two(x + c);
        d.a -= m, d.b -= m;
        squares.a += d.a * d.a;
        *second_sum(&squares) += d.b * d.b;
    }
    for (; c + VL <= C; c += VL) {
        vf d = load(x + c) - m;
        squares.a += d * d;
    }
    for (; c < C; c++) {
        float d = elem_to_float(x[c]) - m;
        tail += d * d;
    }
    return two_total(squares) + tail;
}

ALWAYS_INLINE void layernorm_step(
        elem *out, const elem *x, const elem *weight, const elem *bias, float m,
        float r, int count)
{
    struct two v = load_two_some(x, count), w = load_two_some(weight, count);
    struct two b = load_two_some(bias, count);
    v.a = (v.a - m) * r * w.a + b.a;
    v.b = (v.b - m) * r * w.b + b.b;
    store_two_some(out, v, count);
}

static void layernorm_row(
        const struct norm_forward *p, int64_t n, elem *out, const elem *row)
{
    const elem *ew = p->weight, *eb = p->bias;
    int C = p->C, c = 0;
    float m = row_sum(row, C) / (float)C;
    float r = 1.0f / sqrtf(row_squares(row, C, m) / (float)C + p->eps);
    for (; c + 2 * VL <= C; c += 2 * VL)
        layernorm_step(out + c, row + c, ew + c, eb + c, m, r, 2 * VL);
    if (c < C)
        layernorm_step(out + c, row + c, ew + c, eb + c, m, r, C - c);
    p->mean[n] = m;
    p->rstd[n] = r;
}

/* Weights as they multiply; 0 past the last. */
ALWAYS_INLINE struct two factors(const elem *weight, int count, bool one_plus)
{
    struct two w = load_two_some(weight, count);
    return one_plus ? (struct two){1.0f + w.a, 1.0f + w.b} : w;
}

ALWAYS_INLINE void scaled_row(
        elem *out, const elem *row, const elem *weight, float r, int C,
        bool round_first, bool one_plus)
{
    for (int c = 0; c < C; c += 2 * VL) {
        struct two v = load_two_some(row + c, C - c);
        struct two w = factors(weight + c, C - c, one_plus);
        v.a *= r, v.b *= r;
        if (round_first)
            v.a = round_to_elem(v.a), v.b = round_to_elem(v.b);
        v.a *= w.a, v.b *= w.b;
        store_two_some(out + c, v, C - c);
    }
}

static void rmsnorm_row(
        const struct norm_forward *p, int64_t n, elem *out, const elem *row)
{
    int C = p->C, width = norm_width(&p->parts, C);
    struct two squares = {{0}};
    for (int c = 0; c < C; c += 2 * VL) {
        struct two v = load_two_some(row + c, C - c);
        squares.a += v.a * v.a;
        *second_sum(&squares) += v.b * v.b;
    }
    float sum = two_total(squares);
    if (!p->out) {
        p->parts.mine[n] = sum;
        return;
    }
    sum = norm_sum(&p->parts, n, sum);
    float r = 1.0f / sqrtf(sum / (float)width + p->eps);
    if (p->form == RMSNORM_ROUND_FIRST)
        scaled_row(out, row, p->weight, r, C, true, false);
    else
        scaled_row(
                out, row, p->weight, r, C, false, p->form == RMSNORM_ONE_PLUS);
    p->rstd[n] = r;
}

enum zd_status FAST(norm_forward)(
        struct stream *stream, const struct norm_forward *p)
{
    const elem *x = p->add ? p->sum : p->x;
    int64_t rows = norm_rows(p->N, p->heads);
    size_t count = (size_t)rows * (size_t)p->C;
    if (p->add)
        ZD_TRY(FAST(add)(stream, p->sum, p->x, p->add, count));
#pragma omp parallel for num_threads(threads_for(count))
    for (int64_t n = 0; n < rows; n++)
        (p->mean ? layernorm_row : rmsnorm_row)(
                p, n,
                p->out ? (elem *)p->out +
                                 norm_row(n, p->C, p->heads, p->out_stride)
                       : NULL,
                x + norm_row(n, p->C, p->heads, p->x_stride));
    return ZD_OK;
}

/* A row of backward; of heads, where it lies. */
struct row {
    const elem *x, *dout, *res;
    elem *dx;
    float m, r;
};

ALWAYS_INLINE struct row row_at(const struct norm_backward *p, int64_t n)
{
    int64_t at = norm_row(n, p->C, p->heads, p->x_stride);
    return (struct row){
            .x = (const elem *)p->x + at,
            .dout = (const elem *)p->dout +
                    norm_row(n, p->C, p->heads, p->out_stride),
            .res = p->dresidual ? (const elem *)p->dresidual + at : NULL,
            .dx = p->dx ? (elem *)p->dx + at : NULL,
            .m = p->mean ? p->mean[n] : 0.0f,
            .r = p->rstd[n]};
}

ALWAYS_INLINE void add_some(float *to, vf v, int count)
{
    if (count > 0)
        vf_store_some(to, vf_load_some(to, count) + v, count);
}

static void totals_add(float *totals, const struct two *sums, int C)
{
    for (int c = 0; totals && c < C; c += 2 * VL) {
        struct two sum = two_in_order(sums[c / VL]);
        add_some(totals + c, sum.a, C - c);
        add_some(totals + c + VL, sum.b, C - c - VL);
    }
}

/* Rows side by side, which hides the latency of their sums, and what is known
 * of them when this is compiled. */
struct beside {
    struct row row[SIDE_BY_SIDE];
    struct two sum_g[SIDE_BY_SIDE], sum_gx[SIDE_BY_SIDE];
    float mean_g[SIDE_BY_SIDE], mean_gx[SIDE_BY_SIDE];
    const elem *weight;
    int rows;
    bool center; /* layernorm: less the mean of g */
    bool one_plus;
};

/* Columns from c on: of each row what dx needs, and to `sums` (unless NULL),
 * of dweight and then dbias, what is theirs. Elements past a row's last have
 * g = 0. */
ALWAYS_INLINE void sums_step(
        struct beside *b, struct two *sums, int c, int count)
{
    struct two w = factors(b->weight + c, count, b->one_plus), dw = {{0}},
               db = {{0}};
    if (sums)
        dw = sums[c / VL], db = sums[c / VL + 1];
#pragma GCC unroll 8
    for (int i = 0; i < b->rows; i++) {
        const struct row *row = &b->row[i];
        struct two g = load_two_some(row->dout + c, count);
        struct two x = load_two_some(row->x + c, count);
        x.a -= row->m, x.b -= row->m;
        dw.a += g.a * (x.a * row->r);
        dw.b += g.b * (x.b * row->r);
        db.a += g.a, db.b += g.b;
        g.a *= w.a, g.b *= w.b;
        b->sum_g[i].a += g.a;
        *second_sum(&b->sum_g[i]) += g.b;
        b->sum_gx[i].a += g.a * x.a;
        *second_sum(&b->sum_gx[i]) += g.b * x.b;
    }
    if (sums)
        sums[c / VL] = dw;
    if (sums && b->center)
        sums[c / VL + 1] = db;
}

/* dx where g = dout weight, of xhat = (x - m) r. */
ALWAYS_INLINE vf gradient(const struct beside *b, int i, vf g, vf x)
{
    float m = b->center ? b->row[i].m : 0.0f, r = b->row[i].r;
    float mean_g = b->center ? b->mean_g[i] : 0.0f;
    if (KERNEL_TYPE == KERNEL_FP32) /* rounded before a residual is added */
        return __builtin_assoc_barrier(
                r * (g - mean_g - (x - m) * r * b->mean_gx[i]));
    float slope = -r * r * b->mean_gx[i];
    return g * r + (x * slope - (r * mean_g + m * slope));
}

ALWAYS_INLINE void gradients_step(
        const struct beside *b, int c, int count, bool adds)
{
    struct two w = factors(b->weight + c, count, b->one_plus);
#pragma GCC unroll 8
    for (int i = 0; i < b->rows; i++) {
        const struct row *row = &b->row[i];
        struct two g = load_two_some(row->dout + c, count);
        struct two x = load_two_some(row->x + c, count);
        x.a = gradient(b, i, g.a * w.a, x.a);
        x.b = gradient(b, i, g.b * w.b, x.b);
        if (adds) {
            struct two res = load_two_some(row->res + c, count);
            x.a += res.a, x.b += res.b;
        }
        store_two_some(row->dx + c, x, count);
    }
}

ALWAYS_INLINE void gradients_make(const struct beside *b, int C, bool adds)
{
    int c = 0;
    for (; c + 2 * VL <= C; c += 2 * VL)
        gradients_step(b, c, 2 * VL, adds);
    if (c < C)
        gradients_step(b, c, C - c, adds);
}

/* Rows from n on. */
ALWAYS_INLINE void rows_backward(
        const struct norm_backward *p, struct two *sums, int64_t n,
        struct beside b)
{
    int c = 0, C = p->C;
    b.weight = p->weight;
    for (int i = 0; i < b.rows; i++)
        b.row[i] = row_at(p, n + i);
    for (; c + 2 * VL <= C; c += 2 * VL)
        sums_step(&b, sums, c, 2 * VL);
    if (c < C)
        sums_step(&b, sums, c, C - c);
    for (int i = 0; i < b.rows; i++) {
        float gx = two_total(b.sum_gx[i]) * b.row[i].r;
        if (!p->dx)
            p->parts.mine[n + i] = gx;
        gx = norm_sum(&p->parts, n + i, gx);
        b.mean_g[i] = b.center ? two_total(b.sum_g[i]) / (float)C : 0.0f;
        b.mean_gx[i] = gx / (float)norm_width(&p->parts, C);
    }
    if (p->dx && p->dresidual)
        gradients_make(&b, C, true);
    else if (p->dx)
        gradients_make(&b, C, false);
}

/* Rows from n to end; no `sums` where the weights are frozen. Each form
 * compiled by itself: what -ffp-contract fuses, and so the bits, would depend
 * on the other. */
#define BACKWARD(name, ...)                                                    \
    static void name(                                                          \
            const struct norm_backward *p, struct two *sums, int64_t n,        \
            int64_t end)                                                       \
    {                                                                          \
        const struct beside two = {.rows = 2, __VA_ARGS__};                    \
        const struct beside one = {.rows = 1, __VA_ARGS__};                    \
        for (; sums && n + 2 <= end; n += 2)                                   \
            rows_backward(p, sums, n, two);                                    \
        for (; !sums && n + 2 <= end; n += 2)                                  \
            rows_backward(p, NULL, n, two);                                    \
        if (n < end)                                                           \
            rows_backward(p, sums, n, one);                                    \
    }
BACKWARD(layernorm_backward, .center = true)
BACKWARD(rmsnorm_backward, .center = false)
BACKWARD(one_plus_backward, .one_plus = true)
#undef BACKWARD

/* A thread takes ROWS at a time, and adds what their columns sum to the total
 * when those before have. */
enum zd_status FAST(norm_backward)(
        struct stream *stream, const struct norm_backward *p)
{
    int64_t rows = norm_rows(p->N, p->heads);
    int C = p->C, threads = threads_for((size_t)rows * (size_t)C);
    bool is_frozen = !p->dweight && !p->dbias;
    size_t pairs = (size_t)(C + 2 * VL - 1) / (2 * VL);
    size_t bytes = is_frozen ? 0 : 2 * pairs * sizeof(struct two);
    void (*backward)(
            const struct norm_backward *, struct two *, int64_t, int64_t) =
            p->mean                       ? layernorm_backward
            : p->form == RMSNORM_ONE_PLUS ? one_plus_backward
                                          : rmsnorm_backward;
    if (!p->accumulate && p->dweight)
        memset(p->dweight, 0, (size_t)C * sizeof *p->dweight);
    if (!p->accumulate && p->dbias)
        memset(p->dbias, 0, (size_t)C * sizeof *p->dbias);
#pragma omp parallel num_threads(threads)
    {
        /* A quarter of a megabyte at 32,768 channels. */
        struct two *sums = __builtin_alloca_with_align(bytes, 8 * sizeof(vf));
#pragma omp for ordered schedule(static, 1)
        for (int64_t n = 0; n < rows; n += ROWS) {
            memset(sums, 0, bytes);
            backward(
                    p, is_frozen ? NULL : sums, n,
                    rows - n < ROWS ? rows : n + ROWS);
#pragma omp ordered
            {
                totals_add(p->dweight, sums, C);
                totals_add(p->dbias, sums + 1, C);
            }
        }
    }
    return ZD_OK;
}
