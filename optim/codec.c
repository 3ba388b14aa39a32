#include "optim/codec.h"

#include "optim/codec_tables.h"
#include "optim/simd.h"

#include <math.h>
#include <string.h>

static const struct map {
    float a[CODEC_CLASSES], b[CODEC_CLASSES], d[CODEC_CLASSES];
    float t[CODEC_CLASSES];
} maps[OPTIM_LANES] = {CODEC_ROWS};

/* A power of two that brings values and scale into the range of exact
 * arithmetic (CODEC_TAME_MIN). */
static float taming(float scale)
{
    if (scale < CODEC_TAME_MIN)
        return 0x1p100f;
    return scale > CODEC_TAME_MAX ? 0x1p-100f : 1.0f;
}

/* The largest magnitude; of what is not finite, that with the largest bits. */
static float scale_of(enum optim_lane lane, const float *values, size_t count)
{
    uint32_t mask = lane == OPTIM_M ? 0x7fffffffu : 0xffffffffu;
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= mask;
        largest = bits > largest ? bits : largest;
    }
    float scale;
    memcpy(&scale, &largest, sizeof scale);
    return scale;
}

/* The rank of a magnitude on its side of the map: its f. */
static int rank_of(enum optim_lane lane, float y)
{
    const struct map *map = &maps[lane];
    int class = 0;
    if (lane == OPTIM_V && y < CODEC_V_LEAST)
        y = CODEC_V_LEAST;
    for (int k = 0; k < CODEC_CLASSES - 1; k++)
        class += y >= map->t[k];
    if (class == 0)
        return 0;
    float f = fmaf(y, map->d[class], CODEC_START);
    f = f < CODEC_LIMIT ? f : CODEC_LIMIT;
    return (int)(f * (float)(1 << (lane == OPTIM_M ? class - 1 : class)));
}

static uint8_t encode(enum optim_lane lane, float x, float y)
{
    int rank = rank_of(lane, fabsf(y));
    if (lane == OPTIM_V)
        return (uint8_t)(x > 0 ? rank - 1 : 0);
    if (signbit(y))
        return (uint8_t)(127 - (rank < 127 ? rank : 127));
    return (uint8_t)(127 + rank);
}

void codec_encode_plain(
        enum optim_lane lane, const float *values, size_t count, uint8_t *codes,
        float *scale_out)
{
    float scale = scale_of(lane, values, count);
    *scale_out = scale;
    if (scale == 0 || !isfinite(scale)) {
        memset(codes, lane == OPTIM_M ? 127 : 0, count);
        return;
    }
    float power = taming(scale);
    float inverse = 1.0f / (scale * power);
    for (size_t i = 0; i < count; i++)
        codes[i] = encode(lane, values[i], values[i] * power * inverse);
}

/* The value of code c under a tame scale. */
static float decode(enum optim_lane lane, int code, float scale)
{
    const struct map *map = &maps[lane];
    float f = (float)(lane == OPTIM_M ? code - 127 : code + 1);
    int class = 0;
    for (int rank = (int)fabsf(f); rank > 0; rank /= 2)
        class ++;
    if (lane == OPTIM_V)
        class --;
    return fmaf(
            map->a[class] * scale, f,
            copysignf(1, f) * (map->b[class] * scale));
}

void codec_decode_plain(
        enum optim_lane lane, const uint8_t *codes, float scale, size_t count,
        float *values)
{
    float power = taming(scale);
    for (size_t i = 0; i < count; i++) {
        float x = decode(lane, codes[i], scale * power);
        values[i] = isfinite(scale) ? x / power : NAN;
    }
}

/* --- the fastest code ----------------------------------------------------- */

extern const struct simd_code simd_avx2, simd_avx512;

const struct simd_code *simd_code_of(enum isa isa)
{
    static const struct simd_code *const all[ISA_COUNT] = {
#if defined(__x86_64__)
        [ISA_AVX2] = &simd_avx2,
        [ISA_AVX512] = &simd_avx512
#endif
    };
    return all[isa];
}

static void codec_encode(
        enum optim_lane lane, const float *values, size_t count, uint8_t *codes,
        float *scale)
{
    const struct simd_code *code = simd_code_of(isa_best());
    if (code && count == OPTIM_QBLOCK)
        code->encode(lane, values, codes, scale);
    else
        codec_encode_plain(lane, values, count, codes, scale);
}

static void codec_decode(
        enum optim_lane lane, const uint8_t *codes, float scale, size_t count,
        float *values)
{
    const struct simd_code *code = simd_code_of(isa_best());
    if (code && count == OPTIM_QBLOCK)
        code->decode(lane, codes, scale, values);
    else
        codec_decode_plain(lane, codes, scale, count, values);
}

/* --- lanes -----------------------------------------------------------------
 */

size_t optim_lane_bytes(enum optim_format format, size_t count)
{
    static const size_t bytes[] = {
            [OPTIM_FP32] = 4,
            [OPTIM_BF16] = 2,
            [OPTIM_8BIT] = 1,
            [OPTIM_BLOCKS] = 0};
    return count * bytes[format];
}

size_t optim_scale_count(enum optim_format format, size_t count)
{
    return format == OPTIM_8BIT ? (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK : 0;
}

enum zd_status optim_lane_clear(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count)
{
    uint8_t code = 0;
    float nothing = 0, scale = 0;
    if (format == OPTIM_8BIT)
        codec_encode_plain(lane, &nothing, 1, &code, &scale);
    memset(values, code, optim_lane_bytes(format, count));
    for (size_t i = 0; i < optim_scale_count(format, count); i++)
        scales[i] = scale;
    return ZD_OK;
}

void optim_lane_read(
        enum optim_lane lane, enum optim_format format, const void *values,
        const float *scales, size_t count, float *out)
{
    if (format == OPTIM_FP32)
        memcpy(out, values, count * sizeof *out);
    else if (format == OPTIM_BF16)
        dtype_convert(out, DTYPE_FP32, values, DTYPE_BF16, count);
    else if (format == OPTIM_8BIT)
        for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
            size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
            codec_decode(
                    lane, (const uint8_t *)values + at,
                    scales[at / OPTIM_QBLOCK], n, out + at);
        }
}

void optim_lane_write(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count, const float *in)
{
    if (format == OPTIM_FP32)
        memcpy(values, in, count * sizeof *in);
    else if (format == OPTIM_BF16)
        dtype_convert(values, DTYPE_BF16, in, DTYPE_FP32, count);
    else if (format == OPTIM_8BIT)
        for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
            size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
            codec_encode(
                    lane, in + at, n, (uint8_t *)values + at,
                    &scales[at / OPTIM_QBLOCK]);
        }
}
