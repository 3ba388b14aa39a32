#include "comm/backend.h"

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

/* sums = parts[0] + parts[1] + .. of one block */
static void add_up(
        float *restrict sums, enum dtype type, const void *const *parts,
        int part_count, size_t first, size_t count)
{
    widen(sums, parts[0], type, first, count);
    for (int p = 1; p < part_count; p++)
        add(sums, parts[p], type, first, count);
}

/* The same with the sum of each node rounded to the type that it is sent in. */
static void add_up_nodes(
        float *restrict sums, enum dtype type, const void *const *parts,
        int part_count, int node_size, size_t first, size_t count)
{
    float node[BLOCK], rounded[BLOCK];
    for (int p = 0; p < part_count; p += node_size) {
        float *to = p == 0 ? sums : node;
        add_up(to, type, parts + p, node_size, first, count);
        if (type != DTYPE_FP32) {
            dtype_convert(rounded, type, to, DTYPE_FP32, count);
            dtype_convert(to, DTYPE_FP32, rounded, type, count);
        }
        for (size_t i = 0; i < count && p > 0; i++)
            sums[i] += node[i];
    }
}

void sum_parts(
        void *to, enum dtype type, bool accumulate, const void *const *parts,
        int part_count, int node_size, size_t count)
{
    float sums[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t block = count - first < BLOCK ? count - first : BLOCK;
        char *out = (char *)to + first * dtype_bytes(type);
        if (node_size < part_count)
            add_up_nodes(
                    sums, type, parts, part_count, node_size, first, block);
        else
            add_up(sums, type, parts, part_count, first, block);
        if (accumulate)
            add(sums, to, type, first, block);
        dtype_convert(out, type, sums, DTYPE_FP32, block);
    }
}
