/* trainer_state.h - trainer_state.json for Hugging Face's TrainerState:
 * progress of the run and history of its logs. In every checkpoint, and in
 * output_dir at the end ([report] trainer_state). Internal to train; rank 0.
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
    json_t *rows;    /* rows of log_history; owned */
    double loss_sum; /* since the last row */
    int64_t loss_count;
};

/* Call after loading a checkpoint's state: continues its history, up to its
 * step. Without a history starts a new one. */
void trainer_state_resume(struct trainer *trainer);
/* The file's text, owned by the caller; NULL: not enabled. */
char *trainer_state_text(const struct trainer *trainer);
/* Writes to output_dir; a failed write is logged and tolerated. */
void trainer_state_write(const struct trainer *trainer);
