/* run.h - the parts of a run, called by loop.c. Internal to train. */
#pragma once

#include "train/trainer/trainer.h"

/* setup.c: everything up to the first step; the trainer must be all 0, and the
 * caller destroys it in any case. *finished_out: the run had finished before.
 */
enum zd_status trainer_init(
        struct trainer *trainer, const struct train_job *job, struct comm *comm,
        const struct train_observer *observer, bool *finished_out);
/* Also frees the trainer's memory, unless a save that hangs on a disk still
 * reads it. */
void trainer_destroy(struct trainer *trainer);

/* resume.c: finds, checks and loads a checkpoint; without one state is a fresh
 * start's. */
enum zd_status trainer_resume(struct trainer *trainer);

/* step.c: the exchange that begins a step and, unless a command or signal comes
 * first, the step. */
struct step_turn {
    int64_t flags;    /* signals of any rank, to be acted on now */
    bool has_command; /* to be executed now (commands.h) */
    bool ran;         /* a step was computed */
};
enum zd_status trainer_step(
        struct trainer *trainer, struct step_turn *turn,
        struct train_step_report *report);

/* Collective: rank 0 finds a checkpoint; all ranks read it if the job wants it
 * verified. `path`: (PATH_MAX), the same on all ranks, empty for a fresh start;
 * `digest`: of the manifest, on rank 0. */
enum zd_status choose_checkpoint(
        struct comm *comm, const struct train_job *job, char *path,
        char digest[HASH_HEX]);
/* Collective: sets trainer->ahead from the checkpoint that will probably be
 * resumed. */
enum zd_status trainer_look_ahead(struct trainer *trainer);
