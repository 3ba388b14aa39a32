/* tensor_blocks.h - how the elements of a tensor fall into blocks that share one
 * second moment (Adam-mini; Zhang et al. 2024, arXiv:2406.16793, algorithm 3):
 * heads of q and k, output rows of the other matrices, a whole norm.
 *
 * Element e of a row-major (rows, columns) tensor lies at line e / columns (or,
 * by_column, e % columns). Lines are cut into sections, and a section into
 * groups of `group` lines; each group is one block:
 *
 *     block = section.first + (line - section.begin) / section.group
 *
 * A line is a row of an [out, in] matrix, or a column of GPT-2's [in, out]. */
#ifndef ZD_BASE_TENSOR_BLOCKS_H
#define ZD_BASE_TENSOR_BLOCKS_H

#include <stdbool.h>
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

#endif
