/* batches.h - which samples a rank reads for a step, and another number of
 * micro-batches between two steps. Internal to train. */
#ifndef ZD_TRAIN_TRAINER_BATCHES_H
#define ZD_TRAIN_TRAINER_BATCHES_H

#include "train/trainer/trainer.h"

/* Read from the first sample that no step has taken. Sets base_sample. */
/* Number of row 0 of micro-batch `a` of the step at hand, in the run. */
int64_t batches_first_sample(const struct trainer *trainer, int a);
enum zd_status batches_start(struct trainer *trainer);
void batches_stop(struct trainer *trainer);

/* From the next step on a step has `accumulation` micro-batches, and the global
 * batch is another; no sample is lost or taken twice. ZD_ERR_UNFIT, and nothing
 * changed, where the memory that was planned has no room for it. Every rank
 * comes to the same answer. Only while the
 * loader is stopped.
 */
enum zd_status batches_accumulate(struct trainer *trainer, int accumulation);

#endif
