/* One product's q | k | v, normed and turned into q | k, and back. */
#include "base/must.h"
#include "cases.h"

#include "run.h"

#include <stdlib.h>

struct shape {
    int N, H, KV, D;
    bool dense; /* there is no v; gradients take each other's place */
    int frozen; /* weights that have no gradient: 1 q's, 2 k's */
    enum rmsnorm_form form;
    int pairs; /* interleaved; 0: halves of the whole head */
};

/* The arrays; [0] is q's, [1] is k's. */
struct heads {
    struct shape s;
    int64_t out_stride, x_stride;
    size_t element;
    struct pair x, out, dx, dout; /* (N, heads, D) */
    struct pair weight[2], rstd[2], dweight[2];
    struct pair cosine, sine, positions;
};

static struct heads heads_of(enum dtype type, struct shape s)
{
    size_t n = (size_t)s.N, d = (size_t)s.D;
    int64_t out = (s.H + s.KV) * s.D, x = s.dense ? out : out + s.KV * s.D;
    size_t outs = n * (size_t)out, xs = n * (size_t)x;
    ZD_FREED int32_t *list = malloc(n * sizeof *list);
    for (int i = 0; i < s.N; i++)
        list[i] = (i * 7 + i / 5) % s.N;
    struct heads h = {
            .s = s,
            .out_stride = out,
            .x_stride = x,
            .element = dtype_bytes(type),
            .x = pair_of(type, xs, 2.0f, 1),
            .out = pair_of(type, outs, 1.0f, 2),
            .dx = pair_of(type, xs, 1.0f, 3),
            .dout = pair_of(type, outs, 1.0f, 4),
            .cosine = pair_of(DTYPE_FP32, n * d / 2, 1.0f, 5),
            .sine = pair_of(DTYPE_FP32, n * d / 2, 1.0f, 6),
            .positions = pair_of_ints(list, n),
    };
    for (int i = 0; i < 2; i++) {
        uint64_t seed = 7 + 3 * (uint64_t)i;
        size_t rows = n * (size_t)(i ? s.KV : s.H);
        h.weight[i] = pair_of(type, d, 1.0f, seed);
        h.rstd[i] = pair_of(DTYPE_FP32, rows, 1.0f, seed + 1);
        h.dweight[i] = pair_of(DTYPE_FP32, d, 1.0f, seed + 2);
    }
    return h;
}

static struct rope_angles angles(const struct heads *h, int r)
{
    return (struct rope_angles){
            .cosine = h->cosine.of[r],
            .sine = h->sine.of[r],
            .positions = h->positions.of[r],
            .pairs = h->s.pairs,
            .interleaved = h->s.pairs > 0};
}

/* Where the first of q's or k's heads lies. */
static void *first(const struct heads *h, const struct pair *rows, int r, int i)
{
    size_t heads = i ? (size_t)h->s.H : 0;
    return (char *)rows->of[r] + heads * (size_t)h->s.D * h->element;
}

static enum zd_status forward(
        const struct kernels *ops, const struct heads *h, int r)
{
    struct norm_forward args[2];
    const struct rope_angles a = angles(h, r);
    for (int i = 0; i < 2; i++)
        args[i] = (struct norm_forward){
                .out = first(h, &h->out, r, i),
                .rstd = h->rstd[i].of[r],
                .x = first(h, &h->x, r, i),
                .weight = h->weight[i].of[r],
                .eps = 1e-5f,
                .form = h->s.form,
                .N = h->s.N,
                .C = h->s.D,
                .heads = i ? h->s.KV : h->s.H,
                .out_stride = h->out_stride,
                .x_stride = h->x_stride};
    return kernels_head_norm_rope_forward(ops, &args[0], &args[1], &a);
}

static enum zd_status backward(
        const struct kernels *ops, const struct heads *h, int r,
        bool accumulate)
{
    struct norm_backward args[2];
    const struct rope_angles a = angles(h, r);
    for (int i = 0; i < 2; i++)
        args[i] = (struct norm_backward){
                .dx = first(h, h->s.dense ? &h->dout : &h->dx, r, i),
                .dweight = h->s.frozen & (1 << i) ? NULL : h->dweight[i].of[r],
                .dout = first(h, &h->dout, r, i),
                .x = first(h, &h->x, r, i),
                .weight = h->weight[i].of[r],
                .rstd = h->rstd[i].of[r],
                .form = h->s.form,
                .N = h->s.N,
                .C = h->s.D,
                .heads = i ? h->s.KV : h->s.H,
                .out_stride = h->out_stride,
                .x_stride = h->x_stride,
                .accumulate = accumulate};
    return kernels_head_norm_rope_backward(ops, &args[0], &args[1], &a);
}

/* dout is scratch: compared where it became dx. */
static void run(struct shape s)
{
    pairs_begin();
    struct heads h = heads_of(pair_type(), s);
    RUN_OF(forward(ops, &h, r));
    for (int i = 0; i < 2; i++) {
        struct pair theirs = h.rstd[i];
        h.rstd[i] = pair_of_first(&theirs);
        pair_compare(theirs);
    }
    RUN_OF(backward(ops, &h, r, s.N % 2));
    PAIRS_COMPARE(h.out, h.dx);
    if (s.dense)
        pair_compare(h.dout);
    else
        for (int i = 0; i < 2; i++) {
            pair_compare(h.dweight[i]);
        }
}

/* Heads in whole packs of threads of their own and of others; halves that are
 * no packs; heads of several warps, and longer than what registers hold; more
 * rows of q than a grid has places, of k less; gradients in place; frozen. */
void head_norm_rope_case(void)
{
    static const struct shape shapes[] = {
            {37, 4, 2, 64, false, 0},
            {90, 4, 1, 128, false, 0},
            {21, 3, 3, 16, true, 0},
            {33, 2, 1, 48, false, 1},
            {12, 2, 2, 96, true, 2},
            {9, 3, 1, 24, false, 0},
            {11, 2, 1, 10, true, 0},
            {8, 2, 2, 256, false, 3},
            {3, 2, 1, 2048, true, 0},
            {2, 2, 1, 8200, false, 0},
            {581, 16, 3, 16, false, 0},
            {37, 4, 2, 64, false, 0, RMSNORM_ONE_PLUS, 0},
            {21, 3, 3, 256, true, 0, RMSNORM_ONE_PLUS, 0},
            {12, 2, 2, 96, true, 0, RMSNORM_ROUND_LAST, 24},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        run(shapes[i]);
}
