#include "kernels/fused.h"

enum zd_status fused_add_layernorm(
        const struct kernels *kernels, struct stream *stream, void *sum,
        void *out, float *mean, float *rstd, const void *a, const void *b,
        const void *weight, const void *bias, float eps, int N, int C)
{
    if (kernels->add_layernorm_forward)
        return kernels->add_layernorm_forward(
                stream, sum, out, mean, rstd, a, b, weight, bias, eps, N, C);
    ZD_TRY(kernels->add(stream, sum, a, b, (size_t)N * (size_t)C));
    return kernels->layernorm_forward(
            stream, out, mean, rstd, sum, weight, bias, eps, N, C);
}

enum zd_status fused_add_rmsnorm(
        const struct kernels *kernels, struct stream *stream, void *sum,
        void *out, float *rstd, const void *a, const void *b,
        const void *weight, float eps, enum rmsnorm_form form, int N, int C)
{
    if (kernels->add_rmsnorm_forward)
        return kernels->add_rmsnorm_forward(
                stream, sum, out, rstd, a, b, weight, eps, form, N, C);
    ZD_TRY(kernels->add(stream, sum, a, b, (size_t)N * (size_t)C));
    return kernels->rmsnorm_forward(
            stream, out, rstd, sum, weight, eps, form, N, C);
}

enum zd_status fused_rope(
        const struct kernels *kernels, struct stream *stream, void *q, void *k,
        int H, int KV, int64_t q_stride, int64_t k_stride,
        const struct rope_angles *angles, int N, int D, bool backward)
{
    return rope_both(
            kernels->rope, kernels->dtype, stream, q, k, H, KV, q_stride,
            k_stride, angles, N, D, backward);
}

enum zd_status fused_head_norm_rope_forward(
        const struct kernels *kernels, struct stream *stream,
        const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D)
{
    if (kernels->head_norm_rope_forward)
        return kernels->head_norm_rope_forward(
                stream, q, k, angles, eps, form, N, D);
    return head_norm_rope_forward_parts(
            kernels->head_norm_forward, kernels->rope, kernels->dtype, stream,
            q, k, angles, eps, form, N, D);
}

enum zd_status fused_head_norm_rope_backward(
        const struct kernels *kernels, struct stream *stream,
        const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate)
{
    if (kernels->head_norm_rope_backward)
        return kernels->head_norm_rope_backward(
                stream, q, k, angles, form, N, D, accumulate);
    return head_norm_rope_backward_parts(
            kernels->head_norm_backward, kernels->rope, kernels->dtype, stream,
            q, k, angles, form, N, D, accumulate);
}
