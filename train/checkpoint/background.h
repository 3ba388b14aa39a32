/* background.h - a save that a thread writes while training goes on.
 *
 *   state        who owns the save, the snapshot and the record
 *   WRITING      the thread: its rank's shard, out of the snapshot
 *   WRITTEN      the trainer, which joins the thread ..
 *   COMMITTING   .. rank 0: a thread again: manifest, rename, retention;
 *                the others have nothing to do
 *   COMMITTED    the trainer
 *   ABANDONED    the thread: the record, and its copy of what the writer says;
 *                no more the snapshot
 *   GONE         the trainer, which joins the thread
 *
 *             trainer           thread             trainer
 *      begin ---> WRITING ------------> WRITTEN ----------> COMMITTING
 *                    |                                   thread |    |
 *                    | watch: nothing of its files is           |    v
 *                    v done in time                  watch |  COMMITTED
 *                ABANDONED <-------------------------------'
 *                    | thread: the call has come back
 *                    v
 *                  GONE
 *
 * The thread makes WRITTEN, COMMITTED and GONE, by an atomic store, and touches
 * nothing of it after that; the trainer makes WRITING and COMMITTING. From
 * begin until WRITTEN, ABANDONED or the last state the snapshot is not taken
 * again, and what the writer points to stays (all of it but `zero` is only
 * read).
 *
 * The watch makes ABANDONED (comm_files_give_up), under the lock under which
 * the thread reads the snapshot and under which the trainer begins to wait: a
 * save that is read from, or that somebody waits for, is not abandoned, and
 * ends the job. A thread that comes back finds, at its next read or before its
 * rename, that it was given up, and ends. What the writer points to stays
 * until then: whoever takes it away calls background_end first, and while a
 * thread is not GONE no other save begins.
 *
 * The ranks learn from the exchange of a step that all threads have come to an
 * end, and then call background_next together: nobody waits for a disk.
 * Internal to train. */
#ifndef ZD_TRAIN_CHECKPOINT_BACKGROUND_H
#define ZD_TRAIN_CHECKPOINT_BACKGROUND_H

#include "train/checkpoint/checkpoint.h"
#include "zero/snapshot.h"

struct background;

/* What rank 0 does of it behind the commit. Any thread. */
struct background_retention {
    int limit;
    int64_t own[4]; /* steps that this process has committed; 0: none */
};

/* Collective, between steps: takes the snapshot and starts the threads. On a
 * failure nothing is left. */
enum zd_status background_begin(
        const struct checkpoint_writer *writer, const struct train_state *state,
        struct zero_snapshot *snapshot,
        const struct background_retention *retention, struct background **out);
/* Has this rank's thread come to an end, or was it abandoned? */
bool background_is_ready(const struct background *background);
/* Collective; waits for threads that are not ready. *committed_out: that was
 * all. On a failure, which is the same on all ranks, nothing is left of the
 * save but files of an abandoned one, which the next save sweeps;
 * background_end comes next either way, on a rank where it is not abandoned. */
enum zd_status background_next(
        struct background *background, bool *committed_out);
/* Of a committed one, or one that failed. */
const char *background_path(const struct background *background);
int64_t background_step(const struct background *background);
/* ABANDONED or GONE; after a failure of background_next, on any rank. */
bool background_is_abandoned(const struct background *background);
bool background_is_abandoned_anywhere(const struct background *background);
bool background_is_gone(const struct background *background);
struct background_seconds { /* that this rank's threads took */
    double shard, commit;
};
struct background_seconds background_seconds(
        const struct background *background);
/* Not collective. One that is under way is given up: its thread ends soon, an
 * abandoned one when the disk lets it, which the job waits for no longer than
 * for any files; the next start sweeps what it leaves. NULL is nothing. */
void background_end(struct background *background);

#endif
