/* save.h - the saves of a run: those that a command asks for, timed ones, and
 * the last. One state machine for all, on every rank; the trainer holds at
 * most one save (none: idle).
 *
 *   state        who owns the save, the snapshot and the error
 *   WRITING      the worker: its rank's shard, out of the snapshot
 *   WRITTEN      the trainer
 *   COMMITTING   on rank 0 the worker: manifest, rename, retention
 *   COMMITTED    the trainer
 *
 *   event (by whom)                         from         to
 *   the save begins (trainer)               idle         WRITING
 *   the shard is written or failed (worker) WRITING      WRITTEN
 *   all shards are written (trainer)        WRITTEN      COMMITTING, rank 0
 *                                                        COMMITTED, the others
 *   committed or failed (worker)            COMMITTING   COMMITTED
 *   all ranks are done (trainer)            COMMITTED    idle
 *
 * The worker is a thread while training goes on (where there is a snapshot and
 * the save need not be waited for), else the trainer itself, which reads zero
 * as it is. Where the system refuses a thread the trainer stands in for it.
 *
 * A thread touches nothing of the save after the change that hands it over.
 * From WRITING until WRITTEN or the last state the snapshot is not taken again,
 * and what the writer points to stays (all of it but `zero` is only read).
 *
 * A hanging disk ends the job if training waits for the save; else training
 * continues, and no other save begins until the disk responds.
 *
 * The exchange of a step tells the ranks that all threads have finished; then
 * they make the trainer's changes together (save_poll), so that no rank waits
 * for a disk. Internal to train. */
#pragma once

#include "train/checkpoint/checkpoint.h"
#include "train/job/control.h"

#include <limits.h>

struct trainer;
struct save;

/* Why a save is made. */
enum save_reason {
    SAVE_TIMED,    /* every so many steps, minutes, epochs; by a signal */
    SAVE_ASKED,    /* by a command, which hears of it when it has ended */
    SAVE_STOPPING, /* by a command that ends the run */
    SAVE_FAILING,  /* before a failure ends the run */
    SAVE_LAST      /* of the run */
};

/* A command that waits for the save in the background. */
struct asked_save {
    /* Collective: it has ended; takes its failure, but for ZD_ERR_PEER. NULL:
     * no one waits */
    enum zd_status (*ended)(struct trainer *trainer, enum zd_status status);
    struct train_command command; /* rank 0's */
    int64_t step;                 /* that the save is of */
};

struct saves {
    struct save *current; /* NULL: idle; the same on all ranks */
    bool is_outdated;     /* the current one, or what was saved of this step,
                             says less than is known */
    int failed;           /* in a row */
    /* rank 0: steps committed, the newest first; or 0 */
    int64_t own[CHECKPOINTS_OWN];
    struct asked_save asked;
};

/* Collective, between steps. At once: in the background, where there is a
 * snapshot and the reason allows it: then it is saves.current. Nothing is done
 * when the state as it is was saved. A timed one that fails is told and
 * tolerated, unless it is the third in a row; one before a failure ends the run
 * (SAVE_FAILING) is told, so that the failure itself stays the run's; of the
 * others every failure is returned. */
enum zd_status trainer_save(struct trainer *trainer, enum save_reason reason);
/* Once a step: the next change of a save in the background, unless some rank
 * `is_writing` (save_is_writing). Failures as those of timed ones. */
enum zd_status save_poll(struct trainer *trainer, bool is_writing);
bool save_is_writing(const struct trainer *trainer);
/* save_is_stuck: this rank's disk hangs. The collective one: E0816 if any
 * rank's disk hangs. */
bool save_is_stuck(const struct trainer *trainer);
enum zd_status save_check(struct trainer *trainer);
/* Waits until no save is under way: before the snapshot's memory is released,
 * and at the end. */
enum zd_status save_settle(struct trainer *trainer);
/* More is known of the current step than was saved, or is being saved. */
void save_outdated(struct trainer *trainer);
/* At the end of the run; not collective. False: a thread still hangs on the
 * disk and is left running, with all that it reads. */
bool saves_end(struct trainer *trainer);
