/* row_norms.h - |W| by rows of a module's weight: the initial magnitudes of
 * PEFT's DoRA. Rows are the module's: columns of a Conv1D. */
#pragma once

#include "model/weights.h"

/* values += `times` |W| for rows [begin, begin + count) of tensor `id`: W as in
 * the source, or with `held` after quantizing and dequantizing it. `held` is
 * ignored for a weight that is stored quantized, which is read dequantized.
 * Sums in double. Any thread that may read the source may call. Memory: with
 * `held` the quantized weight. */
enum zd_status weights_add_row_norms(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *held, size_t begin, size_t count,
        float times, float *values);
