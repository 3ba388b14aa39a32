/* train.h - the trainer: from a job and a comm to checkpoints and a model.
 *
 *   job_plan     what a rank will hold and send; pure, any world, no MPI
 *   train_run    plan, take, load or resume, loop, save, export
 *
 * What a user sees goes through train_observer, which daemon fills. */
#pragma once

#include "train/plan/plan.h"
#include "train/report/observer.h"

/* Records USR1, USR2, TERM and INT from now on; train_run acts on them between
 * steps as the job says. Call it before anything slow: until then these signals
 * end the process. */
void train_catch_signals(void);

/* Runs the job on this rank. If the failure can be agreed on (comm_agree), all
 * ranks return the same status, and one of them has the record to print. */
enum zd_status train_run(
        const struct train_job *job, struct comm *comm,
        const struct train_observer *observer);
