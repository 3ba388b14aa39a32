#include "kernels/fused.h"

#include <assert.h>

enum zd_status fused_matmul_strided(
        const struct kernels *kernels, struct stream *stream, void *out,
        enum dtype out_type, const void *a, const void *b,
        const struct matmul_strides *strides, int M, int N, int K, bool trans_a,
        bool trans_b, bool accumulate)
{
    if (kernels->matmul_strided)
        return kernels->matmul_strided(
                stream, out, out_type, a, b, strides, M, N, K, trans_a, trans_b,
                accumulate);
    assert(strides->out == N && strides->a == (trans_a ? M : K) &&
           strides->b == (trans_b ? K : N));
    return kernels->matmul(
            stream, out, out_type, a, b, NULL, M, N, K, trans_a, trans_b,
            accumulate);
}

enum zd_status fused_matmul_gelu(
        const struct kernels *kernels, struct stream *stream, void *out,
        void *pre, const void *a, const void *b, const void *bias, int M, int N,
        int K, bool trans_b)
{
    if (kernels->matmul_gelu)
        return kernels->matmul_gelu(
                stream, out, pre, a, b, bias, M, N, K, trans_b);
    ZD_TRY(kernels->matmul(
            stream, pre, kernels->dtype, a, b, bias, M, N, K, false, trans_b,
            false));
    return kernels->gelu_forward(stream, out, pre, (size_t)M * (size_t)N);
}

enum zd_status fused_matmul_dgelu(
        const struct kernels *kernels, struct stream *stream, void *dpre,
        const void *dout, const void *b, const void *pre, int M, int N, int K,
        bool trans_b)
{
    if (kernels->matmul_dgelu)
        return kernels->matmul_dgelu(
                stream, dpre, dout, b, pre, M, N, K, trans_b);
    ZD_TRY(kernels->matmul(
            stream, dpre, kernels->dtype, dout, b, NULL, M, N, K, false,
            trans_b, false));
    return kernels->gelu_backward(
            stream, dpre, dpre, pre, (size_t)M * (size_t)N);
}

enum zd_status fused_weight_grads(
        const struct kernels *kernels, struct stream *stream, float *dweight,
        float *dbias, const void *a, const void *b, int rows, int columns,
        int tokens, bool dy_first, bool accumulate)
{
    if (dweight && dbias && kernels->matmul_weight_grads)
        return kernels->matmul_weight_grads(
                stream, dweight, dbias, a, b, rows, columns, tokens, dy_first,
                accumulate);
    if (dweight)
        ZD_TRY(kernels->matmul(
                stream, dweight, DTYPE_FP32, a, b, NULL, rows, columns, tokens,
                true, false, accumulate));
    if (!dbias)
        return ZD_OK;
    return kernels->reduce_rows(
            stream, dbias, dy_first ? a : b, tokens, dy_first ? rows : columns,
            accumulate);
}

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
        const void *weight, float eps, int N, int C)
{
    if (kernels->add_rmsnorm_forward)
        return kernels->add_rmsnorm_forward(
                stream, sum, out, rstd, a, b, weight, eps, N, C);
    ZD_TRY(kernels->add(stream, sum, a, b, (size_t)N * (size_t)C));
    return kernels->rmsnorm_forward(stream, out, rstd, sum, weight, eps, N, C);
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
        const struct rope_angles *angles, float eps, int N, int D)
{
    if (kernels->head_norm_rope_forward)
        return kernels->head_norm_rope_forward(stream, q, k, angles, eps, N, D);
    return head_norm_rope_forward_parts(
            kernels->head_norm_forward, kernels->rope, kernels->dtype, stream,
            q, k, angles, eps, N, D);
}

enum zd_status fused_head_norm_rope_backward(
        const struct kernels *kernels, struct stream *stream,
        const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, int N, int D, bool accumulate)
{
    if (kernels->head_norm_rope_backward)
        return kernels->head_norm_rope_backward(
                stream, q, k, angles, N, D, accumulate);
    return head_norm_rope_backward_parts(
            kernels->head_norm_backward, kernels->rope, kernels->dtype, stream,
            q, k, angles, N, D, accumulate);
}
