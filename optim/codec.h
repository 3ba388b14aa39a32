/* codec.h - 8-bit states: the dynamic maps of bitsandbytes, as its Python
 * definition gives them (create_dynamic_map, max_exponent_bits 7, total_bits
 * 8), and qblocks of 256 elements that share a scale. Private to optim and its
 * tests.
 *
 *   scale = max |x| of the qblock
 *   code  = nearest entry of the map to x / scale
 *
 * Signed (m): 127 negatives, 0 at index 127, 128 positives, and no -1.0: -scale
 * becomes the entry -0.99297. Unsigned (v): 0 at index 0.
 *
 * Between 0 and 1 an entry lies on one of seven lines: decade i (0..6) covers
 * 10^(i-7) .. 10^(i-6) by 2^i (m) or 2^(i+1) (v) bins of one width, and an
 * entry is the middle of its bin. So both ways are arithmetic, no search:
 *
 *   decode   f = code - 127 (m), code + 1 (v); i from the exponent of f;
 *            x = fma(A_i scale, f, B_i scale), B_i with the sign of f
 *   encode   i from the exponent of y = x (1 / scale) and one comparison;
 *            f = fma(|y|, 1 / (0.9 10^(i-6)), 8/9), below 2, times the bins
 *
 * Entries are within 1e-6 of the Python map (relative), and a code is the
 * nearest but where two are equally near: y is right within 2^-22 of the end
 * of its decade.
 *
 * Guards: a qblock of zeros has scale 0 and the codes of 0; an m never changes
 * its sign by rounding; a v above 0 never becomes 0 (it is rounded up to the
 * smallest entry), so that m / (sqrt(v) + eps) stays tame. A qblock with an
 * element that is not finite gets a scale that is not finite, and decodes to
 * all NaN, so that the damage stays visible. A v below 0 is a bug of the
 * caller. Plain, AVX2 and AVX-512 give the same bits. */
#pragma once

#include "optim/optim.h"

/* One qblock of up to 256 elements: (count) values and codes. */
void codec_encode_plain(
        enum optim_lane lane, const float *values, size_t count, uint8_t *codes,
        float *scale);
void codec_decode_plain(
        enum optim_lane lane, const uint8_t *codes, float scale, size_t count,
        float *values);
