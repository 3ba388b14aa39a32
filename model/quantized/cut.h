/* cut.h - cuts quantized weights for tensor parallelism (model/slice.h): codes
 * and scales of a slice equal the whole weight's to the bit.
 *
 *   whole (out, in)          slice
 *   rows are cut             those rows, in up to three ranges
 *   columns are cut          those columns of every row
 *
 * Cuts are between blocks, rows or tiles; int8's rows may be cut anywhere, and
 * each part has the scale of the row. 8-bit scales are kept if rows are cut
 * between groups of nested_block; else they are decoded. */
#pragma once

#include "model/params.h"

/* Rows of the whole matrix that are in the slice, or columns of all rows. */
struct codes_range {
    int64_t row, rows; /* of the whole */
    int64_t here;      /* row of the slice for the first of them */
    int64_t column, columns;
    bool is_owned; /* by this place, if several have it */
};
/* The ranges of a weight, ascending; returns how many. A weight that is not cut
 * is one range, owned by place 0. */
int codes_ranges(
        const struct param *param, const struct quant_matrix *whole, int place,
        struct codes_range ranges[SLICE_RANGES]);

/* Does every place get whole blocks, rows or tiles with this quantization? */
bool codes_can_cut(const struct param *param, const struct quant_matrix *whole);

/* Sets the slice's quantization from the table of the whole model, which has
 * the same ids. */
void codes_cut(const struct param_table *whole, struct param_table *slice);

/* Packs the scales of the slice of weight `id` from those of the whole;
 * `of_blocks`: scratch, one float per scale of the whole. */
void codes_cut_scales(
        const struct param_table *slice, int id, void *whole, float *of_blocks,
        void *out);
