/* trainer_state.h - trainer_state.json, as Hugging Face's TrainerState reads
 * it: where the run is, and the history of its logs. In every checkpoint, and
 * in output_dir at the end ([report] trainer_state). Internal to train; rank 0.
 *
 * Source: transformers, trainer_callback.py, TrainerState.save_to_json: the
 * keys sorted, two blanks to indent. log_history has, every logging_steps,
 * epoch, grad_norm, learning_rate, loss (the mean since the row before) and
 * step; and of each evaluation epoch, eval_loss and step. Values that are not
 * finite are left out, as JSON has none. best_model_checkpoint is the name of a
 * folder beside it: no absolute path is in a checkpoint. */
#pragma once

#include "train/report/observer.h"

struct trainer;

struct state_history {
    json_t *rows;    /* of log_history; owned */
    double loss_sum; /* since the last row */
    int64_t loss_count;
};

/* After the state of a checkpoint was loaded: its history goes on, up to its
 * step. A checkpoint without one begins it anew. */
void trainer_state_resume(struct trainer *trainer);
/* The file's text, owned by the caller; NULL: not wanted. */
char *trainer_state_text(const struct trainer *trainer);
/* Into output_dir; a failed write is reported and tolerated. */
void trainer_state_write(const struct trainer *trainer);
