/* run.h - the parts of a run, as loop.c goes through them. Internal to train.
 */
#pragma once

#include "train/trainer/trainer.h"

/* setup.c: everything up to the first step, in a trainer that is all 0; the
 * caller destroys it whatever happened. *finished_out: the run was over before.
 */
enum zd_status trainer_init(
        struct trainer *trainer, const struct train_job *job, struct comm *comm,
        const struct train_observer *observer, bool *finished_out);
/* With its memory, but where a disk holds up a save that reads it. */
void trainer_destroy(struct trainer *trainer);

/* resume.c: find, check and load; state is a fresh start's when there is none.
 */
enum zd_status trainer_resume(struct trainer *trainer);

/* step.c: the exchange that begins a step and, unless something is to be acted
 * on first, the step. */
struct step_turn {
    int64_t flags;    /* what signals of any rank asked for; to be obeyed now */
    bool has_command; /* to be done now (commands.h) */
    bool ran;         /* a step was made */
};
enum zd_status trainer_step(
        struct trainer *trainer, struct step_turn *turn,
        struct train_step_report *report);

/* Collective: rank 0 looks for one, all ranks read it where the job wants it
 * verified. `path`: (PATH_MAX), the same on all ranks, empty for a fresh start;
 * `digest`: of its manifest, on rank 0. */
enum zd_status choose_checkpoint(
        struct comm *comm, const struct train_job *job, char *path,
        char digest[HASH_HEX]);
/* Collective: trainer->ahead, by the checkpoint that is likely to be resumed.
 */
enum zd_status trainer_look_ahead(struct trainer *trainer);
