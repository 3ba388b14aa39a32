/* quant_cpu.h - the fast paths of one instruction set and type. Private to
 * kernels' tables, and to what decodes as it multiplies. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/quant/dequantize.h"

/* A quantized matrix with its tables; all borrowed. */
struct codes_reader {
    const struct quant_matrix *m;
    const uint8_t *codes;
    const float *scales;
    const float *nested; /* scales of absmax; NULL: they are not quantized */
    const uint8_t *absmax_codes;
    float values[16], map[256];
};
void FAST(codes_reader_init)(
        struct codes_reader *reader, const void *codes, const void *scales,
        const struct quant_matrix *matrix);
/* Elements begin .. begin + count - 1, decoded by the calling thread. */
void FAST(codes_read)(
        elem *out, const struct codes_reader *reader, size_t begin,
        size_t count);
