/* Against what bitsandbytes' Python definition gives (tests/reference/
 * make_quantized.py), to the bit; then the fast paths against the plain. */
#include "kernels/quant/quant.h"

#include "base/file/safetensors.h"
#include "base/must.h"
#include "kernels/backend.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>

#include <math.h>

static struct st_file *file;

static void open_codes(void)
{
    char path[4096];
    ZD_PRINT(path, "%s/quant/codes.safetensors", getenv("ZEROD_FIXTURES"));
    MUST(st_open(path, &file));
}

static void close_codes(void)
{
    st_close(file);
}

TestSuite(kernels_quant, .init = open_codes, .fini = close_codes);

/* A tensor's bytes; the caller frees them. */
static void *get(const char *name, size_t *count)
{
    const struct st_tensor *t = st_find(file, name);
    cr_assert(t != NULL, "%s", name);
    void *data = malloc(t->bytes + 1);
    MUST(st_read_bytes(file, t, 0, t->bytes, data));
    if (count)
        *count = t->count;
    return data;
}

static void compare_encoded(enum quant_format format, size_t block)
{
    char name[64];
    size_t count, blocks, bytes;
    ZD_FREED float *x = get("x", &count);
    ZD_PRINT(name, "%s.%zu.codes", quant_format_name(format), block);
    ZD_FREED uint8_t *codes = get(name, &bytes);
    ZD_PRINT(name, "%s.%zu.absmax", quant_format_name(format), block);
    ZD_FREED float *absmax = get(name, &blocks);
    cr_assert(blocks == quant_parts(count, block) && count % 2 == 1);
    ZD_FREED uint8_t *our_codes = malloc(bytes);
    ZD_FREED float *our_absmax = malloc(blocks * sizeof *our_absmax);
    quant_encode4(our_codes, our_absmax, x, format, count, block);
    cr_expect(memcmp(absmax, our_absmax, blocks * 4) == 0, "%s", name);
    for (size_t i = 0; i < bytes; i++)
        cr_assert(
                codes[i] == our_codes[i], "%s: byte %zu is %02x, not %02x",
                name, i, our_codes[i], codes[i]);
}

Test(kernels_quant, codes_of_4_bits_match_bitsandbytes)
{
    static const size_t blocks[] = {32, 64, 128, 4096};
    for (int i = 0; i < 4; i++) {
        compare_encoded(QUANT_NF4, blocks[i]);
        compare_encoded(QUANT_FP4, blocks[i]);
    }
}

Test(kernels_quant, a_tensor_cut_at_blocks_has_the_same_codes)
{
    enum { CUT = 1920 };
    size_t count;
    ZD_FREED float *x = get("x", &count);
    size_t bytes = quant_parts(count, 2), blocks = quant_parts(count, 64);
    uint8_t *whole = malloc(2 * bytes), *parts = whole + bytes;
    ZD_FREED float *absmax = malloc(2 * blocks * sizeof *absmax);
    quant_encode4(whole, absmax, x, QUANT_NF4, count, 64);
    for (size_t at = 0; at < count; at += CUT)
        quant_encode4(
                parts + at / 2, absmax + blocks + at / 64, x + at, QUANT_NF4,
                count - at < CUT ? count - at : CUT, 64);
    cr_assert(memcmp(whole, parts, bytes) == 0);
    cr_assert(memcmp(absmax, absmax + blocks, blocks * 4) == 0);
    free(whole);
}

Test(kernels_quant, nested_codes_match_bitsandbytes)
{
    size_t count;
    ZD_FREED float *absmax = get("nested.absmax", &count);
    ZD_FREED float *offset = get("nested.offset", NULL);
    ZD_FREED float *scales = get("nested.scales", NULL);
    ZD_FREED float *back = get("nested.back", NULL);
    ZD_FREED uint8_t *codes = get("nested.codes", NULL);
    size_t scale_count = quant_parts(count, QUANT_NESTED_BLOCK);
    ZD_FREED uint8_t *our_codes = malloc(count);
    float *ours = malloc(count * sizeof *ours), map[256];
    cr_assert(count % QUANT_NESTED_BLOCK != 0);
    cr_assert(fabsf(quant_nested_offset(absmax, count) - *offset) <= 1e-6f);
    quant_nest(our_codes, ours, absmax, *offset, count);
    cr_assert(memcmp(our_codes, codes, count) == 0);
    cr_assert(memcmp(ours, scales, scale_count * 4) == 0);
    quant_dynamic_map(map);
    for (size_t first = 0; first < count; first += 100)
        quant_unnest(
                ours + first, codes + first, scales, map, *offset,
                QUANT_NESTED_BLOCK, first,
                count - first < 100 ? count - first : 100);
    cr_assert(memcmp(ours, back, count * 4) == 0);
    free(ours);
}

Test(kernels_quant, rows_of_int8_match_bitsandbytes)
{
    enum { COLUMNS = 67 };
    size_t count;
    float *x = get("int8.x", &count), *scb = get("int8.scb", NULL);
    float *back = get("int8.back", NULL), ours[COLUMNS];
    int8_t *codes = get("int8.codes", NULL), our_codes[COLUMNS];
    for (size_t at = 0, r = 0; at < count; at += COLUMNS, r++) {
        cr_assert(quant_encode8(our_codes, x + at, COLUMNS) == scb[r]);
        cr_assert(memcmp(our_codes, codes + at, COLUMNS) == 0, "row %zu", r);
        quant_decode(
                ours, QUANT_INT8, NULL, (uint8_t *)codes, at, scb[r], COLUMNS);
        cr_assert(memcmp(ours, back + at, sizeof ours) == 0, "row %zu", r);
    }
    float none[4] = {0}, tiny[4] = {0, 1e-45f, -1e-45f, 0};
    cr_assert(quant_encode8(our_codes, none, 4) == 0 && our_codes[3] == 0);
    cr_assert(quant_encode8(our_codes, tiny, 4) == 1e-45f);
    cr_assert(our_codes[1] == 127 && our_codes[2] == -127);
    free(x);
    free(scb);
    free(back);
    free(codes);
}

Test(kernels_quant, e4m3_matches_torch)
{
    size_t count;
    float *x = get("e4m3.x", &count), *values = get("e4m3.values", NULL);
    ZD_FREED uint8_t *codes = get("e4m3.codes", NULL);
    for (size_t i = 0; i < count; i++) {
        uint8_t code = float_to_fp8(x[i], DTYPE_E4M3);
        cr_assert(
                code == codes[i], "%a is %02x, not %02x", x[i], code, codes[i]);
    }
    for (int i = 0; i < 256; i++) {
        float value = fp8_to_float((uint8_t)i, DTYPE_E4M3);
        cr_assert(isnan(value) ? values[i] == -9999.0f : value == values[i]);
    }
    free(x);
    free(values);
}

Test(kernels_quant, a_tile_of_fp8_reaches_its_largest_and_zeros_stay)
{
    enum { ROWS = 3, COLUMNS = 300 };
    float x[ROWS * COLUMNS] = {0}, scales[3], back[COLUMNS];
    uint8_t codes[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (i % COLUMNS < 128 || i % COLUMNS >= 256)
            x[i] = sinf((float)i) * (i % COLUMNS < 128 ? 3 : 1e-5f);
    for (int t = 0; t < 3; t++)
        scales[t] = quant_encode_tile(
                codes + 128 * t, x + 128 * t, ROWS, t < 2 ? 128 : 44, COLUMNS);
    cr_assert(scales[1] == 0);
    for (int r = 0; r < ROWS; r++)
        for (int t = 0; t < 3; t++) {
            int n = t < 2 ? 128 : 44, at = r * COLUMNS + 128 * t;
            quant_decode(
                    back, QUANT_FP8, NULL, codes, (size_t)at, scales[t],
                    (size_t)n);
            for (int i = 0; i < n; i++)
                cr_assert(
                        fabsf(back[i] - x[at + i]) <=
                        fabsf(x[at + i]) / 16 + scales[t] * 0x1p-10f);
        }
}

/* --- fast ----------------------------------------------------------------- */

/* fp8 by scales whose products overflow, or are below the least normal. */
static void compare_scales(const char *isa, enum dtype type)
{
    enum { COUNT = 128 };
    static const float scales[] = {0.37f, 0x1p125f, 0x1p-130f};
    const struct cpu_backend *backend = kernels_backend(isa, type);
    const struct quant_matrix m = {
            .format = QUANT_FP8, .rows = 1, .columns = COUNT};
    uint8_t codes[COUNT];
    char got[COUNT * 4], want[COUNT * 4];
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        codes[i] = (uint8_t)(i * 167 % 127 | i % 2 << 7);
    for (int i = 0; backend && i < 3; i++) {
        MUST(backend->ops.dequantize(NULL, got, codes, &scales[i], &m));
        quant_decode(values, QUANT_FP8, NULL, codes, 0, scales[i], COUNT);
        dtype_convert(want, type, values, DTYPE_FP32, COUNT);
        cr_expect(
                memcmp(want, got, COUNT * dtype_bytes(type)) == 0,
                "%s %s fp8 by %g", isa, dtype_name(type), scales[i]);
    }
}

/* Wherever it lies: alone, at the end, and among numbers. */
static void check_none(const char *isa, enum dtype type)
{
    enum { COUNT = 150 };
    uint8_t codes[COUNT];
    char out[COUNT * 4];
    const float scales[] = {2, 2};
    const struct quant_matrix m = {
            .format = QUANT_FP8, .rows = 1, .columns = COUNT};
    float values[COUNT];
    const struct cpu_backend *backend = kernels_backend(isa, type);
    for (int at = 0; backend && at < COUNT; at++) {
        memset(codes, 0x38, sizeof codes);
        codes[at] = at % 2 ? 0x7f : 0xff;
        MUST(backend->ops.dequantize(NULL, out, codes, scales, &m));
        dtype_convert(values, DTYPE_FP32, out, type, COUNT);
        for (int i = 0; i < COUNT; i++)
            cr_assert(
                    i == at ? isnan(values[i]) : values[i] == 2, "%s %s: %d",
                    isa, dtype_name(type), i);
    }
}

Test(kernels_quant, nan_and_extreme_scales_of_fp8_in_every_path)
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    for (int i = 0; i < 3; i++)
        for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
            check_none(names[i], (enum dtype)type);
            compare_scales(names[i], (enum dtype)type);
        }
}
