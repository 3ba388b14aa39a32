/* live.h - the settings as `set` has made them: what steps go by. Part of the
 * state (train_live), so a checkpoint has them. Internal to train. */
#ifndef ZD_TRAIN_TRAINER_LIVE_H
#define ZD_TRAIN_TRAINER_LIVE_H

#include "train/trainer/trainer.h"

/* Of the next step. */
double live_learning_rate(const struct trainer *trainer);
/* The rate at the end of the warm-up, while the next step is before it; then
 * NaN. */
double live_peak_rate(const struct trainer *trainer);
/* `set`: the peak during the warm-up, afterwards the next step's rate. The rest
 * of the schedule is scaled with it. */
void live_set_rate(struct trainer *trainer, double rate);
/* How the rate changes after the next step, a sentence; false: it stays. */
bool live_rate_note(const struct trainer *trainer, char *text, size_t bytes);
double live_max_grad_norm(const struct trainer *trainer);
/* In whole steps; 0: never. */
int64_t live_save_steps(const struct trainer *trainer);
int64_t live_eval_steps(const struct trainer *trainer);
/* values: (SETTINGS), as they hold for the next step; NaN: does not apply. */
void live_settings(const struct trainer *trainer, double *values);
/* What `set` has asked for since the run began; false: never. */
void live_asked(const struct trainer *trainer, bool *is_set, double *values);

/* Has the job these, as intervals of steps? */
bool live_saves_by_steps(const struct trainer *trainer);
bool live_evaluates_by_steps(const struct trainer *trainer);
/* What the schedule says of the next step, whatever was set. */
double live_scheduled_rate(const struct trainer *trainer);

/* What a resumed run keeps of what was set, after its state was loaded: a key
 * that the job file has changed since then holds again (`manifest`: of the
 * checkpoint), and the number of micro-batches takes effect. */
enum zd_status live_resume(struct trainer *trainer, const json_t *manifest);

#endif
