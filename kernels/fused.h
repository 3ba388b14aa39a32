/* fused.h - operations that a table may have in one pass: where it has not,
 * they are composed of the table's own parts, with the same results. Arguments
 * as in the headers of the families. */
#ifndef ZD_KERNELS_FUSED_H
#define ZD_KERNELS_FUSED_H

#include "kernels/kernels.h"

enum zd_status fused_add_layernorm(
        const struct kernels *kernels, struct stream *stream, void *sum,
        void *out, float *mean, float *rstd, const void *a, const void *b,
        const void *weight, const void *bias, float eps, int N, int C);
enum zd_status fused_add_rmsnorm(
        const struct kernels *kernels, struct stream *stream, void *sum,
        void *out, float *rstd, const void *a, const void *b,
        const void *weight, float eps, enum rmsnorm_form form, int N, int C);
/* Rotates the heads of q and k in place (rope.h): in one call where those
 * of k follow those of q in every row. backward: the inverse. */
enum zd_status fused_rope(
        const struct kernels *kernels, struct stream *stream, void *q, void *k,
        int H, int KV, int64_t q_stride, int64_t k_stride,
        const struct rope_angles *angles, int N, int D, bool backward);
enum zd_status fused_head_norm_rope_forward(
        const struct kernels *kernels, struct stream *stream,
        const struct head_norm_forward_args *q,
        const struct head_norm_forward_args *k,
        const struct rope_angles *angles, float eps, enum rmsnorm_form form,
        int N, int D);
enum zd_status fused_head_norm_rope_backward(
        const struct kernels *kernels, struct stream *stream,
        const struct head_norm_backward_args *q,
        const struct head_norm_backward_args *k,
        const struct rope_angles *angles, enum rmsnorm_form form, int N, int D,
        bool accumulate);

#endif
