/* norm.h - layer normalization and root-mean-square normalization over the last
 * axis (C channels of each of N rows).
 *
 *   layernorm: mean = sum_c x / C, rstd = 1/sqrt(sum_c (x-mean)^2 / C + eps)
 *              out = (x - mean) * rstd * weight + bias
 *   rmsnorm:   rstd = 1/sqrt(sum_c x^2 / C + eps), out = x * rstd * weight
 *              by one of three forms (enum rmsnorm_form)
 *
 * Source:  Ba, Kiros, Hinton 2016, arXiv:1607.06450, section 3;
 *          Zhang, Sennrich 2019, arXiv:1910.07467, equation 4.
 * Backward: dx = [dresidual +] J^T dout; dresidual may be NULL or dx itself.
 *          dweight and dbias may be NULL (frozen). */
#ifndef ZD_KERNELS_NORM_NORM_H
#define ZD_KERNELS_NORM_NORM_H

#include "base/device/device.h"
#include "kernels/cuda/cuda_names.h"

#include <stdint.h>

typedef enum zd_status layernorm_forward_fn(
        struct stream *stream, void *out, /* (N, C) */
        float *mean,                      /* (N) kept for backward */
        float *rstd,                      /* (N) kept for backward */
        const void *x,                    /* (N, C) */
        const void *weight,               /* (C) */
        const void *bias,                 /* (C) */
        float eps, int N, int C);

typedef enum zd_status layernorm_backward_fn(
        struct stream *stream, void *dx,      /* (N, C) */
        float *dweight,                       /* (C) */
        float *dbias,                         /* (C) */
        const void *dout,                     /* (N, C) */
        const void *dresidual,                /* (N, C) or NULL */
        const void *x,                        /* (N, C) */
        const void *weight,                   /* (C) */
        const float *mean, const float *rstd, /* (N) */
        int N, int C, bool accumulate);

/* Where a narrow type is rounded, and what the weight is, as transformers'
 * models have it. */
enum rmsnorm_form {
    RMSNORM_ROUND_FIRST, /* round(round(x * rstd) * weight): Llama */
    RMSNORM_ROUND_LAST,  /* round(x * rstd * weight): OLMo 2 */
    RMSNORM_ONE_PLUS     /* round(x * rstd * (1 + weight)): Gemma */
};

typedef enum zd_status rmsnorm_forward_fn(
        struct stream *stream, void *out, /* (N, C) */
        float *rstd,                      /* (N) kept for backward */
        const void *x,                    /* (N, C) */
        const void *weight,               /* (C) */
        float eps, enum rmsnorm_form form, int N, int C);

typedef enum zd_status rmsnorm_backward_fn(
        struct stream *stream, void *dx, /* (N, C) */
        float *dweight,                  /* (C) */
        const void *dout,                /* (N, C); may be dx */
        const void *dresidual,           /* (N, C) or NULL */
        const void *x,                   /* (N, C) */
        const void *weight,              /* (C) */
        const float *rstd,               /* (N) */
        enum rmsnorm_form form, int N, int C, bool accumulate);

/* rmsnorm of every head of q or k for itself: N tokens of H heads of D
 * channels, one weight (D) for all heads. Rows of consecutive tokens are
 * `x_stride` apart in x and dx, `out_stride` in out and dout, so that q and k
 * may lie in one array with others. dx may be dout where the strides are equal.
 * Bits as of rmsnorm where both strides are H * D. */
typedef enum zd_status head_norm_forward_fn(
        struct stream *stream, void *out, /* (N, H, D) */
        float *rstd,                      /* (N, H) kept for backward */
        const void *x,                    /* (N, H, D) */
        const void *weight,               /* (D) */
        float eps, enum rmsnorm_form form, int N, int H, int D,
        int64_t out_stride, int64_t x_stride);
typedef enum zd_status head_norm_backward_fn(
        struct stream *stream, void *dx, /* (N, H, D) */
        float *dweight,                  /* (D) or NULL */
        const void *dout,                /* (N, H, D) */
        const void *x,                   /* (N, H, D) */
        const void *weight,              /* (D) */
        const float *rstd,               /* (N, H) */
        enum rmsnorm_form form, int N, int H, int D, int64_t out_stride,
        int64_t x_stride, bool accumulate);

/* sum = a + b, rounded as it is stored, then the norm of sum: the residual
 * stream between two halves of a layer, and between layers. sum may be a or b,
 * out may be b; bits as of add and then the norm. */
typedef enum zd_status add_layernorm_forward_fn(
        struct stream *stream, void *sum, /* (N, C) */
        void *out, float *mean, float *rstd, const void *a, const void *b,
        const void *weight, const void *bias, float eps, int N, int C);
typedef enum zd_status add_rmsnorm_forward_fn(
        struct stream *stream, void *sum, /* (N, C) */
        void *out, float *rstd, const void *a, const void *b,
        const void *weight, float eps, enum rmsnorm_form form, int N, int C);

CUDA_DECLARE(layernorm_forward);
CUDA_DECLARE(layernorm_backward);
CUDA_DECLARE(rmsnorm_forward);
CUDA_DECLARE(rmsnorm_backward);
CUDA_DECLARE(head_norm_forward);
CUDA_DECLARE(head_norm_backward);
CUDA_DECLARE(add_layernorm_forward);
CUDA_DECLARE(add_rmsnorm_forward);

#endif
