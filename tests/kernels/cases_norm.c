#include "cases.h"

#include "run.h"

enum { RMSNORM_FORMS = RMSNORM_ONE_PLUS + 1, LAYERNORM = RMSNORM_FORMS };

/* Rows of a norm; of heads where there are any, with gaps after them. */
struct shape {
    int N, C, heads, out_gap, x_gap;
    int form; /* of rmsnorm, or LAYERNORM */
    bool residual, accumulate;
    bool adds;  /* the row is a sum */
    int places; /* have such a row each; 0: it is whole */
};

static void norm_shape(struct shape s)
{
    enum dtype type = pair_type();
    int64_t width = s.heads * s.C;
    int64_t out_stride = width + s.out_gap, x_stride = width + s.x_gap;
    size_t N = (size_t)s.N, c = (size_t)s.C;
    size_t outs = N * (s.heads ? (size_t)out_stride : c);
    size_t xs = N * (s.heads ? (size_t)x_stride : c);
    size_t rows = N * (size_t)(s.heads ? s.heads : 1);
    bool centered = s.form == LAYERNORM;
    enum rmsnorm_form form = centered ? RMSNORM_ROUND_FIRST : s.form;
    pairs_begin();
    struct pair x = pair_of(type, xs, 2.0f, 1);
    struct pair w = pair_of(type, c, 1.0f, 2), bias = pair_of(type, c, 1.0f, 3);
    struct pair dout = pair_of(type, outs, 1.0f, 4);
    struct pair res = pair_of(type, xs, 1.0f, 5);
    struct pair out = pair_of(type, outs, 1.0f, 6);
    struct pair dx = pair_of(type, xs, 1.0f, 7);
    struct pair mean = pair_of(DTYPE_FP32, rows, 1.0f, 8);
    struct pair rstd = pair_of(DTYPE_FP32, rows, 1.0f, 9);
    struct pair dw = pair_of(DTYPE_FP32, c, 1.0f, 10);
    struct pair db = pair_of(DTYPE_FP32, c, 1.0f, 11);
    struct pair sums = pair_of(DTYPE_FP32, rows, 1.0f, 12);
    struct pair dots = pair_of(DTYPE_FP32, rows, 1.0f, 13);
    for (int i = !s.places; i < 2; i++) /* sums of a part, then all of it */
        RUN(norm_forward(
                NULL, &(struct norm_forward){
                              .out = i ? out.of[r] : NULL,
                              .mean = centered ? mean.of[r] : NULL,
                              .rstd = rstd.of[r],
                              .x = x.of[r],
                              .add = s.adds ? res.of[r] : NULL,
                              .sum = res.of[r],
                              .weight = w.of[r],
                              .bias = centered ? bias.of[r] : NULL,
                              .eps = 1e-5f,
                              .form = form,
                              .N = s.N,
                              .C = s.C,
                              .heads = s.heads,
                              .out_stride = out_stride,
                              .x_stride = x_stride,
                              .parts = {sums.of[r], sums.of[r], 0, s.places}}));
    struct pair m = pair_of_first(&mean), d = pair_of_first(&rstd);
    if (s.places)
        RUN(norm_backward(
                NULL, &(struct norm_backward){
                              .dout = dx.of[r],
                              .x = x.of[r],
                              .weight = w.of[r],
                              .rstd = d.of[r],
                              .form = form,
                              .N = s.N,
                              .C = s.C,
                              .parts = {.mine = dots.of[r]}}));
    for (int i = 0; i < 2; i++) /* then frozen, or added to; in place */
        RUN(norm_backward(
                NULL, &(struct norm_backward){
                              .dx = dx.of[r],
                              .dweight = i && s.N % 2 ? NULL : dw.of[r],
                              .dbias = i || !centered ? NULL : db.of[r],
                              .dout = i || s.heads ? dout.of[r] : dx.of[r],
                              .dresidual = i && !s.heads ? dx.of[r]
                                           : s.residual  ? res.of[r]
                                                         : NULL,
                              .x = x.of[r],
                              .weight = w.of[r],
                              .mean = centered ? m.of[r] : NULL,
                              .rstd = d.of[r],
                              .form = form,
                              .N = s.N,
                              .C = s.C,
                              .heads = s.heads,
                              .out_stride = out_stride,
                              .x_stride = x_stride,
                              .parts = {NULL, dots.of[r], 0, s.places},
                              .accumulate = i ? s.heads : s.accumulate}));
    PAIRS_COMPARE(out, res, dx, mean, rstd, dw, db, sums, dots);
}

static void norm_form(int N, int C, int form, bool residual, bool accumulate)
{
    norm_shape((struct shape){
            .N = N,
            .C = C,
            .form = form,
            .residual = residual,
            .accumulate = accumulate});
}

void norm_case(void)
{
    for (int i = 0; i < 32; i++)
        norm_form(i & 1 ? 37 : 257, i & 2 ? 48 : 509, i / 8, i & 1, i & 4);
}

/* Heads of q and k: densely, and in rows that hold more than them. */
void head_norm_case(void)
{
    static const struct shape shapes[] = {
            {37, 64, 4, 0, 0}, {90, 64, 4, 128, 256}, {21, 128, 3, 0, 1024},
            {9, 48, 2, 3, 5},  {33, 10, 1, 20, 0},    {2, 8200, 2, 16, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < RMSNORM_FORMS; form++) {
            struct shape shape = shapes[i];
            shape.form = form;
            norm_shape(shape);
        }
}

/* Teams of every size (kernels/norm/norm_rows.cuh), all numbers of packs, rows
 * too long for registers, q and k norms, and no row at all. */
void norm_shapes_case(void)
{
    static const int shapes[][2] = {
            {700, 64}, {301, 128}, {33, 192},   {19, 512}, {18, 768},
            {9, 1600}, {5, 2048},  {4, 3072},   {3, 4096}, {2, 8192},
            {1, 8200}, {3, 2051},  {280, 2056}, /* several rows to a block */
            {5, 1023}, {1, 8},     {0, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int N = shapes[i][0], C = shapes[i][1];
        norm_form(N, C, (int)i % RMSNORM_FORMS, i & 1, i & 2);
        norm_form(N, C, LAYERNORM, i & 1, i & 2);
    }
    for (int i = 0; i < 12; i++) /* rows that three places have */
        norm_shape((struct shape){
                .N = i & 1 ? 37 : 5,
                .C = i & 2 ? 512 : 8 + 4099 * (i & 1),
                .form = i / 4,
                .places = 3});
}

/* The norm of a sum, which takes the place of one of its terms. */
void add_norm_case(void)
{
    static const int shapes[][2] = {{37, 768}, {5, 1600}, {3, 4096},
                                    {2, 8200}, {7, 509},  {1, 2051}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int form = 0; form <= LAYERNORM; form++)
            norm_shape((struct shape){
                    .N = shapes[i][0],
                    .C = shapes[i][1],
                    .form = form,
                    .adds = true});
}
