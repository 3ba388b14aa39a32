#include "kernels/norm/norm.h"

enum zd_status head_norm_rope_forward_parts(
        norm_forward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles)
{
    ZD_TRY(norm(stream, q));
    ZD_TRY(norm(stream, k));
    return rope_both(
            rope, dtype, stream, q->out, k->out, q->heads, k->heads,
            q->out_stride, k->out_stride, angles, angles, q->N, q->C, false);
}

enum zd_status head_norm_rope_backward_parts(
        norm_backward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles)
{
    /* dout is scratch of the caller */
    ZD_TRY(rope_both(
            rope, dtype, stream, (void *)(uintptr_t)q->dout,
            (void *)(uintptr_t)k->dout, q->heads, k->heads, q->out_stride,
            k->out_stride, angles, angles, q->N, q->C, true));
    ZD_TRY(norm(stream, q));
    return norm(stream, k);
}
