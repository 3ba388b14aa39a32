/* columns.h - columns of a tensor that a mesh with tensor parallelism saves: a
 * matrix of their own, whose elements arrays count. Internal to the checkpoint.
 *
 *     master/model.layers.0.mlp.down_proj.weight[512:1024]@65536
 *     m/h.0.attn.c_attn.weight[0:192,768:960,1536:1728]@0
 *
 * Columns C0 to C1 - 1 of the tensor as it is stored, and so on, ascending. */
#pragma once

#include "model/slice.h"

struct columns {
    int count; /* 0: all; elements are those of the tensor */
    struct {
        int64_t begin, end;
    } ranges[SLICE_RANGES];
};

/* Those of a slice that is cut by columns; else {0}. */
struct columns columns_of(const struct param_slice *slice);
/* "[0:192,768:960]"; "" of all. */
enum { COLUMNS_TEXT = SLICE_RANGES * 42 };
void columns_text(const struct columns *columns, char out[COLUMNS_TEXT]);
/* Text in brackets; returns what follows it. NULL: it is none, or columns do
 * not ascend. */
const char *columns_parse(const char *text, struct columns *out);
/* Any order that is one. */
int columns_compare(const struct columns *a, const struct columns *b);
/* The columns as a slice of a tensor of that shape, within which they lie; all:
 * the tensor, of any shape. Only what param_slice_next asks for is set. */
struct param columns_matrix(
        const struct columns *columns, const int64_t shape[2]);
/* How many elements of such a matrix lie before element `whole` of the
 * tensor. */
size_t columns_before(const struct param *matrix, size_t whole);
