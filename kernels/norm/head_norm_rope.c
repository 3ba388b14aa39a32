#include "kernels/norm/head_norm_rope.h"

enum zd_status head_norm_rope_forward_parts(
        head_norm_forward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D)
{
    const struct head_norm_forward_args *both[] = {q, k};
    for (int i = 0; i < 2; i++)
        ZD_TRY(
                norm(stream, both[i]->out, both[i]->rstd, both[i]->x,
                     both[i]->weight, eps, form, N, both[i]->H, D,
                     both[i]->out_stride, both[i]->x_stride));
    return rope_both(
            rope, dtype, stream, q->out, k->out, q->H, k->H, q->out_stride,
            k->out_stride, angles, N, D, false);
}

enum zd_status head_norm_rope_backward_parts(
        head_norm_backward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate)
{
    const struct head_norm_backward_args *both[] = {q, k};
    ZD_TRY(rope_both(
            rope, dtype, stream, q->dout, k->dout, q->H, k->H, q->out_stride,
            k->out_stride, angles, N, D, true));
    for (int i = 0; i < 2; i++)
        ZD_TRY(norm(
                stream, both[i]->dx, both[i]->dweight, both[i]->dout,
                both[i]->x, both[i]->weight, both[i]->rstd, form, N, both[i]->H,
                D, both[i]->out_stride, both[i]->x_stride, accumulate));
    return ZD_OK;
}
