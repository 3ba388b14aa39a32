/* arrays.h - arrays of a compute type with random contents, for kernel tests.
 * The caller frees them. */
#pragma once

#include "base/number/dtype.h"

#include <math.h>
#include <stdlib.h>

/* Uniform in [-1, 1), the same numbers for the same seed. */
static inline float random_float(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) / 2147483648.0f;
}

static inline float *random_floats(size_t count, float scale, uint64_t seed)
{
    float *out = malloc((count ? count : 1) * sizeof *out);
    for (size_t i = 0; i < count; i++)
        out[i] = scale * random_float(&seed);
    return out;
}

static inline void *random_array(
        enum dtype dtype, size_t count, float scale, uint64_t seed)
{
    float *floats = random_floats(count, scale, seed);
    void *out = malloc(count * dtype_bytes(dtype) + 1);
    for (size_t i = 0; i < count && dtype_is_fp8(dtype); i++)
        ((uint8_t *)out)[i] = float_to_fp8(floats[i], dtype);
    if (!dtype_is_fp8(dtype))
        dtype_convert(out, dtype, floats, DTYPE_FP32, count);
    free(floats);
    return out;
}

static inline void *copy_of(const void *array, size_t bytes)
{
    void *out = malloc(bytes + 1);
    memcpy(out, array, bytes);
    return out;
}

/* The largest |a - b| / (1 + |b|); infinite if either is NaN. For FP8 compares
 * codes. */
static inline double worst(
        const void *a, const void *b, enum dtype dtype, size_t count)
{
    double most = 0.0;
    for (size_t i = 0; i < count; i++) {
        double x, y;
        if (dtype == DTYPE_FP32) {
            x = ((const float *)a)[i], y = ((const float *)b)[i];
        } else if (dtype_is_fp8(dtype)) {
            x = ((const uint8_t *)a)[i], y = ((const uint8_t *)b)[i];
        } else {
            float wide[2];
            dtype_convert(
                    &wide[0], DTYPE_FP32, (const uint16_t *)a + i, dtype, 1);
            dtype_convert(
                    &wide[1], DTYPE_FP32, (const uint16_t *)b + i, dtype, 1);
            x = wide[0], y = wide[1];
        }
        double error = fabs(x - y) / (1.0 + fabs(y));
        if (!(error <= most))
            most = isnan(error) ? INFINITY : error;
    }
    return most;
}
