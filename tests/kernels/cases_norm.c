#include "cases.h"

#include "kernels/fused.h"
#include "run.h"

static void layernorm_shape(int N, int C, bool residual, bool accumulate)
{
    enum dtype type = pair_type();
    size_t count = (size_t)N * (size_t)C, c = (size_t)C;
    pairs_begin();
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
    RUN(layernorm_forward(
            NULL, out.of[r], mean.of[r], rstd.of[r], x.of[r], w.of[r],
            bias.of[r], 1e-5f, N, C));
    struct pair m = pair_of_first(&mean), s = pair_of_first(&rstd);
    RUN(layernorm_backward(
            NULL, dx.of[r], dw.of[r], db.of[r], dout.of[r],
            residual ? res.of[r] : NULL, x.of[r], w.of[r], m.of[r], s.of[r], N,
            C, accumulate));
    RUN(layernorm_backward(
            NULL, dx.of[r], NULL, NULL, dout.of[r], dx.of[r], x.of[r], w.of[r],
            m.of[r], s.of[r], N, C, false));
    PAIRS_COMPARE(out, dx, mean, rstd, dw, db);
}

void layernorm_case(void)
{
    for (int i = 0; i < 8; i++)
        layernorm_shape(i & 1 ? 37 : 257, i & 2 ? 48 : 509, i & 1, i & 4);
}

static void rmsnorm_shape(
        int N, int C, bool residual, bool accumulate, enum rmsnorm_form form)
{
    enum dtype type = pair_type();
    size_t count = (size_t)N * (size_t)C, c = (size_t)C;
    pairs_begin();
    struct pair x = pair_of(type, count, 2.0f, 1);
    struct pair w = pair_of(type, c, 1.0f, 2);
    struct pair res = pair_of(type, count, 1.0f, 5);
    struct pair out = pair_of(type, count, 1.0f, 6);
    struct pair dx = pair_of(type, count, 1.0f, 7);
    struct pair rstd = pair_of(DTYPE_FP32, (size_t)N, 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
    RUN(rmsnorm_forward(
            NULL, out.of[r], rstd.of[r], x.of[r], w.of[r], 1e-5f, form, N, C));
    struct pair s = pair_of_first(&rstd);
    RUN(rmsnorm_backward(
            NULL, dx.of[r], dw.of[r], dx.of[r], residual ? res.of[r] : NULL,
            x.of[r], w.of[r], s.of[r], form, N, C, accumulate));
    PAIRS_COMPARE(out, dx, rstd, dw);
}

void rmsnorm_case(void)
{
    for (int i = 0; i < 24; i++)
        rmsnorm_shape(
                i & 1 ? 37 : 257, i & 2 ? 48 : 509, i & 1, i & 4,
                (enum rmsnorm_form)(i / 8));
}

/* Heads of q and k: densely, and in rows that hold more than them. */
static void head_norm_form(
        int N, int H, int D, int out_gap, int x_gap, enum rmsnorm_form form)
{
    enum dtype type = pair_type();
    int64_t out_stride = H * D + out_gap, x_stride = H * D + x_gap;
    size_t outs = (size_t)(N * out_stride), xs = (size_t)(N * x_stride);
    pairs_begin();
    struct pair x = pair_of(type, xs, 2.0f, 1);
    struct pair w = pair_of(type, (size_t)D, 1.0f, 2);
    struct pair out = pair_of(type, outs, 1.0f, 6);
    struct pair dout = pair_of(type, outs, 1.0f, 4);
    struct pair dx = pair_of(type, xs, 1.0f, 7);
    struct pair rstd = pair_of(DTYPE_FP32, (size_t)(N * H), 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, (size_t)D, 1.0f, 10);
    RUN(head_norm_forward(
            NULL, out.of[r], rstd.of[r], x.of[r], w.of[r], 1e-5f, form, N, H, D,
            out_stride, x_stride));
    struct pair s = pair_of_first(&rstd);
    for (int i = 0; i < 2; i++) /* then frozen, or added to */
        RUN(head_norm_backward(
                NULL, dx.of[r], i && N % 2 ? NULL : dw.of[r], dout.of[r],
                x.of[r], w.of[r], s.of[r], form, N, H, D, out_stride, x_stride,
                i > 0));
    PAIRS_COMPARE(out, dx, rstd, dw);
}

static void head_norm_shape(int N, int H, int D, int out_gap, int x_gap)
{
    for (int form = 0; form <= RMSNORM_ONE_PLUS; form++)
        head_norm_form(N, H, D, out_gap, x_gap, (enum rmsnorm_form)form);
}

void head_norm_case(void)
{
    head_norm_shape(37, 4, 64, 0, 0);
    head_norm_shape(90, 4, 64, 128, 256);
    head_norm_shape(21, 3, 128, 0, 1024);
    head_norm_shape(9, 2, 48, 3, 5);
    head_norm_shape(33, 1, 10, 20, 0);
    head_norm_shape(2, 2, 8200, 16, 8);
}

/* Teams of every size (kernels/norm/norm_rows.cuh), all numbers of packs, rows
 * too long for registers, q and k norms, and no row at all. */
void norm_shapes_case(void)
{
    static const int shapes[][2] = {{700, 64}, {301, 128}, {33, 192}, {19, 512},
                                    {18, 768}, {9, 1600},  {5, 2048}, {4, 3072},
                                    {3, 4096}, {2, 8192},  {1, 8200}, {3, 2051},
                                    {5, 1023}, {1, 8},     {0, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int N = shapes[i][0], C = shapes[i][1];
        layernorm_shape(N, C, i & 1, i & 2);
        rmsnorm_shape(N, C, i & 1, i & 2, (enum rmsnorm_form)(i % 3));
    }
}

/* sum and the norm of it; `sum` in the place of one of its terms too. */
static void add_norm_shape(int N, int C)
{
    enum dtype type = pair_type();
    size_t count = (size_t)N * (size_t)C, c = (size_t)C, rows = (size_t)N;
    pairs_begin();
    struct pair x = pair_of(type, count, 2.0f, 1);
    struct pair y = pair_of(type, count, 1.0f, 2);
    struct pair w = pair_of(type, c, 1.0f, 3), bias = pair_of(type, c, 1.0f, 4);
    struct pair out = pair_of(type, count, 1.0f, 5);
    struct pair sum = pair_of(type, count, 1.0f, 6);
    struct pair root = pair_of(type, count, 1.0f, 7);
    struct pair mean = pair_of(DTYPE_FP32, rows, 1.0f, 8);
    struct pair rstd = pair_of(DTYPE_FP32, rows, 1.0f, 9);
    struct pair second = pair_of(DTYPE_FP32, rows, 1.0f, 10);
    RUN_FUSED(fused_add_layernorm(
            ops, NULL, sum.of[r], out.of[r], mean.of[r], rstd.of[r], x.of[r],
            y.of[r], w.of[r], bias.of[r], 1e-5f, N, C));
    RUN_FUSED(fused_add_rmsnorm(
            ops, NULL, y.of[r], root.of[r], second.of[r], x.of[r], y.of[r],
            w.of[r], 1e-5f, (enum rmsnorm_form)(C % 3), N, C));
    PAIRS_COMPARE(out, sum, root, mean, rstd, second, y);
}

void add_norm_case(void)
{
    static const int shapes[][2] = {{37, 768}, {5, 1600}, {3, 4096},
                                    {2, 8200}, {7, 509},  {1, 2051}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        add_norm_shape(shapes[i][0], shapes[i][1]);
}
