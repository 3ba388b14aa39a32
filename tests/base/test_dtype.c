#include "base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>

Test(dtype, every_bf16_survives_a_round_trip)
{
    for (uint32_t x = 0; x < 65536; x++) {
        float f = bf16_to_float((uint16_t)x);
        uint16_t back = float_to_bf16(f);
        if (isnan(f))
            cr_assert(isnan(bf16_to_float(back)));
        else
            cr_assert_eq(back, x, "%04x came back as %04x", x, back);
    }
}

Test(dtype, every_fp16_survives_a_round_trip)
{
    for (uint32_t x = 0; x < 65536; x++) {
        float f = fp16_to_float((uint16_t)x);
        uint16_t back = float_to_fp16(f);
        if (isnan(f))
            cr_assert(isnan(fp16_to_float(back)));
        else
            cr_assert_eq(back, x, "%04x came back as %04x", x, back);
    }
}

static float fp16_by_definition(uint16_t x)
{
    int exponent = (x >> 10) & 31;
    double fraction = x & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return (float)(x & 0x8000 ? -value : value);
}

Test(dtype, every_fp16_has_the_value_of_its_definition)
{
    for (uint32_t x = 0; x < 65536; x++) {
        float f = fp16_to_float((uint16_t)x),
              want = fp16_by_definition((uint16_t)x);
        if (isnan(want))
            cr_assert(isnan(f));
        else
            cr_assert_eq(f, want);
    }
}

/* Between each pair of neighbours: just below the middle, the middle, just
 * above. */
static void check_rounding(
        float (*widen)(uint16_t), uint16_t (*narrow)(float), uint16_t largest)
{
    for (uint16_t x = 0; x < largest; x++) {
        float low = widen(x), high = widen((uint16_t)(x + 1));
        float middle = (float)(((double)low + high) / 2);
        uint16_t even = x % 2 ? (uint16_t)(x + 1) : x;
        cr_assert_eq(narrow(middle), even);
        cr_assert_eq(narrow(nextafterf(middle, -1)), x);
        cr_assert_eq(narrow(nextafterf(middle, INFINITY)), x + 1);
        cr_assert_eq(narrow(-middle), even | 0x8000);
    }
}

static float widen_bf16(uint16_t x)
{
    return bf16_to_float(x);
}

static uint16_t narrow_bf16(float f)
{
    return float_to_bf16(f);
}

Test(dtype, rounds_to_nearest_even_once)
{
    check_rounding(widen_bf16, narrow_bf16, 0x7f7f);
    check_rounding(fp16_to_float, float_to_fp16, 0x7bff);
}

Test(dtype, overflow_is_infinite_and_nan_stays_nan)
{
    cr_expect_eq(float_to_fp16(65519.996f), 0x7bff);
    cr_expect_eq(float_to_fp16(65520.0f), 0x7c00);
    cr_expect_eq(float_to_fp16(-1e30f), 0xfc00);
    cr_expect_eq(float_to_bf16(3.4e38f), 0x7f80);
    uint32_t payload = 0x7f800001; /* only the lowest bit says it is NaN */
    float nan_low;
    memcpy(&nan_low, &payload, sizeof nan_low);
    cr_expect(isnan(bf16_to_float(float_to_bf16(nan_low))));
    cr_expect(isnan(fp16_to_float(float_to_fp16(nan_low))));
}

Test(dtype, converts_arrays_between_all_types)
{
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    /* values that all three types hold exactly */
    const float values[] = {0, -0.0f, 1, -1.5f, 0.25f, 96, -0.0078125f};
    enum { COUNT = sizeof values / sizeof values[0] };
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            float first[COUNT], second[COUNT], back[COUNT];
            dtype_convert(first, types[a], values, DTYPE_FP32, COUNT);
            dtype_convert(second, types[b], first, types[a], COUNT);
            dtype_convert(back, DTYPE_FP32, second, types[b], COUNT);
            cr_expect_arr_eq(back, values, sizeof values);
        }
    cr_expect_str_eq(dtype_name(DTYPE_BF16), "bf16");
    cr_expect_str_eq(dtype_safetensors_name(DTYPE_FP16), "F16");
    cr_expect_eq(dtype_bytes(DTYPE_FP32), 4);
    cr_expect_eq(dtype_bytes(DTYPE_BF16), 2);
}
