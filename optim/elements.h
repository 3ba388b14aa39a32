/* elements.h - the arithmetic of one element, the same for every format of
 * states: loops over arrays decode before it and encode afterwards. Private to
 * optim.
 *
 * Every operation is one IEEE-754 operation in fp32, fmaf among them (the build
 * forbids contraction into fused multiply-adds), and an element depends on no
 * other, so any vector width, any cut and any number of threads give the same
 * bits. */
#pragma once

#include "optim/isa.h"
#include "optim/optimizers.h"

#include <math.h>

/* Values that all elements of a tensor share in a step, rounded once to
 * fp32. */
struct optim_factors {
    float grad_scale;
    float keep;         /* 1 - lr * wd, or 1 */
    float beta1, gain1; /* gain = 1 - beta */
    float beta2, gain2;
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
    float momentum;
    float rate;      /* lr */
    float adam_rate; /* lr / (1 - beta1^t) */
};

struct optim_factors optim_factors_of(
        const struct optim_span *span, const struct optim_step *step);

/* --- the optimizers ------------------------------------------------------- */

/* 0, NaN: itself; else 1 or -1. On bits, because a comparison of floats may
 * trap, so compilers do not vectorize it. */
INLINED float sign_of(float x)
{
    uint32_t bits, magnitude, one;
    memcpy(&bits, &x, sizeof bits);
    magnitude = bits & 0x7fffffffu;
    one = (bits & 0x80000000u) | 0x3f800000u;
    bits = magnitude - 1 < 0x7f800000u ? one : bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define OPTIM_ELEMENTS
#include "optim/optimizers.inc"

/* --- stochastic rounding -------------------------------------------------- */

/* Draws for a qblock: 32 calls of Philox give 256 times 16 bits. Element i of
 * qblock q (from the tensor's start) has half (i / 32) % 2 (the low one is 0)
 * of word i / 64 of philox(seed, stream, t << 32 | q * 32 + i % 32). The
 * stream is the tensor's for masters, and its complement for v. */
enum { OPTIM_DRAW_CALLS = OPTIM_QBLOCK / 8 };

void optim_draws(
        uint64_t seed, uint64_t stream, int64_t t, size_t qblock,
        uint16_t draws[OPTIM_QBLOCK]);

/* bf16 of x, rounded up with the probability of the part that is cut off:
 * draws are uniform in 0 .. 2^16 - 1. NaN and infinities stay. */
INLINED uint16_t round_stochastic(float x, uint16_t draw)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t quiet = magnitude > 0x7f800000u ? 0x40u : 0;
    uint32_t rounded = (bits + draw) >> 16;
    return (uint16_t)(magnitude >= 0x7f800000u ? bits >> 16 | quiet : rounded);
}

/* v of `count` elements from `begin` on, from those of the blocks. */
void optim_expand_blocks(
        const struct tensor_blocks *blocks, const float *block_v, size_t begin,
        size_t count, float *out);

/* The definition of optim_update. */
void optim_update_plain(
        const struct optim_span *span, const struct optim_step *step);
