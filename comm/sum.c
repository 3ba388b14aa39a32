#include "comm/backend.h"

#include <string.h>

/* A block of sums stays in the first-level cache while the parts stream by. */
enum { BLOCK = 1024 };

static void widen(
        float *restrict out, const void *in, enum dtype type, size_t first,
        size_t count)
{
    dtype_convert(
            out, DTYPE_FP32, (const char *)in + first * dtype_bytes(type), type,
            count);
}

/* sums[i] += part[first + i] */
static void add(
        float *restrict sums, const void *part, enum dtype type, size_t first,
        size_t count)
{
    float wide[BLOCK];
    const float *restrict x = (const float *)part + first;
    if (type != DTYPE_FP32) {
        widen(wide, part, type, first, count);
        x = wide;
    }
    for (size_t i = 0; i < count; i++)
        sums[i] += x[i];
}

void sum_parts(
        void *to, enum dtype type, bool accumulate, const void *const *parts,
        int part_count, size_t count)
{
    float sums[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t block = count - first < BLOCK ? count - first : BLOCK;
        char *out = (char *)to + first * dtype_bytes(type);
        widen(sums, parts[0], type, first, block);
        for (int p = 1; p < part_count; p++)
            add(sums, parts[p], type, first, block);
        if (accumulate)
            add(sums, to, type, first, block);
        dtype_convert(out, type, sums, DTYPE_FP32, block);
    }
}
