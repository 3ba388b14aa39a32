/* rope.h - the angles of rotary position embedding.
 *
 *   inv_freq_i = theta^(-2i/D), i < D/2; with rope_type "llama3" long waves are
 *   slowed down by `factor`, short ones are kept, and those between are blended
 *   by how often they turn within the original context.
 *
 * Source:  Su et al. 2021, arXiv:2104.09864, section 3.2.2; Llama 3.1's scaling
 *          as in transformers' modeling_rope_utils. */
#ifndef ZD_MODEL_ROPE_H
#define ZD_MODEL_ROPE_H

#include "model/config.h"

/* The inverse frequency of pair i, in double. */
double rope_inv_freq(const struct model_config *config, int i);
/* cosine, sine: (positions, D/2). The angle is rounded to fp32 before the
 * functions are taken, as transformers does; far positions depend on it. */
void rope_fill(
        const struct model_config *config, int positions, float *cosine,
        float *sine);

#endif
