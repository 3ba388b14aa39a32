/* head_norm_rope.h - q and k from their projection to attention: each head
 * is normed by itself (head_norm_*, norm.h), rounded as it is stored, and
 * rotated (rope.h). Bits as of the two operations in turn.
 *
 * Backward: the gradients are rotated back and rounded, then the norm's
 * backward. What they were is lost, as after rope: dout is scratch.
 * A table may have none of it: call fused.h. */
#ifndef ZD_KERNELS_NORM_HEAD_NORM_ROPE_H
#define ZD_KERNELS_NORM_HEAD_NORM_ROPE_H

#include "kernels/cuda/cuda_names.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"

#include <stdint.h>

/* Heads of q, or of k. N tokens of H heads of D channels; rows of consecutive
 * tokens are x_stride apart in x and dx, out_stride in out and dout. */
struct head_norm_forward_args {
    void *out;   /* (N, H, D), not x */
    float *rstd; /* (N, H) kept for backward */
    const void *x;
    const void *weight; /* (D) */
    int H;
    int64_t out_stride, x_stride;
};

struct head_norm_backward_args {
    void *dx;       /* (N, H, D); may be dout where the strides are equal */
    float *dweight; /* (D), or NULL: frozen */
    void *dout;     /* (N, H, D) */
    const void *x, *weight;
    const float *rstd;
    int H;
    int64_t out_stride, x_stride;
};

typedef enum zd_status head_norm_rope_forward_fn(
        struct stream *stream, const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D);
typedef enum zd_status head_norm_rope_backward_fn(
        struct stream *stream, const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate);

/* The same of their parts: for a table that has no kernel for it, and for heads
 * that such a kernel does not take. */
enum zd_status head_norm_rope_forward_parts(
        head_norm_forward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D);
enum zd_status head_norm_rope_backward_parts(
        head_norm_backward_fn *norm, rope_fn *rope, enum dtype dtype,
        struct stream *stream, const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate);

CUDA_DECLARE(head_norm_rope_forward);
CUDA_DECLARE(head_norm_rope_backward);

#endif
