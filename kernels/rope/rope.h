/* rope.h - rotary position embedding, half-split layout (Hugging Face's
 * rotate_half), in place.
 *
 *   for i < D/2:  (x_i, x_{i+D/2}) <- rotation by angle position * inv_freq_i
 *
 * Source:  Su et al. 2021, arXiv:2104.09864, section 3.2; layout as in
 *          transformers' Llama. Backward is the rotation by the negative angle.
 */
#ifndef ZD_KERNELS_ROPE_ROPE_H
#define ZD_KERNELS_ROPE_ROPE_H

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "kernels/cuda/cuda_names.h"

#include <stdint.h>

typedef enum zd_status rope_fn(
        struct stream *stream,
        void *x, /* (N, H, D), rows `row_stride` elements apart */
        const float *cosine, const float *sine, /* (positions, D/2) */
        const int32_t *positions, /* (N): row of the tables for each token */
        int N, int H, int D, int64_t row_stride, bool backward);

struct rope_angles {            /* as above; D is even */
    const float *cosine, *sine; /* (positions, D/2) */
    const int32_t *positions;   /* (N) */
};

/* By `rope`, the heads of x and y, each H and KV of them: in one call where
 * those of y follow those of x in every row. */
enum zd_status rope_both(
        rope_fn *rope, enum dtype dtype, struct stream *stream, void *x,
        void *y, int H, int KV, int64_t x_stride, int64_t y_stride,
        const struct rope_angles *angles, int N, int D, bool backward);

CUDA_DECLARE(rope);

#endif
