/* row_norms.h - |W| by rows of a module's weight: what PEFT's magnitudes (DoRA)
 * are when nothing is learned. Rows are the module's: columns of a Conv1D. */
#ifndef ZD_MODEL_ROW_NORMS_H
#define ZD_MODEL_ROW_NORMS_H

#include "model/weights.h"

/* Of rows [begin, begin + count) of tensor `id`: as the source has it, or where
 * `held` is given of what it decodes to once it is quantized so (of all of it,
 * as nested scales are made of all). Of a weight that is stored in codes `held`
 * says nothing: it reads as what those decode to. Sums are taken in double. Any
 * thread that may read the source. Memory: with `held` the weight's codes. */
enum zd_status weights_row_norms(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *held, size_t begin, size_t count,
        float *out);

#endif
