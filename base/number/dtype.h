/* dtype.h - element types, their sizes, and exact scalar conversions.
 *
 * bf16 is the upper half of a float; fp16 is IEEE binary16. Conversions to a
 * narrower type round to nearest even, once; what is too large becomes
 * infinite; NaN stays NaN, quiet, with the upper bits of its payload. Arrays
 * are converted by whatever vectors the CPU has, with the bits of the scalar
 * definitions (tests/base/number/test_dtype.c). */
#ifndef ZD_BASE_NUMBER_DTYPE_H
#define ZD_BASE_NUMBER_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16 };

static inline size_t dtype_bytes(enum dtype type)
{
    return type == DTYPE_FP32 ? 4 : 2;
}

const char *dtype_name(enum dtype type);             /* "fp32" */
const char *dtype_safetensors_name(enum dtype type); /* "F32" */

static inline float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t float_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN: keep it one */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float fp16_to_float(uint16_t x);
uint16_t float_to_fp16(float f);

/* out[i] = in[i] over `count` elements, in the calling thread; out and in may
 * be the same array only when the types are equal. */
void dtype_convert(
        void *out, enum dtype out_type, const void *in, enum dtype in_type,
        size_t count);
/* values[i] as it would read after being stored in `type`. */
void dtype_round(float *values, enum dtype type, size_t count);
/* Convert `count` floats into `type` at the front of their own memory. */
void dtype_narrow_in_place(float *values, enum dtype type, size_t count);

#endif
