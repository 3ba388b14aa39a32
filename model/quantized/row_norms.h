/* row_norms.h - |W| by rows of a module's weight: what PEFT's magnitudes (DoRA)
 * are before training. Rows are the module's: columns of a Conv1D. */
#pragma once

#include "model/weights.h"

/* Adds `times` them to values: of rows [begin, begin + count) of tensor `id`,
 * as the source has it, or with `held` as it is after quantizing all of it so
 * and dequantizing. `held` is ignored for a weight that is stored quantized: it
 * is read dequantized. Sums are taken in double. Any thread that may read the
 * source. Memory: with `held` the quantized weight. */
enum zd_status weights_add_row_norms(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *held, size_t begin, size_t count,
        float times, float *values);
