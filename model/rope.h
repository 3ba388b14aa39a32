/* rope.h - the angles of rotary position embedding.
 *
 *   position p rotates pair i < d/2 of a head's first d channels by p inv_i;
 *   cosine and sine are multiplied by a.
 *
 *   default    inv_i = theta^(-2i/d)
 *   linear     inv_i / f
 *   dynamic    theta grows with L = max(positions of the run, M):
 *              theta (f L/M - (f - 1))^(d/(d-2))
 *   yarn       between lo = c(beta_fast) and hi = c(beta_slow), of pairs that
 *              turn r times within O: c(r) = d ln(O / (2 pi r)) / (2 ln theta),
 *              inv_i is blended with inv_i / f; a = 0.1 ln f + 1, or by mscale
 *   longrope   inv_i / factors_i: the long ones if the run has more than O
 *              positions, else the short ones; a = sqrt(1 + ln f / ln O)
 *   llama3     long waves by f, short ones kept, those between blended by how
 *              often they turn within O
 *
 * q of position p may also be multiplied by 1 + q_beta ln(1 + floor(p / O)).
 *
 * Source:  Su et al. 2021, arXiv:2104.09864, section 3.2.2; Peng et al. 2023
 *          (YaRN), arXiv:2309.00071, section 3; Ding et al. 2024 (LongRoPE),
 *          arXiv:2402.13753; all as in transformers' modeling_rope_utils.
 *          There dynamic and longrope depend on each batch; here a run has one
 *          length (train.cutoff_len, or generation's capacity). */
#pragma once

#include "model/config.h"

/* Tables of one set, (positions, pairs). q's tables are k's if q_beta is 0. */
struct rope_tables {
    float *cosine, *sine, *q_cosine, *q_sine;
};

/* The inverse frequency of pair i, in double, in a run of `positions`. */
double rope_inv_freq(const struct rope_set *set, int positions, int i);
size_t rope_table_floats(const struct rope_set *set, int positions);
/* Lays out the tables in rope_table_floats of memory. */
struct rope_tables rope_tables_at(
        const struct rope_set *set, int positions, float *memory);
/* Rounds angles to fp32 before sine and cosine, as transformers does; it
 * matters for distant positions. */
void rope_fill(
        const struct rope_set *set, int positions,
        const struct rope_tables *tables);
