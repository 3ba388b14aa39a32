/* predicted.h - the time that was predicted for this run's steps, and the time
 * they took, phase by phase. Internal to train. */
#ifndef ZD_TRAIN_TRAINER_PREDICTED_H
#define ZD_TRAIN_TRAINER_PREDICTED_H

#include "train/plan/predict.h"

struct trainer;

struct predicted {
    bool is_known;
    struct plan_prediction of;
    char machine[240]; /* by which machine: "here (the CPU device, ..)" */
    int digits;        /* of the times, that are worth printing */
};

/* Collective, before the plan is told: by what was measured on rank 0's
 * machine, else by the backend's table. That there is no prediction says
 * nothing of the run; where there is one, all ranks' watches know it. */
enum zd_status trainer_predict(struct trainer *trainer);
/* What was predicted and what was measured, a line each, of a run of several
 * steps; empty: there is nothing to compare. The first step of the process is
 * not counted: it touches memory for the first time. */
enum { PREDICTED_LINE = 600 };
void trainer_predicted_lines(
        const struct trainer *trainer, char predicted[PREDICTED_LINE],
        char measured[PREDICTED_LINE]);

#endif
