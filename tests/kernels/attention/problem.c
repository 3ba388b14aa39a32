/* problem.c - see problem.h. */
#include "tests/kernels/attention/problem.h"

#include "tests/kernels/arrays.h"

#include "base/device/device_memory.h"
#include "base/must.h"
#include "kernels/attention/attention_cuda.h"
#include "tests/support/must.h"

#include <stdio.h>

struct ops own_attention(enum dtype dtype)
{
    return (struct ops){
            attention_forward_cuda[dtype], attention_backward_cuda[dtype],
            attention_decode_cuda[dtype]};
}

/* As in cases.c: the size of one rounding. */
static const double tolerance[] = {1e-5, 9e-3, 1.3e-3};

/* With four query heads per key, cuDNN 9.19 on an H100 differs by 1.1
 * roundings: it also rounds before the sum over them. */
static double limit_of(struct problem p)
{
    return tolerance[p.dtype] * (p.by_cudnn && p.H > p.KV ? 1.5 : 1.0);
}

/* Fills first_tokens as the model does (model/batch.c). */
static void tell_documents(struct arrays *a, const int32_t *starts)
{
    struct attention_shape *s = &a->shape;
    int rows = s->B * s->T, bucket, count = 0;
    for (int i = 0; i < rows; i++)
        s->documents += starts[i] == i % s->T;
    bucket = attention_bucket(s);
    ZD_FREED int32_t *firsts = malloc(((size_t)bucket + 1) * sizeof *firsts);
    for (int i = 0; bucket && i < rows; i++)
        if (starts[i] == i % s->T)
            firsts[count++] = i;
    while (count <= bucket)
        firsts[count++] = rows;
    a->firsts = pair_of_ints(firsts, (size_t)bucket + 1);
    s->first_tokens = a->firsts.of[0];
}

struct arrays arrays_of(struct problem p)
{
    size_t element = dtype_bytes(p.dtype), rows = (size_t)(p.B * p.T);
    size_t q = (size_t)(p.H * p.D), kv = (size_t)(p.KV * p.D);
    size_t count = rows * (q + 2 * kv);
    struct arrays a = {
            .shape = {
                    .B = p.B,
                    .T = p.T,
                    .H = p.H,
                    .KV = p.KV,
                    .D = p.D,
                    .q_stride = (int64_t)(p.fused ? q + 2 * kv : q),
                    .k_stride = (int64_t)(p.fused ? q + 2 * kv : kv),
                    .v_stride = (int64_t)(p.fused ? q + 2 * kv : kv),
                    .scale = 1.0f / sqrtf((float)p.D),
                    .window = p.window,
                    .softcap = p.softcap,
            }};
    a.k_at = element * (p.fused ? q : rows * q);
    a.v_at = element * (p.fused ? q + kv : rows * (q + kv));
    int32_t *starts = calloc(rows, sizeof *starts);
    for (size_t i = 0; p.document && i < rows; i++) {
        int t = (int)i % p.T, step = p.document + (int)i / p.T;
        starts[i] = t / step * step;
    }
    struct runner on_device = {.device = device_current()}, plain = {0};
    MUST(kernels_plain(p.dtype, &plain.ops));
    pair_runners(on_device, plain);
    tell_documents(&a, starts);
    a.starts = pair_of_ints(starts, rows);
    free(starts);
    a.in = pair_of(p.dtype, count, 2.0f, 1);
    a.grads = pair_of(p.dtype, count, 1.0f, 2);
    a.dout = pair_of(p.dtype, rows * q, 1.0f, 3);
    a.out = pair_of(p.dtype, rows * q, 1.0f, 4);
    a.lse = pair_of(DTYPE_FP32, rows * (size_t)p.H, 1.0f, 5);
    pair_enter(0);
    a.scratch = pair_of_zeros(attention_cuda_scratch_bytes(&a.shape, p.dtype));
    pair_enter(0);
    return a;
}

static struct attention arguments(struct arrays *a, int which)
{
    char *in = a->in.of[which];
    return (struct attention){
            &a->shape,           in,
            in + a->k_at,        in + a->v_at,
            a->starts.of[which], which ? NULL : a->scratch.of[0],
            a->out.of[which],    a->lse.of[which]};
}

static struct attention gradients(struct arrays *a, int which)
{
    struct attention of = arguments(a, which);
    char *grads = a->grads.of[which];
    of.dout = a->dout.of[which], of.dq = grads;
    of.dk = grads + a->k_at, of.dv = grads + a->v_at;
    return of;
}

/* Backward reads out and lse of the definition, so that an error of forward
 * does not count twice. */
static void run_definition(struct arrays *a)
{
    const struct kernels *plain = pair_enter(1);
    struct attention forward = arguments(a, 1), backward = gradients(a, 1);
    plain->attention_forward(NULL, &forward);
    plain->attention_backward(NULL, &backward);
    pair_enter(0);
}

void run_forward(struct arrays *a, const struct ops *ops)
{
    struct attention forward = arguments(a, 0);
    MUST(ops->forward(NULL, &forward));
}

void run_backward(struct arrays *a, const struct ops *ops)
{
    struct attention backward = gradients(a, 0);
    MUST(ops->backward(NULL, &backward));
}

static void expect_near(const char *what, struct problem p, struct pair x)
{
    void *got = pair_fetch(&x, 0);
    double error = worst(got, x.of[1], x.dtype[1], x.count);
    free(got);
    cr_expect(
            error <= limit_of(p),
            "%s of %s B=%d T=%d H=%d KV=%d D=%d documents of %d window %d cap "
            "%g: %g",
            what, dtype_name(p.dtype), p.B, p.T, p.H, p.KV, p.D, p.document,
            p.window, (double)p.softcap, error);
}

static void give_definition(const struct pair *x)
{
    MUST(device_write(x->of[0], x->of[1], x->count * dtype_bytes(x->dtype[0])));
}

void check_by(const struct ops *ops, struct problem p)
{
    struct arrays a = arrays_of(p);
    run_definition(&a);
    run_forward(&a, ops);
    expect_near("out", p, a.out);
    expect_near("lse", p, a.lse);
    give_definition(&a.out);
    give_definition(&a.lse);
    run_backward(&a, ops);
    expect_near("gradients", p, a.grads);
    MUST(device_check());
}
