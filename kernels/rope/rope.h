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

#include <stdint.h>

typedef enum zd_status rope_fn(
        struct stream *stream,
        void *x, /* (N, H, D), rows `row_stride` elements apart */
        const float *cosine, const float *sine, /* (positions, D/2) */
        const int32_t *positions, /* (N): row of the tables for each token */
        int N, int H, int D, int64_t row_stride, bool backward);

#endif
