/* norm.h - layer normalization and root-mean-square normalization over the last
 * axis (C channels of each of N rows).
 *
 *   layernorm: mean = sum_c x / C, rstd = 1/sqrt(sum_c (x-mean)^2 / C + eps)
 *              out = (x - mean) * rstd * weight + bias
 *   rmsnorm:   rstd = 1/sqrt(sum_c x^2 / C + eps), out = x * rstd * weight
 *              by one of three forms (enum rmsnorm_form)
 *
 * Heads:    each head of q or k is a row: N tokens of `heads` rows each, with
 *           one weight (C) for all. Rows of consecutive tokens are x_stride
 *           elements apart in x and dx, out_stride in out and dout, so that q
 *           and k may be parts of one array. Same bits as with dense rows.
 * Backward: dx = [dresidual +] J^T dout.
 * Source:   Ba, Kiros, Hinton 2016, arXiv:1607.06450, section 3; Zhang,
 *           Sennrich 2019, arXiv:1910.07467, equation 4. */
#pragma once

#include "base/device/device.h"
#include "base/number/host_device.h"
#include "kernels/rope/rope.h"

#include <stdint.h>

/* Where a narrow type is rounded, and how the weight multiplies, as in
 * transformers. */
enum rmsnorm_form {
    RMSNORM_ROUND_FIRST, /* round(round(x * rstd) * weight): Llama */
    RMSNORM_ROUND_LAST,  /* round(x * rstd * weight): OLMo 2 */
    RMSNORM_ONE_PLUS     /* round(x * rstd * (1 + weight)): Gemma */
};

/* For tensor parallelism: rows of rmsnorm that are split over `places` ranks
 * with C elements each. A first call computes this rank's part of the rows'
 * sums; a second one computes out or dx from the parts of all, added in order.
 * Not with `add` or `dresidual`. */
struct norm_parts {
    float *mine;      /* (N) the result if out or dx is NULL. forward: sums of
                         x^2; backward: of g xhat */
    const float *all; /* (N) per rank, `stride` apart */
    int64_t stride;
    int places; /* 0: rows are whole */
};

struct norm_forward {
    void *out;     /* (N, C); may be `add` */
    float *mean;   /* (N) kept for backward; NULL: rmsnorm */
    float *rstd;   /* (N) kept for backward */
    const void *x; /* (N, C) */
    /* (N, C) or NULL. If set, the row is x + add, rounded and stored in `sum`,
     * which may be x or `add`: the residual stream between two halves of a
     * layer. Same bits as a separate add. Only for dense rows. */
    const void *add;
    void *sum;
    const void *weight, *bias; /* (C); bias: layernorm only */
    float eps;
    enum rmsnorm_form form; /* rmsnorm only */
    int N, C;
    int heads; /* 0: rows are dense, strides are unused */
    int64_t out_stride, x_stride;
    struct norm_parts parts;
};

struct norm_backward {
    void *dx;               /* (N, C); may be dout where strides are equal */
    float *dweight, *dbias; /* (C) NULL: frozen, or no layernorm */
    const void *dout;       /* (N, C) */
    const void *dresidual;  /* (N, C) or NULL; may be dx. Only for dense rows */
    const void *x, *weight;
    const float *mean, *rstd; /* (N) from forward */
    enum rmsnorm_form form;
    int N, C, heads;
    int64_t out_stride, x_stride;
    struct norm_parts parts;
    bool accumulate;
};

typedef enum zd_status norm_forward_fn(
        struct stream *stream, const struct norm_forward *p);
typedef enum zd_status norm_backward_fn(
        struct stream *stream, const struct norm_backward *p);

/* kernels_head_norm_rope_forward and _backward in one pass. ZD_ERR_UNFIT,
 * without a message: these rows are not supported; nothing was queued. */
typedef enum zd_status head_norm_rope_forward_fn(
        struct stream *stream, const struct norm_forward *q,
        const struct norm_forward *k, const struct rope_angles *angles);
typedef enum zd_status head_norm_rope_backward_fn(
        struct stream *stream, const struct norm_backward *q,
        const struct norm_backward *k, const struct rope_angles *angles);

/* The offset of row n of C elements. (norm_rows: the number of rows.) */
ZD_HOST_DEVICE static inline int64_t norm_row(
        int64_t n, int C, int heads, int64_t stride)
{
    if (heads == 0)
        return n * C;
    return (int64_t)((unsigned)n / (unsigned)heads) * stride +
           (int64_t)((unsigned)n % (unsigned)heads) * C;
}
/* Row n's sum over the parts of all ranks; `own` if rows are whole. */
ZD_HOST_DEVICE static inline float norm_sum(
        const struct norm_parts *parts, int64_t n, float own)
{
    float sum = parts->places ? 0.0f : own;
    for (int i = 0; i < parts->places; i++)
        sum += parts->all[i * parts->stride + n];
    return sum;
}
/* Elements of a whole row, over all ranks. */
ZD_HOST_DEVICE static inline int norm_width(
        const struct norm_parts *parts, int C)
{
    return parts->places ? C * parts->places : C;
}
static inline int64_t norm_rows(int N, int heads)
{
    return (int64_t)N * (heads ? heads : 1);
}
