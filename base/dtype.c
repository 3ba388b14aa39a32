#include "base/dtype.h"

#include <assert.h>

const char *dtype_name(enum dtype type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    return names[type];
}

const char *dtype_safetensors_name(enum dtype type)
{
    static const char *const names[] = {"F32", "BF16", "F16"};
    return names[type];
}

float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t exponent = (x >> 10) & 0x1fu;
    uint32_t fraction = x & 0x3ffu;
    uint32_t bits;
    float f;

    if (exponent == 0x1f) { /* infinity, NaN */
        bits = sign | 0x7f800000u | (fraction << 13);
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
        return (uint16_t)(sign | 0x7e00u);
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

static float load(const void *in, enum dtype type, size_t i)
{
    switch (type) {
    case DTYPE_FP32:
        return ((const float *)in)[i];
    case DTYPE_BF16:
        return bf16_to_float(((const uint16_t *)in)[i]);
    case DTYPE_FP16:
        return fp16_to_float(((const uint16_t *)in)[i]);
    }
    return 0;
}

void dtype_convert(void *out, enum dtype out_type, const void *in,
        enum dtype in_type, size_t count)
{
    if (out_type == in_type) {
        if (out != in)
            memmove(out, in, count * dtype_bytes(out_type));
        return;
    }
    /* the two pairs that training meets all day, in loops that vectorise */
    if (out_type == DTYPE_BF16 && in_type == DTYPE_FP32) {
        uint16_t *o = out;
        const float *x = in;
        for (size_t i = 0; i < count; i++)
            o[i] = float_to_bf16(x[i]);
        return;
    }
    if (out_type == DTYPE_FP32 && in_type == DTYPE_BF16) {
        float *o = out;
        const uint16_t *x = in;
        for (size_t i = 0; i < count; i++)
            o[i] = bf16_to_float(x[i]);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float f = load(in, in_type, i);
        if (out_type == DTYPE_FP32)
            ((float *)out)[i] = f;
        else
            ((uint16_t *)out)[i] = out_type == DTYPE_BF16 ? float_to_bf16(f)
                                                          : float_to_fp16(f);
    }
}
