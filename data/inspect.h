/* inspect.h - what the model will see: samples decoded, the loss mask visible.
 *
 * Text that the loss counts is plain. Text that it does not count is dimmed on
 * a terminal, and [-between these-] otherwise. A line of its own marks where a
 * document begins within a sample. Control bytes are written as \xNN, so data
 * cannot send escape codes to a terminal. */
#ifndef ZD_DATA_INSPECT_H
#define ZD_DATA_INSPECT_H

#include "data/dataset.h"

#include <stdio.h>

/* The first `count` samples of training (fewer if there are fewer), after a
 * line of totals. `tokenizer` NULL: ids are printed, as is <N> for one it
 * lacks. `colour`: dim with escape codes; only for a terminal. */
enum zd_status dataset_inspect(
        FILE *out, struct dataset *dataset, const struct tokenizer *tokenizer,
        int64_t count, bool colour);

#endif
