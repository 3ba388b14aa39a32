/* row_norms.h - |W| by rows of a module's weight, as its source has it: what
 * PEFT's magnitudes (DoRA) are when nothing is learned. Rows are the module's:
 * columns of a Conv1D. */
#ifndef ZD_MODEL_ROW_NORMS_H
#define ZD_MODEL_ROW_NORMS_H

#include "model/weights.h"

/* Of rows [begin, begin + count) of tensor `id`. Sums are taken in double. Any
 * thread that may read the source. */
enum zd_status weights_row_norms(
        const struct weight_source *source, const struct model_config *config,
        const struct param *param, int id, size_t begin, size_t count,
        float *out);

#endif
