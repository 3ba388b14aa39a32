/* dtype.h - element types, their sizes, and exact scalar conversions.
 *
 * bf16 is the upper half of a float; fp16 is IEEE binary16. Conversions to a
 * narrower type round to nearest even, once; what is too large becomes
 * infinite; NaN stays NaN, quiet, with the upper bits of its payload. Arrays
 * are converted with the CPU's vector instructions, to the same bits as the
 * scalar definitions (tests/base/number/test_dtype.c).
 *
 *   E4M3  sign, 4 bits of exponent (bias 7), 3 of fraction; no infinity, NaN
 *         is 0x7f or 0xff; largest 448, least normal 2^-6, steps of 2^-9 below
 *   E5M2  the upper byte of fp16: infinities and NaN; largest 57344, least
 *         normal 2^-14, steps of 2^-16 below
 * Conversions to these saturate, infinity too, and every NaN becomes 0x7f: as
 * cvt.rn.satfinite of PTX. Source: Micikevicius et al. 2022, arXiv:2209.05433.
 * dtype_convert does not take arrays of codes: they have scales
 * (kernels/fp8). */
#pragma once

#include "base/number/host_device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16, DTYPE_E4M3, DTYPE_E5M2 };

static inline bool dtype_is_fp8(enum dtype type)
{
    return type >= DTYPE_E4M3;
}

static inline size_t dtype_bytes(enum dtype type)
{
    return type == DTYPE_FP32 ? 4 : dtype_is_fp8(type) ? 1 : 2;
}

const char *dtype_name(enum dtype type);             /* "fp32" */
const char *dtype_safetensors_name(enum dtype type); /* "F32" */
const char *dtype_torch_name(enum dtype type);       /* "float32" */
/* Which of fp32, bf16 and fp16 has this name according to `name_of`; false:
 * none. `name` may be NULL. */
bool dtype_find(
        const char *(*name_of)(enum dtype type), const char *name,
        enum dtype *type_out);

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

static inline ZD_HOST_DEVICE float fp8_largest(enum dtype type)
{
    return type == DTYPE_E5M2 ? 57344.0f : 448.0f;
}

/* The bits of a code, shifted to a float's exponent and fraction, read as its
 * value times 2^-120 (E5M2: 2^-112), also when it is subnormal. */
static inline ZD_HOST_DEVICE float fp8_to_float(uint8_t code, enum dtype type)
{
    bool is_e5m2 = type == DTYPE_E5M2;
    uint32_t magnitude = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t bits = magnitude << (is_e5m2 ? 21 : 20);
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= is_e5m2 ? 0x1p112f : 0x1p120f;
    memcpy(&bits, &value, sizeof bits);
    if (magnitude > (is_e5m2 ? 0x7cu : 0x7eu))
        bits = 0x7fc00000u;
    else if (is_e5m2 && magnitude == 0x7cu)
        bits = 0x7f800000u;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline ZD_HOST_DEVICE uint8_t float_to_fp8(float x, enum dtype type)
{
    bool is_e5m2 = type == DTYPE_E5M2;
    const uint32_t shift = is_e5m2 ? 21 : 20;
    const uint32_t most = is_e5m2 ? 0x47600000u : 0x43e00000u;
    const uint32_t least = is_e5m2 ? 0x38800000u : 0x3c800000u; /* normal */
    uint32_t bits, magnitude;
    memcpy(&bits, &x, sizeof bits);
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7f;
    magnitude = magnitude < most ? magnitude : most;
    if (magnitude < least) {
        /* the sum has the codes' spacing, so adding rounds to it */
        float sum;
        memcpy(&sum, &magnitude, sizeof sum);
        sum += is_e5m2 ? 0x1p7f : 0x1p14f;
        memcpy(&magnitude, &sum, sizeof magnitude);
        magnitude &= 0xffu;
    } else {
        magnitude += (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u);
        magnitude = (magnitude - (least - 0x800000u)) >> shift;
    }
    return (uint8_t)((bits >> 24 & 0x80u) | magnitude);
}

/* out[i] = in[i] over `count` elements, in the calling thread; out and in may
 * be the same array only when the types are equal. */
void dtype_convert(
        void *out, enum dtype out_type, const void *in, enum dtype in_type,
        size_t count);
/* values[i] as it would read after being stored in `type`. */
void dtype_round(float *values, enum dtype type, size_t count);
/* Convert `count` floats into `type` at the front of their own memory. */
void dtype_narrow_in_place(float *values, enum dtype type, size_t count);
