/* between.h - what happens between steps: evaluation, samples, checkpoints,
 * when they are due. Internal to train. */
#ifndef ZD_TRAIN_TRAINER_BETWEEN_H
#define ZD_TRAIN_TRAINER_BETWEEN_H

#include "train/trainer/trainer.h"

/* Around everything that is no part of a step: the last one's update is ended,
 * and what that did counts with the next step. They nest: in a run that is
 * paused all is between the two. */
enum zd_status between_begin(struct trainer *trainer);
enum zd_status between_end(struct trainer *trainer);

/* What is due after the step just made. */
enum zd_status trainer_between(struct trainer *trainer);

#endif
