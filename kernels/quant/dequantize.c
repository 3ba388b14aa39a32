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

/* Scales of scales. */
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

void quant_store_scales(
        void *scales, const float *of_blocks, const struct quant_matrix *m)
{
    size_t count = quant_scale_count(m);
    if (!m->nested_block) {
        memcpy(scales, of_blocks, count * sizeof *of_blocks);
        return;
    }
    float *offset = scales;
    *offset = quant_nested_offset(of_blocks, count);
    quant_nest(
            (uint8_t *)(offset + 1 + nested_count(m)), offset + 1, of_blocks,
            *offset, count);
}

static float scale_at(
        const void *scales, const struct quant_matrix *m, size_t i)
{
    const float *of = scales;
    if (!m->nested_block)
        return of[i];
    float map[256], absmax;
    const uint8_t *codes = (const uint8_t *)(of + 1 + nested_count(m));
    quant_dynamic_map(map);
    quant_unnest(&absmax, codes + i, of + 1, map, of[0], m->nested_block, i, 1);
    return absmax;
}

float quant_value(
        const void *codes, const void *scales, const struct quant_matrix *m,
        size_t i)
{
    float values[16], scale = scale_at(scales, m, quant_scale_of(m, i));
    uint8_t code = ((const uint8_t *)codes)[quant_is_4bit(m) ? i / 2 : i];
    if (m->format == QUANT_INT8)
        return (float)(int8_t)code * scale * QUANT_BY_127;
    if (m->format == QUANT_FP8)
        return fp8_to_float(code, DTYPE_E4M3) * scale;
    quant_values(m->format, values);
    return values[i % 2 ? code & 15u : code >> 4] * scale;
}
