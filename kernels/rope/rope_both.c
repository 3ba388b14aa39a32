#include "kernels/rope/rope.h"

enum zd_status rope_both(
        rope_fn *rope, enum dtype dtype, struct stream *stream, void *q,
        void *k, int H, int KV, int64_t q_stride, int64_t k_stride,
        const struct rope_angles *of_q, const struct rope_angles *of_k, int N,
        int D, bool backward)
{
    size_t heads = (size_t)H * (size_t)D * dtype_bytes(dtype);
    bool one = k == (char *)q + heads && q_stride == k_stride &&
               of_q->cosine == of_k->cosine;
    ZD_TRY(rope(stream, q, of_q, N, one ? H + KV : H, D, q_stride, backward));
    return one ? ZD_OK : rope(stream, k, of_k, N, KV, D, k_stride, backward);
}
