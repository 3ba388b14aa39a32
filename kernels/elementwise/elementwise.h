/* elementwise.h - element-wise sums and column sums. */
#pragma once

#include "base/device/device.h"

/* out = a + b; out may be a or b. */
typedef enum zd_status add_fn(
        struct stream *stream, void *out, const void *a,
        const void *b, /* (count) */
        size_t count);

/* out(C) [+]= sum over N rows of x: the gradient of a bias. */
typedef enum zd_status reduce_rows_fn(
        struct stream *stream, float *out, /* (C) */
        const void *x,                     /* (N, C) */
        int N, int C, bool accumulate);

/* GPU functions by enum dtype; a matmul's epilogue uses them. */
extern reduce_rows_fn *const reduce_rows_cuda[3];
