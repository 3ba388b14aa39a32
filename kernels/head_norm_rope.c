#include "kernels/kernels.h"

enum zd_status kernels_rope_pair(
        const struct kernels *kernels, struct rope_pair heads,
        const struct rope_angles *of_q, const struct rope_angles *of_k, int N,
        int D, bool backward)
{
    rope_fn *rope = kernels->rope;
    size_t bytes = (size_t)heads.H * (size_t)D * dtype_bytes(kernels->dtype);
    bool one = heads.k == (char *)heads.q + bytes &&
               heads.q_stride == heads.k_stride && of_q->cosine == of_k->cosine;
    ZD_TRY(
            rope(NULL, heads.q, of_q, N, one ? heads.H + heads.KV : heads.H, D,
                 heads.q_stride, backward));
    return one ? ZD_OK
               : rope(NULL, heads.k, of_k, N, heads.KV, D, heads.k_stride,
                      backward);
}

enum zd_status kernels_head_norm_rope_forward(
        const struct kernels *kernels, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles)
{
    head_norm_rope_forward_fn *at_once = kernels->head_norm_rope_forward;
    enum zd_status status =
            at_once ? at_once(NULL, q, k, angles) : ZD_ERR_UNFIT;
    if (status != ZD_ERR_UNFIT)
        return status;
    ZD_TRY(kernels->norm_forward(NULL, q));
    ZD_TRY(kernels->norm_forward(NULL, k));
    struct rope_pair heads = {q->out,   k->out,        q->heads,
                              k->heads, q->out_stride, k->out_stride};
    return kernels_rope_pair(kernels, heads, angles, angles, q->N, q->C, false);
}

enum zd_status kernels_head_norm_rope_backward(
        const struct kernels *kernels, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles)
{
    head_norm_rope_backward_fn *at_once = kernels->head_norm_rope_backward;
    enum zd_status status =
            at_once ? at_once(NULL, q, k, angles) : ZD_ERR_UNFIT;
    if (status != ZD_ERR_UNFIT)
        return status;
    struct rope_pair heads = {
            (void *)(uintptr_t)q->dout,
            (void *)(uintptr_t)k->dout,
            q->heads,
            k->heads,
            q->out_stride,
            k->out_stride};
    ZD_TRY(kernels_rope_pair(kernels, heads, angles, angles, q->N, q->C, true));
    ZD_TRY(kernels->norm_backward(NULL, q));
    return kernels->norm_backward(NULL, k);
}
