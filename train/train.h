/* train.h - the trainer: from a job and a comm to checkpoints and a model.
 *
 *   job_plan     what a rank will hold and send; pure, any world, no MPI
 *   train_run    plan, take, load or resume, loop, save, export
 *
 * What a user sees goes through train_observer, which daemon fills. */
#pragma once

#include "train/plan/plan.h"
#include "train/report/observer.h"

/* From here on USR1, USR2, TERM and INT are noted, and acted on between steps
 * of train_run as the job says. Call it before anything that takes time;
 * without it they end the process until train_run has begun. */
void train_catch_signals(void);

/* Runs the job on this rank. The status that it returns is the same on all
 * ranks (comm_agree) when the failure is one that can be told; the record to
 * print is with one rank. */
enum zd_status train_run(
        const struct train_job *job, struct comm *comm,
        const struct train_observer *observer);
