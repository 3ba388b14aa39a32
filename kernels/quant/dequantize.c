#include "kernels/quant/dequantize.h"

#include <string.h>

static size_t tiles_across(const struct quant_matrix *m)
{
    return quant_parts((size_t)m->columns, QUANT_TILE);
}

size_t quant_scale_count(const struct quant_matrix *m)
{
    if (quant_is_4bit(m))
        return quant_parts(quant_matrix_count(m), m->block);
    if (m->format == QUANT_INT8)
        return (size_t)m->rows;
    return quant_parts((size_t)m->rows, QUANT_TILE) * tiles_across(m);
}

size_t quant_scale_of(const struct quant_matrix *m, size_t i)
{
    if (quant_is_4bit(m))
        return i / m->block;
    size_t row = i / (size_t)m->columns, column = i % (size_t)m->columns;
    if (m->format == QUANT_INT8)
        return row;
    return row / QUANT_TILE * tiles_across(m) + column / QUANT_TILE;
}

size_t quant_scale_first(const struct quant_matrix *m, size_t scale)
{
    if (quant_is_4bit(m))
        return scale * m->block;
    if (m->format == QUANT_INT8)
        return scale * (size_t)m->columns;
    size_t across = tiles_across(m);
    return scale / across * QUANT_TILE * (size_t)m->columns +
           scale % across * QUANT_TILE;
}

size_t quant_code_bytes(const struct quant_matrix *m, size_t count)
{
    return quant_is_4bit(m) ? quant_parts(count, 2) : count;
}

/* The number of scales of scales. */
static size_t nested_count(const struct quant_matrix *m)
{
    return quant_parts(quant_scale_count(m), m->nested_block);
}

size_t quant_scale_bytes(const struct quant_matrix *m)
{
    size_t count = quant_scale_count(m);
    if (!m->nested_block)
        return count * sizeof(float);
    return (1 + nested_count(m)) * sizeof(float) + count;
}

struct quant_scales quant_scales_of(const struct quant_matrix *m, void *scales)
{
    float *values = scales;
    if (!m->nested_block)
        return (struct quant_scales){.values = values};
    return (struct quant_scales){
            values + 1, values,
            (unsigned char *)(values + 1 + nested_count(m))};
}

void quant_store_scales(
        void *scales, const float *of_blocks, const struct quant_matrix *m)
{
    size_t count = quant_scale_count(m);
    struct quant_scales to = quant_scales_of(m, scales);
    if (!to.offset) {
        memcpy(scales, of_blocks, count * sizeof *of_blocks);
        return;
    }
    *to.offset = quant_nested_offset(of_blocks, count);
    quant_nest(to.codes, to.values, of_blocks, *to.offset, count);
}

/* Reads the scales of blocks first .. first + count - 1. */
static void read_scales(
        float *of_blocks, void *scales, const struct quant_matrix *m,
        size_t first, size_t count)
{
    struct quant_scales from = quant_scales_of(m, scales);
    float map[256];
    if (!from.offset) {
        memcpy(of_blocks, from.values + first, count * sizeof *of_blocks);
        return;
    }
    quant_dynamic_map(map);
    quant_unnest(
            of_blocks, from.codes + first, from.values, map, *from.offset,
            m->nested_block, first, count);
}

void quant_read_scales(
        float *of_blocks, void *scales, const struct quant_matrix *m)
{
    read_scales(of_blocks, scales, m, 0, quant_scale_count(m));
}

float quant_value(
        const void *codes, const void *scales, const struct quant_matrix *m,
        size_t i)
{
    float values[16], scale, value = 0;
    read_scales(/* only reads */
                &scale, (void *)(uintptr_t)scales, m, quant_scale_of(m, i), 1);
    if (quant_is_4bit(m))
        quant_values(m->format, values);
    quant_decode(&value, m->format, values, codes, i, scale, 1);
    return value;
}
