/* convert.h - the conversions of base/number/dtype.h without branches, for
 * loops that vectorise; the same bits. Private to optim. */
#ifndef ZD_OPTIM_CONVERT_H
#define ZD_OPTIM_CONVERT_H

#include "base/number/dtype.h"
#include "optim/isa.h"

INLINED float convert_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINED uint32_t convert_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

INLINED uint16_t convert_to_bf16(float x)
{
    uint32_t bits = convert_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* By masks: a compiler would put the arithmetic of a conditional expression
 * behind a branch, for fear of traps. */
INLINED uint32_t convert_select(bool condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = -(uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

INLINED float convert_from_fp16(uint16_t x)
{
    uint32_t magnitude = x & 0x7fffu, sign = (uint32_t)(x & 0x8000u) << 16;
    /* an exponent of all ones stays one; a subnormal is fraction * 2^-24 */
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t quiet = convert_select(magnitude > 0x7c00u, 0x400000u, 0);
    uint32_t special = (magnitude << 13) | 0x7f800000u | quiet;
    uint32_t small = convert_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = convert_select(magnitude >= 0x7c00u, special, normal);
    bits = convert_select(magnitude < 0x400u, small, bits);
    return convert_float(bits | sign);
}

INLINED uint16_t convert_to_fp16(float x)
{
    uint32_t bits = convert_bits(x);
    uint32_t magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
    /* below 2^-14: adding 0.5 leaves the wanted bits at the end */
    uint32_t small =
            convert_bits(convert_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal =
            (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    uint32_t half = convert_select(magnitude < 0x38800000u, small, normal);
    half = convert_select(magnitude >= 0x477ff000u, 0x7c00u, half);
    uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    half = convert_select(magnitude > 0x7f800000u, nan, half);
    return (uint16_t)(sign | half);
}

/* `count` values as fp32, and back. */
INLINED void convert_widen(
        enum dtype type, const void *in, size_t count, float *restrict out)
{
    const uint16_t *in16 = in;
    if (type == DTYPE_FP32)
        memcpy(out, in, count * sizeof *out);
    else if (type == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            out[i] = bf16_to_float(in16[i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = convert_from_fp16(in16[i]);
}

INLINED void convert_narrow(
        enum dtype type, const float *restrict in, size_t count, void *out)
{
    uint16_t *out16 = out;
    if (type == DTYPE_FP32)
        memcpy(out, in, count * sizeof *in);
    else if (type == DTYPE_BF16)
        for (size_t i = 0; i < count; i++)
            out16[i] = convert_to_bf16(in[i]);
    else
        for (size_t i = 0; i < count; i++)
            out16[i] = convert_to_fp16(in[i]);
}

#endif
