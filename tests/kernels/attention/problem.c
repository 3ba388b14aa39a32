/* problem.c - see problem.h. */
#include "tests/kernels/attention/problem.h"

#include "tests/kernels/arrays.h"

#include "base/device/device_memory.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/kernels.h"

#include <criterion/criterion.h>
#include <stdio.h>

struct ops own_attention(enum dtype dtype)
{
    return (struct ops){
            attention_forward_cuda[dtype], attention_backward_cuda[dtype],
            attention_decode_cuda[dtype]};
}

/* As in cases.c: what one rounding of a result may be. */
static const double tolerance[] = {1e-5, 9e-3, 1.3e-3};

/* cuDNN 9.19 on an H100 is 1.1 times one rounding away where four heads share a
 * key: it rounds once more on the way to the sum over them. */
static double limit_of(struct problem p)
{
    return tolerance[p.dtype] * (p.by_cudnn && p.H > p.KV ? 1.5 : 1.0);
}

struct both both_of(void *host, size_t bytes)
{
    struct both x = {host, NULL, bytes};
    cr_assert_eq(device_take(bytes, &x.device), ZD_OK);
    cr_assert_eq(device_write(x.device, host, bytes), ZD_OK);
    return x;
}

void both_free(struct both x)
{
    free(x.host);
    device_give(x.device, x.bytes);
}

/* As the model tells them (model/batch.c). */
static void tell_documents(struct arrays *a, const int32_t *starts)
{
    struct attention_shape *s = &a->shape;
    int rows = s->B * s->T, bucket, count = 0;
    for (int i = 0; i < rows; i++)
        s->documents += starts[i] == i % s->T;
    bucket = attention_bucket(s);
    int32_t *firsts = malloc(((size_t)bucket + 1) * sizeof *firsts);
    for (int i = 0; bucket && i < rows; i++)
        if (starts[i] == i % s->T)
            firsts[count++] = i;
    while (count <= bucket)
        firsts[count++] = rows;
    a->firsts = both_of(firsts, ((size_t)bucket + 1) * sizeof *firsts);
    s->first_tokens = a->firsts.device;
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
    tell_documents(&a, starts);
    a.starts = both_of(starts, rows * sizeof *starts);
    a.in = both_of(random_array(p.dtype, count, 2.0f, 1), count * element);
    a.grads = both_of(random_array(p.dtype, count, 1.0f, 2), count * element);
    a.dout = both_of(
            random_array(p.dtype, rows * q, 1.0f, 3), rows * q * element);
    a.out = both_of(
            random_array(p.dtype, rows * q, 1.0f, 4), rows * q * element);
    size_t lse = rows * (size_t)p.H * sizeof(float);
    a.lse = both_of(random_array(DTYPE_FP32, lse / 4, 1.0f, 5), lse);
    a.scratch_bytes = attention_cuda_scratch_bytes(&a.shape, p.dtype);
    cr_assert_eq(device_take(a.scratch_bytes, &a.scratch), ZD_OK);
    return a;
}

void arrays_free(struct arrays *a)
{
    both_free(a->in), both_free(a->dout), both_free(a->out);
    both_free(a->lse), both_free(a->grads), both_free(a->starts);
    both_free(a->firsts);
    device_give(a->scratch, a->scratch_bytes);
}

/* Backward reads the out and lse that `definition` made, so that an error of
 * forward does not show twice. */
static void run_definition(struct arrays *a, enum dtype dtype)
{
    const struct kernels *plain;
    const char *in = a->in.host;
    char *grads = a->grads.host;
    cr_assert_eq(kernels_plain(dtype, &plain), ZD_OK);
    plain->attention_forward(
            NULL, a->out.host, a->lse.host, in, in + a->k_at, in + a->v_at,
            a->starts.host, NULL, &a->shape);
    plain->attention_backward(
            NULL, grads, grads + a->k_at, grads + a->v_at, a->dout.host,
            a->out.host, a->lse.host, in, in + a->k_at, in + a->v_at,
            a->starts.host, NULL, &a->shape);
}

void run_forward(struct arrays *a, const struct ops *ops)
{
    const char *in = a->in.device;
    cr_assert_eq(
            ops->forward(
                    NULL, a->out.device, a->lse.device, in, in + a->k_at,
                    in + a->v_at, a->starts.device, a->scratch, &a->shape),
            ZD_OK);
}

void run_backward(struct arrays *a, const struct ops *ops)
{
    const char *in = a->in.device;
    char *grads = a->grads.device;
    cr_assert_eq(
            ops->backward(
                    NULL, grads, grads + a->k_at, grads + a->v_at,
                    a->dout.device, a->out.device, a->lse.device, in,
                    in + a->k_at, in + a->v_at, a->starts.device, a->scratch,
                    &a->shape),
            ZD_OK);
}

void expect_near(
        const char *what, struct problem p, struct both x, enum dtype dtype)
{
    void *got = malloc(x.bytes);
    cr_assert_eq(device_read(got, x.device, x.bytes), ZD_OK);
    double error = worst(got, x.host, dtype, x.bytes / dtype_bytes(dtype));
    free(got);
    cr_expect(
            error <= limit_of(p),
            "%s of %s B=%d T=%d H=%d KV=%d D=%d documents of %d window %d cap "
            "%g: %g",
            what, dtype_name(p.dtype), p.B, p.T, p.H, p.KV, p.D, p.document,
            p.window, (double)p.softcap, error);
}

void check_by(const struct ops *ops, struct problem p)
{
    struct arrays a = arrays_of(p);
    run_definition(&a, p.dtype);
    run_forward(&a, ops);
    expect_near("out", p, a.out, p.dtype);
    expect_near("lse", p, a.lse, DTYPE_FP32);
    cr_assert_eq(device_write(a.out.device, a.out.host, a.out.bytes), ZD_OK);
    cr_assert_eq(device_write(a.lse.device, a.lse.host, a.lse.bytes), ZD_OK);
    run_backward(&a, ops);
    expect_near("gradients", p, a.grads, p.dtype);
    cr_expect_eq(device_check(), ZD_OK);
    arrays_free(&a);
}
