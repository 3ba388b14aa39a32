/* activation.h - activation functions of MLPs.
 *
 *   gelu (tanh form): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   gated:            out = act(gate) * up, of silu(x) = x / (1 + exp(-x))
 *                     (SwiGLU), or of gelu (GeGLU)
 *
 * Source:  Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2 ("gelu_new" of
 *          transformers); Shazeer 2020, arXiv:2002.05202, equation 6.
 * dx may be dout; dgate may be gate and dup may be up. gate and up may be the
 * halves of one array (N, 2 F): rows are `stride` elements apart. */
#pragma once

#include "base/device/device.h"

typedef enum zd_status gelu_forward_fn(
        struct stream *stream, void *out, /* (count) */
        const void *x,                    /* (count) */
        size_t count);

typedef enum zd_status gelu_backward_fn(
        struct stream *stream, void *dx, /* (count); may be dout */
        const void *dout,                /* (count) */
        const void *x,                   /* (count) */
        size_t count);

enum gate { GATE_SILU, GATE_GELU };

typedef enum zd_status gated_forward_fn(
        struct stream *stream, enum gate by, void *out, /* (N, F) */
        const void *gate, const void *up, /* (N, F), rows `stride` apart */
        int N, int F, int64_t stride);

typedef enum zd_status gated_backward_fn(
        struct stream *stream, enum gate by, void *dgate,
        void *dup,        /* (N, F), rows `stride` apart */
        const void *dout, /* (N, F); dgate may be dout if stride is F */
        const void *gate, const void *up, /* (N, F), rows `stride` apart */
        int N, int F, int64_t stride);

/* GPU functions by enum dtype; a matmul's epilogue uses them. */
extern gelu_forward_fn *const gelu_forward_cuda[3];
extern gelu_backward_fn *const gelu_backward_cuda[3];
