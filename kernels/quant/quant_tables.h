/* quant_tables.h - bounds between the codes of bitsandbytes' formats, from its
 * Python (_get_4bit_quantize_bounds). Private to this folder. */
#pragma once

#include <stdint.h>

/* x above the i-th of these is of rank i + 1. */
static const float nf4_bounds[15] = {
        -0.8480964f,  -0.6106329f,   -0.45999527f, -0.33967942f, -0.2346074f,
        -0.13791174f, -0.045525018f, 0.03979015f,  0.12025525f,  0.20352125f,
        0.29201376f,  0.38931254f,   0.50166345f,  0.6427869f,   0.86147845f};
/* x above the i-th of these is of rank i + 1. */
static const float fp4_bounds[15] = {
        -0.8333334f, -0.5833334f,    -0.4166667f, -0.2916667f,   -0.20833334f,
        -0.0859375f, -0.0026041667f, 0.0f,        0.0026041667f, 0.0859375f,
        0.20833334f, 0.2916667f,     0.4166667f,  0.5833334f,    0.8333334f};
/* The code of a rank. */
static const uint8_t fp4_order[16] = {11, 10, 13, 12, 15, 14, 9, 0,
                                      8,  1,  6,  7,  4,  5,  2, 3};
