#include "kernels/rope/rope.h"

enum zd_status rope_both(
        rope_fn *rope, enum dtype dtype, struct stream *stream, void *x,
        void *y, int H, int KV, int64_t x_stride, int64_t y_stride,
        const struct rope_angles *angles, int N, int D, bool backward)
{
    size_t heads = (size_t)H * (size_t)D * dtype_bytes(dtype);
    bool one = y == (char *)x + heads && x_stride == y_stride;
    ZD_TRY(
            rope(stream, x, angles->cosine, angles->sine, angles->positions, N,
                 one ? H + KV : H, D, x_stride, backward));
    if (one)
        return ZD_OK;
    return rope(
            stream, y, angles->cosine, angles->sine, angles->positions, N, KV,
            D, y_stride, backward);
}
