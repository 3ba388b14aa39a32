#include "base/number/dtype.h"

#include "base/number/dtype_lanes.h"

#include <assert.h>

const char *dtype_name(enum dtype type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
    return names[type];
}

const char *dtype_safetensors_name(enum dtype type)
{
    static const char *const names[] = {
            "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"};
    return names[type];
}

float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t exponent = (x >> 10) & 0x1fu;
    uint32_t fraction = x & 0x3ffu;
    uint32_t bits;
    float f;

    if (exponent == 0x1f) { /* infinity, NaN (made quiet) */
        uint32_t quiet = fraction ? 0x400000u : 0;
        bits = sign | 0x7f800000u | quiet | (fraction << 13);
    } else if (exponent) {
        bits = sign | ((exponent + 112) << 23) | (fraction << 13);
    } else { /* subnormal: fraction * 2^-24 is exact in fp32 */
        f = (float)fraction * 0x1p-24f;
        memcpy(&bits, &f, sizeof bits);
        bits |= sign;
    }
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t float_to_fp16(float f)
{
    uint32_t bits, magnitude;
    uint16_t sign;
    memcpy(&bits, &f, sizeof bits);
    sign = (uint16_t)((bits >> 16) & 0x8000u);
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 puts the wanted
                                      bits at the end of the fraction, rounded
                                      to nearest even by the addition itself */
        float a;
        memcpy(&a, &magnitude, sizeof a);
        a += 0.5f;
        memcpy(&magnitude, &a, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

/* Floats at a time of a conversion through fp32: they stay in the first-level
 * cache. */
enum { BLOCK = 1024 };

static void widen(float *out, const uint16_t *in, enum dtype type, size_t count)
{
    const struct dtype_lanes *lanes = dtype_lanes();
    assert(!dtype_is_fp8(type));
    (type == DTYPE_BF16 ? lanes->widen_bf16
                        : lanes->widen_fp16)(out, in, count);
}

static void narrow(
        uint16_t *out, const float *in, enum dtype type, size_t count)
{
    const struct dtype_lanes *lanes = dtype_lanes();
    assert(!dtype_is_fp8(type));
    (type == DTYPE_BF16 ? lanes->narrow_bf16
                        : lanes->narrow_fp16)(out, in, count);
}

void dtype_convert(
        void *out, enum dtype out_type, const void *in, enum dtype in_type,
        size_t count)
{
    if (out_type == in_type) {
        if (out != in)
            memmove(out, in, count * dtype_bytes(out_type));
    } else if (out_type == DTYPE_FP32) {
        widen(out, in, in_type, count);
    } else if (in_type == DTYPE_FP32) {
        narrow(out, in, out_type, count);
    } else {
        float wide[BLOCK];
        for (size_t i = 0; i < count; i += BLOCK) {
            size_t n = count - i < BLOCK ? count - i : BLOCK;
            widen(wide, (const uint16_t *)in + i, in_type, n);
            narrow((uint16_t *)out + i, wide, out_type, n);
        }
    }
}

void dtype_round(float *values, enum dtype type, size_t count)
{
    uint16_t rounded[BLOCK];
    if (type == DTYPE_FP32)
        return;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        narrow(rounded, values + i, type, n);
        widen(values + i, rounded, type, n);
    }
}

/* Element i moves to bytes 2i.., which lie before every float not yet read. */
void dtype_narrow_in_place(float *values, enum dtype type, size_t count)
{
    uint16_t rounded[BLOCK];
    if (type == DTYPE_FP32)
        return;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        narrow(rounded, values + i, type, n);
        memcpy((char *)values + i * sizeof *rounded, rounded,
               n * sizeof *rounded);
    }
}
