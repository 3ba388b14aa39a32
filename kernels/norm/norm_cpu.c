#include "kernels/cpu/fast.h"
#include "kernels/cpu/pairs.h"
#include "kernels/norm/norm.h"

norm_forward_fn FAST(norm_forward);
norm_backward_fn FAST(norm_backward);

/* Rows that a thread takes at a time; backward sums their columns before they
 * join the total: a long sum of small numbers loses less when it is made of
 * short ones. And rows side by side: what one waits for others hide, and the
 * weights are read once for all. */
enum { FORWARD_SHARE = 32, ROWS = KERNEL_TYPE == KERNEL_FP32 ? 128 : 64 };
enum { FORWARD_ROWS = VL == 16 ? 8 : 2, BACKWARD_ROWS = 2 };

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

static float row_squares_about_0(const elem *x, int C)
{
    struct two squares = {{0}};
    for (int c = 0; c < C; c += 2 * VL) {
        struct two v = read_two(x + c, C - c);
        squares.a += v.a * v.a;
        *second_sum(&squares) += v.b * v.b;
    }
    return two_total(squares);
}

/* Rows of forward side by side, and what is known of them when this is
 * compiled. */
struct forward {
    const elem *x[FORWARD_ROWS], *weight, *bias;
    elem *out[FORWARD_ROWS];
    float m[FORWARD_ROWS], r[FORWARD_ROWS];
    float squares[FORWARD_ROWS]; /* sum (x - m)^2 */
    int rows, C;
    enum rmsnorm_form form;
    bool center; /* layernorm; else m is 0 */
};

#if HAS_BF16
ALWAYS_INLINE void moments_step(
        const struct forward *f, vf *sum, vf *squares, int c, int count)
{
    const vu ones = (vu){0} + 0x3f803f80u;
#pragma GCC unroll 8
    for (int i = 0; i < f->rows; i++) {
        vu x = load_pairs_some(f->x[i] + c, count);
        squares[i] = pairs_dot(squares[i], x, x);
        if (f->center)
            sum[i] = pairs_dot(sum[i], x, ones);
    }
}

/* From sum x and sum x^2, of one pass. Where these are much larger than what
 * they differ by, from a second one. */
ALWAYS_INLINE void moments(struct forward *f)
{
    vf sum[FORWARD_ROWS] = {{0}}, squares[FORWARD_ROWS] = {{0}};
    int c = 0;
    for (; c + 2 * VL <= f->C; c += 2 * VL)
        moments_step(f, sum, squares, c, 2 * VL);
    if (c < f->C)
        moments_step(f, sum, squares, c, f->C - c);
#pragma GCC unroll 8
    for (int i = 0; i < f->rows; i++) {
        float total = f->center ? vf_sum(sum[i]) : 0.0f;
        float m = total / (float)f->C, less = total * m;
        f->m[i] = m;
        f->squares[i] = vf_sum(squares[i]) - less;
        if (f->center && f->squares[i] * 16.0f < less)
            f->squares[i] = row_squares(f->x[i], f->C, m);
    }
}
#else
ALWAYS_INLINE void moments(struct forward *f)
{
    for (int i = 0; i < f->rows; i++) {
        const elem *x = f->x[i];
        f->m[i] = f->center ? row_sum(x, f->C) / (float)f->C : 0.0f;
        f->squares[i] = f->center ? row_squares(x, f->C, f->m[i])
                                  : row_squares_about_0(x, f->C);
    }
}
#endif

/* Weights as they multiply; 0 past the last. */
ALWAYS_INLINE struct two factors(const elem *weight, int count, bool one_plus)
{
    struct two w = read_two(weight, count);
    return one_plus ? (struct two){1.0f + w.a, 1.0f + w.b} : w;
}

/* xhat = (x - m) r, of rmsnorm x r. */
ALWAYS_INLINE vf normed(vf x, float m, float r, bool center)
{
    if (!center)
        return x * r;
    return HAS_BF16 ? x * r - m * r : (x - m) * r;
}

ALWAYS_INLINE void forward_step(const struct forward *f, int c, int count)
{
    bool one_plus = f->form == RMSNORM_ONE_PLUS;
    struct two w = factors(f->weight + c, count, one_plus), b = {{0}};
    if (f->center)
        b = read_two(f->bias + c, count);
#pragma GCC unroll 8
    for (int i = 0; i < f->rows; i++) {
        struct two v = read_two(f->x[i] + c, count);
        v.a = normed(v.a, f->m[i], f->r[i], f->center);
        v.b = normed(v.b, f->m[i], f->r[i], f->center);
        if (f->center) {
            v.a = v.a * w.a + b.a, v.b = v.b * w.b + b.b;
        } else {
            if (f->form == RMSNORM_ROUND_FIRST)
                v = round_two(v);
            v.a *= w.a, v.b *= w.b;
        }
        store_two_some(f->out[i] + c, v, count);
    }
}

static void add_row(elem *sum, const elem *x, const elem *add, int C)
{
    for (int c = 0; c < C; c += 2 * VL) {
        struct two v = read_two(x + c, C - c);
        struct two more = read_two(add + c, C - c);
        v.a += more.a, v.b += more.b;
        store_two_some(sum + c, v, C - c);
    }
}

/* Rows from n on. */
ALWAYS_INLINE void rows_forward(
        const struct norm_forward *p, int64_t n, struct forward f)
{
    int c = 0, C = p->C;
    f.weight = p->weight, f.bias = p->bias, f.C = C;
    for (int i = 0; i < f.rows; i++) {
        int64_t at = norm_row(n + i, C, p->heads, p->x_stride);
        f.x[i] = (const elem *)(p->add ? p->sum : p->x) + at;
        f.out[i] = (elem *)p->out + norm_row(n + i, C, p->heads, p->out_stride);
        if (p->add)
            add_row((elem *)p->sum + at, (const elem *)p->x + at,
                    (const elem *)p->add + at, C);
    }
    moments(&f);
    for (int i = 0; i < f.rows; i++) {
        float sum = f.squares[i];
        if (!p->out) {
            p->parts.mine[n + i] = sum;
            continue;
        }
        sum = norm_sum(&p->parts, n + i, sum);
        f.r[i] = 1.0f / sqrtf(sum / (float)norm_width(&p->parts, C) + p->eps);
        p->rstd[n + i] = f.r[i];
        if (f.center)
            p->mean[n + i] = f.m[i];
    }
    if (!p->out)
        return;
    for (; c + 2 * VL <= C; c += 2 * VL)
        forward_step(&f, c, 2 * VL);
    if (c < C)
        forward_step(&f, c, C - c);
}

/* Rows from n to end. */
#define FORWARD(name, ...)                                                     \
    static void name(const struct norm_forward *p, int64_t n, int64_t end)     \
    {                                                                          \
        const struct forward some = {.rows = FORWARD_ROWS, __VA_ARGS__};       \
        const struct forward one = {.rows = 1, __VA_ARGS__};                   \
        for (; n + FORWARD_ROWS <= end; n += FORWARD_ROWS)                     \
            rows_forward(p, n, some);                                          \
        for (; n < end; n++)                                                   \
            rows_forward(p, n, one);                                           \
    }
FORWARD(layernorm_forward, .center = true)
FORWARD(round_first_forward, .form = RMSNORM_ROUND_FIRST)
FORWARD(round_last_forward, .form = RMSNORM_ROUND_LAST)
FORWARD(one_plus_forward, .form = RMSNORM_ONE_PLUS)
#undef FORWARD

enum zd_status FAST(norm_forward)(
        struct stream *stream, const struct norm_forward *p)
{
    int64_t rows = norm_rows(p->N, p->heads);
    size_t count = (size_t)rows * (size_t)p->C;
    void (*forward)(const struct norm_forward *, int64_t, int64_t) =
            p->mean                          ? layernorm_forward
            : p->form == RMSNORM_ROUND_FIRST ? round_first_forward
            : p->form == RMSNORM_ROUND_LAST  ? round_last_forward
                                             : one_plus_forward;
#pragma omp parallel for num_threads(threads_for(count))
    for (int64_t n = 0; n < rows; n += FORWARD_SHARE)
        forward(p, n, rows - n < FORWARD_SHARE ? rows : n + FORWARD_SHARE);
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

static void totals_add(float *totals, const struct two *sums, int C)
{
    for (int c = 0; totals && c < C; c += 2 * VL)
        two_add_some(totals + c, sums[c / VL], C - c);
}

/* Rows side by side, which hides the latency of their sums, and what is known
 * of them when this is compiled. */
struct beside {
    struct row row[BACKWARD_ROWS];
    struct two sum_g[BACKWARD_ROWS], sum_gx[BACKWARD_ROWS];
    float mean_g[BACKWARD_ROWS], mean_gx[BACKWARD_ROWS];
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
#if HAS_BF16
    vu weights = load_pairs_some(b->weight + c, count);
#endif
#pragma GCC unroll 8
    for (int i = 0; i < b->rows; i++) {
        const struct row *row = &b->row[i];
#if HAS_BF16
        vu pairs = load_pairs_some(row->dout + c, count);
        struct two g = two_of_pairs(pairs);
        struct two x = read_two(row->x + c, count);
        db.a += g.a, db.b += g.b;
        x.a = g.a * normed(x.a, row->m, row->r, b->center);
        x.b = g.b * normed(x.b, row->m, row->r, b->center);
        dw.a += x.a, dw.b += x.b;
        b->sum_gx[i].a += x.a * w.a;
        b->sum_gx[i].b += x.b * w.b;
        if (b->center)
            b->sum_g[i].a = pairs_dot(b->sum_g[i].a, pairs, weights);
#else
        struct two g = read_two(row->dout + c, count);
        struct two x = read_two(row->x + c, count);
        x.a -= row->m, x.b -= row->m;
        db.a += g.a, db.b += g.b;
        dw.a += g.a * (x.a * row->r);
        dw.b += g.b * (x.b * row->r);
        g.a *= w.a, g.b *= w.b;
        b->sum_g[i].a += g.a;
        *second_sum(&b->sum_g[i]) += g.b;
        b->sum_gx[i].a += g.a * x.a;
        *second_sum(&b->sum_gx[i]) += g.b * x.b;
#endif
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
        struct two g = read_two(row->dout + c, count);
        struct two x = read_two(row->x + c, count);
        x.a = gradient(b, i, g.a * w.a, x.a);
        x.b = gradient(b, i, g.b * w.b, x.b);
        if (adds) {
            struct two res = read_two(row->res + c, count);
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
        float gx = two_total(b.sum_gx[i]) * (HAS_BF16 ? 1.0f : b.row[i].r);
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
        const struct beside some = {.rows = BACKWARD_ROWS, __VA_ARGS__};       \
        const struct beside one = {.rows = 1, __VA_ARGS__};                    \
        for (; sums && n + BACKWARD_ROWS <= end; n += BACKWARD_ROWS)           \
            rows_backward(p, sums, n, some);                                   \
        for (; !sums && n + BACKWARD_ROWS <= end; n += BACKWARD_ROWS)          \
            rows_backward(p, NULL, n, some);                                   \
        for (; n < end; n++)                                                   \
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
