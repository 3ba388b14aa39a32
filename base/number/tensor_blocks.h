/* tensor_blocks.h - the division of a tensor's elements into blocks that share
 * one second moment (Adam-mini; Zhang et al. 2024, arXiv:2406.16793, algorithm
 * 3): heads of q and k, output rows of the other matrices, a whole norm.
 *
 * Element e of a row-major (rows, columns) tensor lies at line e / columns (or,
 * by_column, e % columns). Lines are cut into sections, and a section into
 * groups of `group` lines; each group is one block:
 *
 *     block = section.first + (line - section.begin) / section.group
 *
 * A line is a row of an [out, in] matrix, or a column of GPT-2's [in, out]. */
#pragma once

#include "base/number/host_device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_SECTIONS_MAX = 3 };

struct tensor_section {
    int64_t begin; /* first line */
    int64_t group; /* lines of one block */
    int64_t first; /* its first block */
};

struct tensor_blocks {
    int64_t rows, columns;
    bool by_column;
    int section_count;
    struct tensor_section sections[TENSOR_SECTIONS_MAX];
    int64_t count; /* of blocks */
};

ZD_HOST_DEVICE static inline int64_t tensor_blocks_lines(
        const struct tensor_blocks *blocks)
{
    return blocks->by_column ? blocks->columns : blocks->rows;
}

/* The section of a line. */
ZD_HOST_DEVICE static inline int tensor_blocks_section(
        const struct tensor_blocks *blocks, int64_t line)
{
    int s = blocks->section_count - 1;
    while (s > 0 && line < blocks->sections[s].begin)
        s--;
    return s;
}

ZD_HOST_DEVICE static inline int64_t tensor_blocks_of_line(
        const struct tensor_blocks *blocks, int64_t line)
{
    const struct tensor_section *section =
            &blocks->sections[tensor_blocks_section(blocks, line)];
    return section->first + (line - section->begin) / section->group;
}

ZD_HOST_DEVICE static inline int64_t tensor_blocks_of_element(
        const struct tensor_blocks *blocks, size_t element)
{
    int64_t e = (int64_t)element;
    return tensor_blocks_of_line(
            blocks,
            blocks->by_column ? e % blocks->columns : e / blocks->columns);
}

/* The line after the last one of the block of `line`. */
ZD_HOST_DEVICE static inline int64_t tensor_blocks_end(
        const struct tensor_blocks *blocks, int64_t line)
{
    int s = tensor_blocks_section(blocks, line);
    const struct tensor_section *section = &blocks->sections[s];
    int64_t last = s + 1 < blocks->section_count ? section[1].begin
                                                 : tensor_blocks_lines(blocks);
    int64_t begin = line - (line - section->begin) % section->group;
    return begin + section->group < last ? begin + section->group : last;
}

/* Elements of one line. */
ZD_HOST_DEVICE static inline int64_t tensor_blocks_line_count(
        const struct tensor_blocks *blocks)
{
    return blocks->by_column ? blocks->rows : blocks->columns;
}

/* One block per element: nothing is shared. */
ZD_HOST_DEVICE static inline bool tensor_blocks_are_single(
        const struct tensor_blocks *blocks)
{
    return blocks->count == blocks->rows * blocks->columns;
}
