/* rope.h - rotary position embedding, in place.
 *
 *   for i < P:  (x_a, x_b) <- rotation by angle position * inv_freq_i
 *
 *   for the first 2 P channels of each head; the others do not change. a, b: i
 *   and i + P (Hugging Face's rotate_half), or 2 i and 2 i + 1 if pairs are
 *   interleaved (GLM). The tables include the factor of yarn and longrope.
 *
 * Source:  Su et al. 2021, arXiv:2104.09864, section 3.2; layouts as in
 *          transformers' Llama and GLM-4. Backward is the transpose: the
 *          rotation by the negative angle, times the same factors. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"

#include <stdint.h>

struct rope_angles {
    const float *cosine, *sine; /* (positions, P) */
    const int32_t *positions;   /* (N): row of the tables for each token */
    int pairs;                  /* P; 0: half of a head */
    bool interleaved;
};

static inline int rope_pairs_of(const struct rope_angles *angles, int D)
{
    return angles->pairs ? angles->pairs : D / 2;
}

typedef enum zd_status rope_fn(
        struct stream *stream,
        void *x, /* (N, H, D), rows `row_stride` elements apart */
        const struct rope_angles *angles, int N, int H, int D,
        int64_t row_stride, bool backward);
