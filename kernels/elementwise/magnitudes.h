/* magnitudes.h - DoRA's operations besides matmuls. Each row of the weight gets
 * its own magnitude: y = bias + g (W + s B A) x with g = m / |W + s B A|.
 *
 *   row_gains      |W + s B A|^2 = W.W + 2 s B.(W A^T) + s^2 B (A A^T) B^T, by
 *                  rows, from W A^T and A A^T; inverse = 1 / |..|, gain = m
 *                  inverse, m = |W| + change. With B = 0 and change = 0 every
 *                  gain is 1. A row of norm 0 has gain and inverse 0.
 *   scale_columns  out = bias + gain (x - bias), by columns
 *   column_dots    out [+]= factor sum over rows of a b, by columns: the
 *                  gradient of m, with factor = inverse
 *
 * Source:  Liu et al. 2024, arXiv:2402.09353, sections 4.1 and 4.3: backward
 *          treats the norm as constant.
 * Shapes:  rows of activations are their strides apart. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"

struct adapted_rows {
    const void *weight; /* (out, in), with conv1d (in, out) */
    const void *b;      /* (out, r) */
    const void *change; /* (out) */
    const float *cross; /* (out, r) W A^T */
    const float *gram;  /* (r, r) A A^T */
    float scale;
    int out, in, r;
    bool conv1d;
};

typedef enum zd_status row_gains_fn(
        struct stream *stream, float *gain, float *inverse, /* (out) */
        const struct adapted_rows *rows);
/* `type` is the compute type or fp32; the bias has the compute type. out may be
 * x. gain NULL: a copy; bias NULL: none. */
typedef enum zd_status scale_columns_fn(
        struct stream *stream, void *out,                     /* (N, C) */
        int64_t out_stride, const void *x,                    /* (N, C) */
        int64_t x_stride, enum dtype type, const float *gain, /* (C) */
        const void *bias,                                     /* (C) */
        int N, int C);
typedef enum zd_status column_dots_fn(
        struct stream *stream, float *out,              /* (C) */
        const float *factor,                            /* (C) */
        const void *a, int64_t a_stride, const void *b, /* (N, C) */
        int64_t b_stride, int N, int C, bool accumulate);
