/* codec.h - 8-bit states: the dynamic maps of bitsandbytes, as its Python
 * definition gives them (create_dynamic_map, max_exponent_bits 7, total_bits
 * 8), and blocks of 256 elements that share a scale. Private to optim and its
 * tests.
 *
 *   scale = max |x| of the qblock      code = nearest entry of the map to x/scale
 *
 * Signed (m): 127 negatives, 0 at index 127, 128 positives, and no -1.0: -scale
 * becomes the entry -0.99297. Unsigned (v): 0 at index 0.
 * Guards: a qblock of nothing has scale 0 and the codes of 0; an m never changes
 * its sign by rounding; a v above 0 never becomes 0 (it is rounded up to the
 * smallest entry), so that m / (sqrt(v) + eps) stays tame.
 * Encoding is arithmetic, no search: plain, AVX2 and AVX-512 give equal codes. */
#ifndef ZD_OPTIM_CODEC_H
#define ZD_OPTIM_CODEC_H

#include "optim/optim.h"

/* The 256 entries in rising order. */
const float *codec_map(enum optim_lane lane);

/* One qblock of up to 256 elements: (count) values and codes. */
void codec_encode_plain(enum optim_lane lane, const float *values, size_t count,
        uint8_t *codes, float *scale);
void codec_decode_plain(enum optim_lane lane, const uint8_t *codes, float scale,
        size_t count, float *values);
/* The fastest this machine can run; the same bits. */
void codec_encode(enum optim_lane lane, const float *values, size_t count,
        uint8_t *codes, float *scale);
void codec_decode(enum optim_lane lane, const uint8_t *codes, float scale,
        size_t count, float *values);

#endif
