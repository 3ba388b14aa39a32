#include "base/must.h"
#include "base/number/dtype.h"
#include "base/number/dtype_lanes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static float widen_bf16(uint16_t x)
{
    return bf16_to_float(x);
}

static uint16_t narrow_bf16(float f)
{
    return float_to_bf16(f);
}

static void check_round_trips(
        float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    for (uint32_t x = 0; x < 65536; x++) {
        float f = widen((uint16_t)x);
        uint16_t back = narrow(f);
        if (isnan(f))
            cr_assert(isnan(widen(back)));
        else
            cr_assert_eq(back, x, "%04x came back as %04x", x, back);
    }
}

Test(dtype, every_number_of_16_bits_survives_a_round_trip)
{
    check_round_trips(widen_bf16, narrow_bf16);
    check_round_trips(fp16_to_float, float_to_fp16);
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

/* Between each pair of neighbors: just below the middle, the middle, just
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

/* --- 8 bits --------------------------------------------------------------- */

static double fp8_by_definition(uint8_t code, enum dtype type)
{
    int fraction_bits = type == DTYPE_E5M2 ? 2 : 3,
        bias = 31 - 8 * fraction_bits;
    int exponent = (code & 0x7f) >> fraction_bits;
    double fraction = code & ((1 << fraction_bits) - 1);
    double value = exponent ? ldexp((1 << fraction_bits) + fraction,
                                    exponent - bias - fraction_bits)
                            : ldexp(fraction, 1 - bias - fraction_bits);
    if (type == DTYPE_E4M3 && (code & 0x7f) == 0x7f)
        value = NAN;
    if (type == DTYPE_E5M2 && exponent == 31)
        value = fraction > 0 ? NAN : INFINITY;
    return code & 0x80 ? -value : value;
}

/* The nearest of all numbers, of two the even code. */
static uint8_t nearest_fp8(float x, enum dtype type)
{
    int best = 0, most = type == DTYPE_E5M2 ? 0x7b : 0x7e;
    double distance = INFINITY, magnitude = fmin(fabs((double)x), 1e9);
    if (isnan(x))
        return 0x7f;
    for (int code = 0; code <= most; code++) {
        double away = fabs(fp8_by_definition((uint8_t)code, type) - magnitude);
        if (away < distance || (away == distance && code % 2 == 0))
            best = code, distance = away;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

/* Every bf16, among which are all numbers of 8 bits and all middles of two, and
 * the floats on either side of it. */
Test(dtype, every_fp8_code_and_its_rounding_match_the_definition)
{
    for (int type = DTYPE_E4M3; type <= DTYPE_E5M2; type++) {
        enum dtype of = (enum dtype)type;
        for (int code = 0; code < 256; code++) {
            float value = fp8_to_float((uint8_t)code, of);
            double want = fp8_by_definition((uint8_t)code, of);
            cr_assert(
                    isnan(want) ? isnan(value)
                                : (double)value == want &&
                                          !signbit(value) == (code < 0x80),
                    "%s: %02x is %g", dtype_name(of), code, (double)value);
        }
        for (uint32_t bits = 0; bits < 65536; bits++) {
            float x = bf16_to_float((uint16_t)bits);
            float near[] = {
                    x, nextafterf(x, 0), nextafterf(x, INFINITY),
                    nextafterf(x, -INFINITY)};
            for (int i = 0; i < 4; i++)
                cr_assert_eq(
                        float_to_fp8(near[i], of), nearest_fp8(near[i], of),
                        "%s: %a became %02x", dtype_name(of), (double)near[i],
                        float_to_fp8(near[i], of));
        }
    }
}

/* --- vectors: the bits of the scalar definitions ---------------------------
 */

static const char *const isas[] = {"base", "avx2"};

/* Floats whose rounding is of interest: around every value of a narrow type and
 * around every middle of two, with all kinds of NaN, and any others. */
static float *hard_floats(size_t *count_out)
{
    enum { NEAR = 8, RANDOM = 1 << 20 };
    float *out = malloc((65536 * NEAR * 2 + RANDOM) * sizeof *out);
    size_t count = 0;
    uint64_t seed = 1;
    for (uint32_t x = 0; x < 65536; x++) {
        uint32_t base[2] = {x << 16, 0};
        float half = fp16_to_float((uint16_t)x);
        memcpy(&base[1], &half, sizeof half);
        for (int k = 0; k < 2; k++) {
            uint32_t middle = base[k] + (k ? 0x1000u : 0x8000u);
            uint32_t bits[NEAR] = {base[k],  base[k] - 1,      base[k] + 1,
                                   middle,   middle - 1u,      middle + 1u,
                                   ~base[k], base[k] ^ 0x2aaau};
            memcpy(out + count, bits, sizeof bits);
            count += NEAR;
        }
    }
    for (int i = 0; i < RANDOM; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(seed >> 32);
        memcpy(out + count++, &bits, sizeof bits);
    }
    *count_out = count;
    return out;
}

static void check_narrow(
        dtype_narrow_fn *narrow, uint16_t (*define)(float), const float *in,
        size_t count, const char *name)
{
    ZD_FREED uint16_t *out = malloc(count * sizeof *out);
    narrow(out, in, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        cr_assert_eq(
                out[i], define(in[i]), "%s: %08x became %04x, not %04x", name,
                bits, out[i], define(in[i]));
    }
}

static void check_widen(
        dtype_widen_fn *widen, float (*define)(uint16_t), const char *name)
{
    enum { ALL = 65536 };
    uint16_t *in = malloc(ALL * sizeof *in);
    float *out = malloc(ALL * sizeof *out);
    for (uint32_t x = 0; x < ALL; x++)
        in[x] = (uint16_t)x;
    widen(out, in, ALL);
    for (uint32_t x = 0; x < ALL; x++) {
        float want = define(in[x]);
        cr_assert(
                memcmp(&out[x], &want, sizeof want) == 0,
                "%s: %04x became %a, not %a", name, x, (double)out[x],
                (double)want);
    }
    free(in), free(out);
}

Test(dtype, vectors_have_the_bits_of_the_definitions)
{
    size_t count;
    ZD_FREED float *in = hard_floats(&count);
    for (int i = 0; i < 2; i++) {
        const struct dtype_lanes *lanes = dtype_lanes_at(isas[i]);
        if (!lanes) /* this machine cannot run it */
            continue;
        check_widen(lanes->widen_bf16, widen_bf16, lanes->name);
        check_widen(lanes->widen_fp16, fp16_to_float, lanes->name);
        check_narrow(lanes->narrow_bf16, narrow_bf16, in, count, lanes->name);
        check_narrow(lanes->narrow_fp16, float_to_fp16, in, count, lanes->name);
    }
}

/* Every length up to three vectors, and nothing written behind the end. */
Test(dtype, vectors_end_where_they_should)
{
    enum { MOST = 50 };
    for (int i = 0; i < 2; i++) {
        const struct dtype_lanes *lanes = dtype_lanes_at(isas[i]);
        for (size_t n = 0; lanes && n < MOST; n++) {
            float in[MOST], wide[MOST + 1];
            uint16_t half[MOST + 1];
            for (size_t k = 0; k < MOST; k++)
                in[k] = 1.5f + (float)k;
            half[n] = 0xabcd, wide[n] = -7;
            lanes->narrow_fp16(half, in, n);
            lanes->widen_fp16(wide, half, n);
            cr_assert_arr_eq(wide, in, n * sizeof *in);
            lanes->narrow_bf16(half, in, n);
            lanes->widen_bf16(wide, half, n);
            cr_assert_arr_eq(wide, in, n * sizeof *in);
            cr_assert_eq(half[n], 0xabcd);
            cr_assert_eq(wide[n], -7);
        }
    }
}

Test(dtype, rounds_floats_where_they_lie)
{
    enum { COUNT = 2500 };
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_FP16};
    for (int t = 0; t < 2; t++) {
        float a[COUNT], b[COUNT];
        uint16_t half[COUNT];
        for (int i = 0; i < COUNT; i++)
            a[i] = b[i] = (float)i * 37.7f - 9999.1f;
        dtype_convert(half, types[t], a, DTYPE_FP32, COUNT);
        dtype_round(a, types[t], COUNT);
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(
                    a[i], types[t] == DTYPE_BF16 ? bf16_to_float(half[i])
                                                 : fp16_to_float(half[i]));
        dtype_narrow_in_place(b, types[t], COUNT);
        cr_assert_arr_eq(b, half, sizeof half);
    }
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
    cr_expect_eq(dtype_bytes(DTYPE_E5M2), 1);
    cr_expect_str_eq(dtype_safetensors_name(DTYPE_E4M3), "F8_E4M3");
}
