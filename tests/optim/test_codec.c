#include "optim/codec.h"
#include "optim/simd.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

/* How near to equally far from two entries counts as a tie, relative to y. */
#define TIE 2.5e-6

/* The map as bitsandbytes' Python makes it, and the numbers it means. */
static double exact[OPTIM_LANES][256];
static float bitsandbytes[OPTIM_LANES][256];

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* create_dynamic_map in double: for each decade the middles of equal bins
 * between 0.1 and 1; 0 and 1. */
static void make_exact(enum optim_lane lane)
{
    double *map = exact[lane];
    size_t count = 0;
    for (int i = 0; i < 7; i++) {
        int bins = lane == OPTIM_M ? 1 << i : 2 << i;
        for (int j = 0; j < bins; j++) {
            double x = pow(10, i - 6) * (0.1 + 0.9 * (j + 0.5) / bins);
            map[count++] = x;
            if (lane == OPTIM_M)
                map[count++] = -x;
        }
    }
    map[count++] = 0;
    map[count++] = 1;
    cr_assert_eq(count, 256);
    qsort(map, 256, sizeof *map, rising);
}

static void setup(void)
{
    FILE *f = fopen(ZD_FIXTURES "/optim/dynamic_maps.txt", "r");
    cr_assert(f != NULL, "no fixture");
    for (int code = 0; code < 256; code++)
        cr_assert_eq(
                fscanf(f, "%f %f", &bitsandbytes[OPTIM_M][code],
                       &bitsandbytes[OPTIM_V][code]),
                2);
    fclose(f);
    make_exact(OPTIM_M);
    make_exact(OPTIM_V);
}

TestSuite(codec, .init = setup);

Test(codec, the_entries_are_those_of_bitsandbytes)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        float map[256];
        for (int code = 0; code < 256; code++) {
            uint8_t one = (uint8_t)code;
            codec_decode_plain((enum optim_lane)lane, &one, 1, 1, &map[code]);
        }
        for (int code = 0; code < 256; code++) {
            double theirs = (double)bitsandbytes[lane][code];
            double off = fabs((double)map[code] - theirs);
            cr_assert(
                    off <= 1e-6 * fabs(theirs),
                    "lane %d code %d: %.9g, not %.9g", lane, code,
                    (double)map[code], theirs);
        }
        cr_expect_eq(map[255], 1.0f);
        cr_expect_eq(map[lane == OPTIM_M ? 127 : 0], 0.0f);
    }
}

/* The nearest of all entries by trying them, and how much farther `code` is. */
static double farther(const double *map, double y, int code)
{
    double best = INFINITY;
    for (int k = 0; k < 256; k++)
        best = fmin(best, fabs(y - map[k]));
    return fabs(y - map[code]) - best;
}

/* values[0] is the scale: every code against all entries of both maps. */
static void check_nearest(
        enum optim_lane lane, const float *values, size_t count)
{
    uint8_t codes[OPTIM_QBLOCK];
    float scale;
    codec_encode_plain(lane, values, count, codes, &scale);
    cr_assert_eq(scale, fabsf(values[0]));
    for (size_t i = 0; i < count; i++) {
        double y = (double)values[i] / (double)scale;
        int code = codes[i];
        double off = farther(exact[lane], y, code);
        bool guarded = lane == OPTIM_V && code == 1 && values[i] > 0;
        cr_assert(
                guarded || off <= TIE * fabs(y), "lane %d: %a / %a is code %d",
                lane, (double)values[i], (double)scale, code);
        if (lane == OPTIM_V)
            cr_assert_eq(code == 0, values[i] == 0);
        else
            cr_assert(code == 127 || (code > 127) == (values[i] > 0));
    }
}

/* Fills a qblock from a bit pattern on; a step of some thousands of ulps walks
 * through all binades. */
static uint32_t fill(
        enum optim_lane lane, float scale, uint32_t bits, uint32_t stride,
        float *values)
{
    values[0] = scale;
    for (size_t i = 1; i < OPTIM_QBLOCK; i++, bits += stride) {
        float y;
        uint32_t within = bits <= 0x3f800000u ? bits : 0x3f800000u;
        memcpy(&y, &within, sizeof y);
        values[i] = (lane == OPTIM_M && (i & 1) ? -y : y) * fabsf(scale);
    }
    return bits;
}

static void walk(enum optim_lane lane, float scale, uint32_t stride)
{
    float values[OPTIM_QBLOCK];
    for (uint32_t bits = 0x30000000u; bits < 0x3f800000u;) {
        bits = fill(lane, scale, bits, stride, values);
        check_nearest(lane, values, OPTIM_QBLOCK);
    }
}

Test(codec, a_code_is_the_nearest_entry)
{
    static const float scales[] = {1.0f, 3.7e-4f, 2e-30f, 1e30f};
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            walk((enum optim_lane)lane, scales[k], k ? 9973 : 2003);
    walk(OPTIM_M, -1.0f, 9973);
}

/* Values a few ulps around every middle between two entries. */
Test(codec, a_code_is_the_nearest_entry_around_every_threshold)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (int code = lane == OPTIM_V; code < 255; code++) {
            const double *map = exact[lane];
            float values[1 + 40] = {1.0f};
            float y = (float)((map[code] + map[code + 1]) / 2);
            for (int i = 0; i < 20; i++)
                y = nextafterf(y, -2);
            for (int i = 0; i < 40; i++, y = nextafterf(y, 2))
                values[1 + i] = y;
            check_nearest((enum optim_lane)lane, values, 41);
        }
}

Test(codec, encoding_what_was_decoded_gives_the_code)
{
    static const float scales[] = {1.0f,  0x1p-149f, 3e-40f, 1e-25f,
                                   7e-9f, 12345.6f,  3e38f};
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (size_t k = 2; k < sizeof scales / sizeof *scales; k++) {
            uint8_t codes[OPTIM_QBLOCK], again[OPTIM_QBLOCK];
            float values[OPTIM_QBLOCK], scale;
            for (int code = 0; code < 256; code++)
                codes[code] = (uint8_t)code;
            codec_decode_plain(
                    (enum optim_lane)lane, codes, scales[k], 256, values);
            codec_encode_plain(
                    (enum optim_lane)lane, values, 256, again, &scale);
            cr_assert_eq(scale, scales[k], "%a", (double)scale);
            for (int code = 0; code < 256; code++) /* 3e-40 has few bits */
                if (k > 2 || code == 255)
                    cr_assert_eq(again[code], code, "%d", again[code]);
        }
}

Test(codec, zero_stays_zero)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        float values[OPTIM_QBLOCK] = {0, -0.0f}, scale;
        uint8_t codes[OPTIM_QBLOCK];
        values[1] = lane == OPTIM_M ? -0.0f : 0.0f;
        codec_encode_plain((enum optim_lane)lane, values, 256, codes, &scale);
        cr_expect_eq(scale, 0.0f);
        codec_decode_plain((enum optim_lane)lane, codes, scale, 256, values);
        for (int i = 0; i < 256; i++)
            cr_assert_eq(values[i], 0.0f);
    }
}

Test(codec, a_value_that_is_not_finite_stays_not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++)
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            float values[OPTIM_QBLOCK] = {1, 2, bad[k]}, scale;
            uint8_t codes[OPTIM_QBLOCK];
            codec_encode_plain(
                    (enum optim_lane)lane, values, 256, codes, &scale);
            cr_expect(!isfinite(scale));
            codec_decode_plain(
                    (enum optim_lane)lane, codes, scale, 256, values);
            for (int i = 0; i < 256; i++)
                cr_assert(isnan(values[i]));
        }
}

/* --- vector code ---------------------------------------------------------- */

static void check_decode(
        const struct simd_code *code, enum optim_lane lane,
        const uint8_t *codes, float scale)
{
    float plain[OPTIM_QBLOCK], fast[OPTIM_QBLOCK];
    codec_decode_plain(lane, codes, scale, OPTIM_QBLOCK, plain);
    code->decode(lane, codes, scale, fast);
    cr_assert_arr_eq(
            plain, fast, sizeof plain, "lane %d, scale %a", lane,
            (double)scale);
}

/* Encodes by both, and decodes what came out. */
static void check_same(
        const struct simd_code *code, enum optim_lane lane, const float *values)
{
    uint8_t plain[OPTIM_QBLOCK], fast[OPTIM_QBLOCK];
    float plain_scale, fast_scale;
    codec_encode_plain(lane, values, OPTIM_QBLOCK, plain, &plain_scale);
    code->encode(lane, values, fast, &fast_scale);
    cr_assert_arr_eq(&plain_scale, &fast_scale, sizeof plain_scale);
    for (int i = 0; i < OPTIM_QBLOCK; i++)
        cr_assert_eq(
                plain[i], fast[i], "lane %d, %a under %a: %d, not %d", lane,
                (double)values[i], (double)plain_scale, fast[i], plain[i]);
    check_decode(code, lane, plain, plain_scale);
}

static const float odd_scales[] = {1.0f,      3.7e-4f,   2e-30f,    1e30f,
                                   0x1p-80f,  0x1p28f,   0x1.8p28f, 0x1.fp-81f,
                                   0x1p-126f, 0x1p-149f, 3e-40f,    3e38f};
enum { ODD_SCALES = sizeof odd_scales / sizeof *odd_scales };

static void check_walks(const struct simd_code *code, enum optim_lane lane)
{
    float values[OPTIM_QBLOCK];
    for (int k = 0; k < ODD_SCALES; k++)
        for (uint32_t bits = 0; bits < 0x3f800000u;) {
            float scale =
                    lane == OPTIM_M && k % 2 ? -odd_scales[k] : odd_scales[k];
            bits = fill(lane, scale, bits, k ? 99991 : 499, values);
            check_same(code, lane, values);
        }
}

static void check_thresholds(const struct simd_code *code, enum optim_lane lane)
{
    const double *map = exact[lane];
    for (int k = 0; k < ODD_SCALES; k++)
        for (int entry = 0; entry < 255; entry++) {
            float values[OPTIM_QBLOCK] = {odd_scales[k]};
            float y = (float)((map[entry] + map[entry + 1]) / 2);
            if (lane == OPTIM_V && entry == 0)
                y = 3e-7f;
            y *= odd_scales[k];
            for (int i = 0; i < 127; i++)
                y = nextafterf(y, -INFINITY);
            for (int i = 1; i < 255; i++, y = nextafterf(y, INFINITY))
                values[i] = lane == OPTIM_V ? fabsf(y) : y;
            check_same(code, lane, values);
        }
}

static void check_codes(const struct simd_code *code, enum optim_lane lane)
{
    static const float more[] = {0, INFINITY, NAN};
    uint8_t codes[OPTIM_QBLOCK];
    for (int c = 0; c < 256; c++)
        codes[c] = (uint8_t)c;
    for (int k = 0; k < ODD_SCALES; k++)
        check_decode(code, lane, codes, odd_scales[k]);
    for (int k = 0; k < 3; k++)
        check_decode(code, lane, codes, more[k]);
}

static void check_oddities(const struct simd_code *code, enum optim_lane lane)
{
    static const float odd[] = {NAN,       INFINITY, 0x1p-149f, 1e-45f, -0.0f,
                                0x1p-126f, 3e38f,    0x1p-60f,  1e-12f, -1e-12f,
                                -INFINITY, -3e38f,   -0x1p-149f};
    float values[OPTIM_QBLOCK] = {0};
    check_same(code, lane, values);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            memset(values, 0, sizeof values);
            values[17 * k] = lane == OPTIM_V ? fabsf(odd[k]) : odd[k];
            values[255] = lane == OPTIM_V ? fabsf(odd[i]) : odd[i];
            values[63] = 1e-3f;
            check_same(code, lane, values);
        }
}

static void check_isa(enum isa isa)
{
    const struct simd_code *code = simd_code_of(isa);
    if (!code || !isa_runs(isa))
        cr_skip("no %s here", isa_name(isa));
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        check_codes(code, (enum optim_lane)lane);
        check_oddities(code, (enum optim_lane)lane);
        check_thresholds(code, (enum optim_lane)lane);
        check_walks(code, (enum optim_lane)lane);
    }
}

Test(codec, avx2_has_the_bits_of_the_definition)
{
    check_isa(ISA_AVX2);
}

Test(codec, avx512_has_the_bits_of_the_definition)
{
    check_isa(ISA_AVX512);
}
