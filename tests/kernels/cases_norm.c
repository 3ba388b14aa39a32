#include "cases.h"

#include "kernels/fused.h"
#include "run.h"

static void layernorm_shape(
        double *most, struct runner a, struct runner b, int N, int C,
        bool residual, bool accumulate)
{
    enum dtype type = a.ops->dtype;
    size_t count = (size_t)N * (size_t)C, c = (size_t)C;
    pair_runners(a, b);
    struct pair x = pair_of(type, count, 2.0f, 1);
    struct pair w = pair_of(type, c, 1.0f, 2), bias = pair_of(type, c, 1.0f, 3);
    struct pair dout = pair_of(type, count, 1.0f, 4);
    struct pair res = pair_of(type, count, 1.0f, 5);
    struct pair out = pair_of(type, count, 1.0f, 6);
    struct pair dx = pair_of(type, count, 1.0f, 7);
    struct pair mean = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 8);
    struct pair rstd = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
    struct pair db = pair_of(DTYPE_FP32, c, 1.0f, 11);
    RUN(*most, layernorm_forward(
                       NULL, out.of[r], mean.of[r], rstd.of[r], x.of[r],
                       w.of[r], bias.of[r], 1e-5f, N, C));
    struct pair m = pair_of_first(&mean), s = pair_of_first(&rstd);
    RUN(*most, layernorm_backward(
                       NULL, dx.of[r], dw.of[r], db.of[r], dout.of[r],
                       residual ? res.of[r] : NULL, x.of[r], w.of[r], m.of[r],
                       s.of[r], N, C, accumulate));
    RUN(*most, layernorm_backward(
                       NULL, dx.of[r], NULL, NULL, dout.of[r], dx.of[r],
                       x.of[r], w.of[r], m.of[r], s.of[r], N, C, false));
    PAIRS_COMPARE(most, out, dx, mean, rstd, dw, db);
    pair_free(x), pair_free(w), pair_free(bias), pair_free(dout);
    pair_free(res), pair_free(m), pair_free(s);
}

double layernorm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    for (int i = 0; i < 8; i++)
        layernorm_shape(
                &most, a, b, i & 1 ? 37 : 257, i & 2 ? 48 : 509, i & 1, i & 4);
    return most;
}

static void rmsnorm_shape(
        double *most, struct runner a, struct runner b, int N, int C,
        bool residual, bool accumulate)
{
    enum dtype type = a.ops->dtype;
    size_t count = (size_t)N * (size_t)C, c = (size_t)C;
    pair_runners(a, b);
    struct pair x = pair_of(type, count, 2.0f, 1);
    struct pair w = pair_of(type, c, 1.0f, 2);
    struct pair res = pair_of(type, count, 1.0f, 5);
    struct pair out = pair_of(type, count, 1.0f, 6);
    struct pair dx = pair_of(type, count, 1.0f, 7);
    struct pair rstd = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
    RUN(*most,
        rmsnorm_forward(
                NULL, out.of[r], rstd.of[r], x.of[r], w.of[r], 1e-5f, N, C));
    struct pair s = pair_of_first(&rstd);
    RUN(*most,
        rmsnorm_backward(
                NULL, dx.of[r], dw.of[r], dx.of[r], residual ? res.of[r] : NULL,
                x.of[r], w.of[r], s.of[r], N, C, accumulate));
    PAIRS_COMPARE(most, out, dx, rstd, dw);
    pair_free(x), pair_free(w), pair_free(res), pair_free(s);
}

double rmsnorm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    for (int i = 0; i < 8; i++)
        rmsnorm_shape(
                &most, a, b, i & 1 ? 37 : 257, i & 2 ? 48 : 509, i & 1, i & 4);
    return most;
}

/* Heads of q and k: densely, and in rows that hold more than them. */
static void head_norm_shape(
        double *most, struct runner a, struct runner b, int N, int H, int D,
        int out_gap, int x_gap)
{
    enum dtype type = a.ops->dtype;
    int64_t out_stride = H * D + out_gap, x_stride = H * D + x_gap;
    size_t outs = (size_t)(N * out_stride), xs = (size_t)(N * x_stride);
    pair_runners(a, b);
    struct pair x = pair_of(type, xs, 2.0f, 1);
    struct pair w = pair_of(type, (size_t)D, 1.0f, 2);
    struct pair out = pair_of(type, outs, 1.0f, 6);
    struct pair dout = pair_of(type, outs, 1.0f, 4);
    struct pair dx = pair_of(type, xs, 1.0f, 7);
    struct pair rstd = pair_of(DTYPE_FP32, (size_t)(N * H), 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, (size_t)D, 1.0f, 10);
    RUN(*most, head_norm_forward(
                       NULL, out.of[r], rstd.of[r], x.of[r], w.of[r], 1e-5f, N,
                       H, D, out_stride, x_stride));
    struct pair s = pair_of_first(&rstd);
    for (int i = 0; i < 2; i++) /* then frozen, or added to */
        RUN(*most, head_norm_backward(
                           NULL, dx.of[r], i && N % 2 ? NULL : dw.of[r],
                           dout.of[r], x.of[r], w.of[r], s.of[r], N, H, D,
                           out_stride, x_stride, i > 0));
    PAIRS_COMPARE(most, out, dx, rstd, dw);
    pair_free(x), pair_free(w), pair_free(dout), pair_free(s);
}

double head_norm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    head_norm_shape(&most, a, b, 37, 4, 64, 0, 0);
    head_norm_shape(&most, a, b, 90, 4, 64, 128, 256);
    head_norm_shape(&most, a, b, 21, 3, 128, 0, 1024);
    head_norm_shape(&most, a, b, 9, 2, 48, 3, 5);
    head_norm_shape(&most, a, b, 33, 1, 10, 20, 0);
    head_norm_shape(&most, a, b, 2, 2, 8200, 16, 8);
    return most;
}

/* Teams of every size (kernels/norm/norm_rows.cuh), all numbers of packs, rows
 * too long for registers, q and k norms, and no row at all. */
double norm_shapes_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][2] = {{700, 64}, {301, 128}, {33, 192}, {19, 512},
                                    {18, 768}, {9, 1600},  {5, 2048}, {4, 3072},
                                    {3, 4096}, {2, 8192},  {1, 8200}, {3, 2051},
                                    {5, 1023}, {1, 8},     {0, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int N = shapes[i][0], C = shapes[i][1];
        layernorm_shape(&most, a, b, N, C, i & 1, i & 2);
        rmsnorm_shape(&most, a, b, N, C, i & 1, i & 2);
    }
    return most;
}

/* sum and the norm of it; `sum` in the place of one of its terms too. */
static void add_norm_shape(
        double *most, struct runner a, struct runner b, int N, int C)
{
    enum dtype type = a.ops->dtype;
    size_t count = (size_t)N * (size_t)C, c = (size_t)C, rows = (size_t)N;
    pair_runners(a, b);
    struct pair x = pair_of(type, count, 2.0f, 1);
    struct pair y = pair_of(type, count, 1.0f, 2);
    struct pair w = pair_of(type, c, 1.0f, 3), bias = pair_of(type, c, 1.0f, 4);
    struct pair out = pair_of(type, count, 1.0f, 5);
    struct pair sum = pair_of(type, count, 1.0f, 6);
    struct pair root = pair_of(type, count, 1.0f, 7);
    struct pair mean = pair_of(DTYPE_FP32, rows, 1.0f, 8);
    struct pair rstd = pair_of(DTYPE_FP32, rows, 1.0f, 9);
    struct pair second = pair_of(DTYPE_FP32, rows, 1.0f, 10);
    RUN_FUSED(
            *most,
            fused_add_layernorm(
                    ops, NULL, sum.of[r], out.of[r], mean.of[r], rstd.of[r],
                    x.of[r], y.of[r], w.of[r], bias.of[r], 1e-5f, N, C));
    RUN_FUSED(
            *most, fused_add_rmsnorm(
                           ops, NULL, y.of[r], root.of[r], second.of[r],
                           x.of[r], y.of[r], w.of[r], 1e-5f, N, C));
    PAIRS_COMPARE(most, out, sum, root, mean, rstd, second, y);
    pair_free(x), pair_free(w), pair_free(bias);
}

double add_norm_case(struct runner a, struct runner b)
{
    double most = 0.0;
    static const int shapes[][2] = {{37, 768}, {5, 1600}, {3, 4096},
                                    {2, 8200}, {7, 509},  {1, 2051}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        add_norm_shape(&most, a, b, shapes[i][0], shapes[i][1]);
    return most;
}
