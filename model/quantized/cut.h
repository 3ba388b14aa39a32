/* cut.h - quantized weights that tensor parallelism cuts (model/slice.h): codes
 * and scales of a slice are some of those of the whole weight, to the bit.
 *
 *   whole (out, in)          slice
 *   rows are cut             those rows, in up to three ranges
 *   columns are cut          those columns of every row
 *
 * A cut goes between blocks, rows or tiles; int8's rows may be cut anywhere,
 * each part with the scale of the row. Scales in 8 bits stay so where the rows
 * are cut between the groups that have one; else they are held decoded. */
#pragma once

#include "model/params.h"

/* Rows of the whole that lie in the slice, or columns of all of them. */
struct codes_range {
    int64_t row, rows; /* of the whole */
    int64_t here;      /* row of the slice that is the first of them */
    int64_t column, columns;
    bool is_owned; /* by this place, of those that have it */
};
/* Those of a weight, ascending; returns how many. One that is not cut is a
 * range, owned by place 0. */
int codes_ranges(
        const struct param *param, const struct quant_matrix *whole, int place,
        struct codes_range ranges[SLICE_RANGES]);

/* Does every place get whole blocks, rows or tiles of a weight that is
 * quantized so? */
bool codes_can_cut(const struct param *param, const struct quant_matrix *whole);

/* How the weights of a slice are quantized, from the table of the whole, whose
 * ids are the same. */
void codes_cut(const struct param_table *whole, struct param_table *slice);

/* What decodes the slice of weight `id`, from that of the whole; `of_blocks` is
 * room for a float of each of the whole's scales. */
void codes_cut_scales(
        const struct param_table *slice, int id, void *whole, float *of_blocks,
        void *out);
