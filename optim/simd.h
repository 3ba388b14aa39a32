/* simd.h - code with vector instructions: the 8-bit codec and the AdamW step.
 * One source (simd.c) is compiled for each instruction set, over a vocabulary
 * of that set (simd_avx2.h, simd_avx512.h). Private to optim and its tests. */
#pragma once

#include "optim/elements.h"
#include "optim/isa.h"
#include "optim/optim.h"

/* The first `count` elements, a multiple of 256, of an AdamW span. */
typedef void simd_adamw_fn(
        const struct optim_span *span, const struct optim_factors *factors,
        size_t count);

struct simd_code {
    /* A whole qblock, as codec_encode_plain and codec_decode_plain. */
    void (*encode)(
            enum optim_lane lane, const float *values, uint8_t *codes,
            float *scale);
    void (*decode)(
            enum optim_lane lane, const uint8_t *codes, float scale,
            float *values);
    /* An fp32 master, and both lanes in 8 bits or both in fp32. */
    simd_adamw_fn *adamw_8bit, *adamw_fp32;
};

/* NULL where there is none. */
const struct simd_code *simd_code_of(enum isa isa);
