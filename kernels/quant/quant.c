/* quant.c - the definitions: plain loops. */
#include "kernels/quant/quant.h"

#include "kernels/quant/quant_tables.h"
#include "kernels/quant/quant_values.h"

#include <math.h>
#include <string.h>

const char *quant_format_name(enum quant_format format)
{
    static const char *const names[] = {"nf4", "fp4", "int8", "fp8"};
    return names[format];
}

bool quant_format_of_name(const char *name, enum quant_format *format_out)
{
    for (int format = QUANT_NF4; format <= QUANT_FP8; format++) {
        *format_out = (enum quant_format)format;
        if (strcmp(name, quant_format_name(*format_out)) == 0)
            return true;
    }
    return false;
}

bool quant_block_is_legal(int64_t block)
{
    return block >= QUANT_BLOCK_MIN && block <= QUANT_BLOCK_MAX &&
           (block & (block - 1)) == 0;
}

void quant_values(enum quant_format format, float values[16])
{
    memcpy(values, format == QUANT_NF4 ? nf4_values : fp4_values,
           16 * sizeof *values);
}

/* 127 entries below 0, 0, the same above it, and 1. */
void quant_dynamic_map(float values[256])
{
    for (int i = 0; i < 127; i++) {
        values[126 - i] = -dynamic_values[i];
        values[128 + i] = dynamic_values[i];
    }
    values[127] = 0;
    values[255] = 1;
}

/* --- quantizing ----------------------------------------------------------- */

static float largest_magnitude(const float *x, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static float clamped(float x)
{
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* How x is scaled by its block: times the reciprocal, or divided. */
struct scaling {
    float by, over;
};

static struct scaling scaling_of(float absmax, bool is_full)
{
    const float least = 1e-38f;
    float safe = absmax > least ? absmax : least;
    return is_full ? (struct scaling){1.0f / safe, 1}
                   : (struct scaling){1, safe};
}

static float scaled(struct scaling scaling, float x)
{
    return clamped(x * scaling.by / scaling.over);
}

/* The stored scale: never 0 for a short block. */
static float stored(float absmax, bool is_full)
{
    return is_full || absmax > 1e-38f ? absmax : 1e-38f;
}

static uint8_t code4(const float bounds[15], const uint8_t *order, float x)
{
    unsigned rank = 0;
    for (int i = 0; i < 15; i++)
        rank += x > bounds[i];
    return order ? order[rank] : (uint8_t)rank;
}

static void encode_block(
        uint8_t *codes, const float *x, enum quant_format format,
        struct scaling scaling, size_t count)
{
    const float *bounds = format == QUANT_NF4 ? nf4_bounds : fp4_bounds;
    const uint8_t *order = format == QUANT_NF4 ? NULL : fp4_order;
    for (size_t i = 0; i < count; i += 2) {
        uint8_t high = code4(bounds, order, scaled(scaling, x[i]));
        /* an odd count is padded with a zero */
        float next = i + 1 < count ? scaled(scaling, x[i + 1]) : 0;
        codes[i / 2] = (uint8_t)(high << 4 | code4(bounds, order, next));
    }
}

void quant_encode4(
        uint8_t *codes, float *absmax, const float *x, enum quant_format format,
        size_t count, size_t block)
{
    for (size_t at = 0, b = 0; at < count; at += block, b++) {
        bool is_full = count - at >= block;
        size_t n = is_full ? block : count - at;
        float most = largest_magnitude(x + at, n);
        absmax[b] = stored(most, is_full);
        encode_block(
                codes + at / 2, x + at, format, scaling_of(most, is_full), n);
    }
}

float quant_nested_offset(const float *absmax, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += absmax[i];
    return (float)(sum / (double)count);
}

/* The number of entries whose upper bound is below x: of two equally near
 * entries the lower one. */
static uint8_t code_of_map(const float bounds[255], float x)
{
    int first = 0, end = 255;
    while (first < end) {
        int middle = (first + end) / 2;
        if (x > bounds[middle])
            first = middle + 1;
        else
            end = middle;
    }
    return (uint8_t)first;
}

void quant_nest(
        uint8_t *codes, float *scales, const float *absmax, float offset,
        size_t count)
{
    float map[256], bounds[255], x[QUANT_NESTED_BLOCK];
    quant_dynamic_map(map);
    for (int i = 0; i < 255; i++)
        bounds[i] = (map[i] + map[i + 1]) / 2;
    for (size_t at = 0; at < count; at += QUANT_NESTED_BLOCK) {
        bool is_full = count - at >= QUANT_NESTED_BLOCK;
        size_t n = is_full ? QUANT_NESTED_BLOCK : count - at;
        for (size_t i = 0; i < n; i++)
            x[i] = absmax[at + i] - offset;
        float most = largest_magnitude(x, n);
        struct scaling scaling = scaling_of(most, is_full);
        scales[at / QUANT_NESTED_BLOCK] = stored(most, is_full);
        for (size_t i = 0; i < n; i++)
            codes[at + i] = code_of_map(bounds, scaled(scaling, x[i]));
    }
}

float quant_encode8(int8_t *codes, const float *x, size_t columns)
{
    float scb = largest_magnitude(x, columns);
    float by = scb > 0 ? 1.0f / scb * 127.0f : 0;
    for (size_t i = 0; i < columns; i++) {
        /* in a row of denormals the reciprocal is infinite */
        float q = isfinite(by) ? rintf(x[i] * by) : rintf(x[i] / scb * 127);
        codes[i] = (int8_t)(q < -127 ? -127 : q > 127 ? 127 : q);
    }
    return scb;
}

float quant_encode_tile(
        uint8_t *codes, const float *x, size_t rows, size_t columns,
        size_t stride)
{
    float most = 0;
    for (size_t r = 0; r < rows; r++) {
        float row = largest_magnitude(x + r * stride, columns);
        most = row > most ? row : most;
    }
    float scale = most / 448;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = r * stride; i < r * stride + columns; i++)
            codes[i] = scale > 0 ? float_to_fp8(x[i] / scale, DTYPE_E4M3) : 0;
    return scale;
}

/* --- and back ------------------------------------------------------------- */

void quant_unnest(
        float *absmax, const uint8_t *codes, const float *scales,
        const float map[256], float offset, size_t nested_block, size_t first,
        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float scaled_entry = map[codes[i]] * scales[(first + i) / nested_block];
        absmax[i] = scaled_entry + offset;
    }
}

void quant_decode(
        float *out, enum quant_format format, const float *values,
        const uint8_t *codes, size_t at, float scale, size_t count)
{
    size_t end = at + count;
    for (size_t i = at; i < end && format == QUANT_INT8; i++)
        *out++ = (float)(int8_t)codes[i] * scale * QUANT_BY_127;
    for (size_t i = at; i < end && format == QUANT_FP8; i++)
        *out++ = fp8_to_float(codes[i], DTYPE_E4M3) * scale;
    for (size_t i = at; i < end && format <= QUANT_FP4; i++)
        *out++ = values[i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4] * scale;
}
