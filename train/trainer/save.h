/* save.h - the saves of a run: by a command, timed ones, and the last. One
 * state machine for all, on every rank; the trainer holds at
 * most one save (none: idle).
 *
 *   state        who owns the save, the snapshot and the error
 *   WRITING the worker: writes its rank's shard from the snapshot
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
 * The worker is a thread beside training (if there is a snapshot and training
 * need not wait for the save), else the trainer itself, which reads zero
 * directly. If no thread can be created the trainer does the work.
 *
 * A thread does not touch the save after the change that hands it over. From
 * WRITING until WRITTEN or the last state the snapshot is not taken again, and
 * everything that the writer points to stays valid (and, except `zero`, is only
 * read).
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
    SAVE_ASKED,    /* by a command, which is answered at its end */
    SAVE_STOPPING, /* by a command that ends the run */
    SAVE_FAILING,  /* before a failure ends the run */
    SAVE_LAST      /* of the run */
};

/* A command that waits for the save in the background. */
struct asked_save {
    /* Collective: called at its end; handles its failure, except ZD_ERR_PEER.
     * NULL: no command waits */
    enum zd_status (*ended)(struct trainer *trainer, enum zd_status status);
    struct train_command command; /* rank 0's */
    int64_t step;                 /* step of the save */
};

struct saves {
    struct save *current; /* NULL: idle; the same on all ranks */
    bool is_outdated;     /* the current save, or this step's, lacks newer
                             information */
    int failed;           /* failures in a row */
    /* rank 0: committed steps, the newest first; 0: none */
    int64_t own[CHECKPOINTS_OWN];
    struct asked_save asked;
};

/* Collective, between steps. Saves at once, or in the background
 * (saves.current) if there is a snapshot and the reason allows it. Does nothing
 * if the current state is already saved. A failed timed save is reported and
 * tolerated, unless it is the third in a row; one before a failure
 * (SAVE_FAILING) is only reported, so that the run ends with the original
 * failure; other failures are returned. */
enum zd_status trainer_save(struct trainer *trainer, enum save_reason reason);
/* Call once per step: makes the next change of a background save, unless some
 * rank `is_writing` (save_is_writing). Failures as for timed saves. */
enum zd_status save_poll(struct trainer *trainer, bool is_writing);
bool save_is_writing(const struct trainer *trainer);
/* save_is_stuck: this rank's disk hangs. The collective one: E0816 if any
 * rank's disk hangs. */
bool save_is_stuck(const struct trainer *trainer);
enum zd_status save_check(struct trainer *trainer);
/* Waits until no save is under way: before the snapshot's memory is released,
 * and at the end. */
enum zd_status save_settle(struct trainer *trainer);
/* Marks the save of the current step as outdated: more is known now. */
void save_outdated(struct trainer *trainer);
/* Call at the end of the run; not collective. False: a thread still hangs on
 * the disk and is left running, with everything that it reads. */
bool saves_end(struct trainer *trainer);
