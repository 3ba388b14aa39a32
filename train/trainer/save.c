#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/saving.h"
#include "train/trainer/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The states of save.h. */
enum state { WRITING, WRITTEN, COMMITTING, COMMITTED };

struct save {
    struct saving saving;
    struct zero_snapshot *snapshot; /* NULL: the trainer is the worker */
    struct zero_view view;          /* of the snapshot, else of zero */
    const struct train_job *job;
    const int64_t *own;        /* saves.own */
    _Atomic int state;         /* enum state */
    atomic_bool is_waited_for; /* the trainer waits */
    atomic_bool is_stuck;      /* the watch has found its disk stuck */
    double updates_waited;     /* for the watch: earlier value */
    pthread_t thread;
    bool has_thread;
    enum zd_status status;     /* of the worker */
    struct zd_error error;     /* its record */
    double written, committed; /* seconds of this rank's worker */
    double began, stalled;     /* seconds that training was stopped */
};

static enum state state_of(const struct save *save)
{
    return (enum state)atomic_load(&save->state);
}

static void change(struct save *save, enum state to)
{
    assert(to == state_of(save) + 1 ||
           (state_of(save) == WRITTEN && to == COMMITTED));
    atomic_store(&save->state, (int)to);
}

/* --- the worker ----------------------------------------------------------- */

static enum zd_status write_shard(struct save *save)
{
    enum zd_status status = saving_write(&save->saving, &save->view);
    if (save->snapshot)
        zero_snapshot_leave(save->snapshot);
    return status;
}

/* Deletes old checkpoints; a failure is tolerated, because the new one is safe.
 */
static void retain(const struct save *save)
{
    enum zd_status status =
            checkpoint_retain(save->job, save->saving.step, save->own);
    if (status != ZD_OK)
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
    zd_error_clear();
}

/* Called by the watch's thread when the save has made no progress for
 * checkpoint.timeout. The job ends if training waits for the save, or an update
 * for its snapshot. */
static bool job_goes_on(void *ctx)
{
    struct save *save = ctx;
    double waited = zero_snapshot_waited(save->snapshot);
    bool waits =
            atomic_load(&save->is_waited_for) ||
            (atomic_load(&save->is_stuck) && waited > save->updates_waited);
    save->updates_waited = waited;
    if (!waits && !atomic_exchange(&save->is_stuck, true))
        zd_log_warning(
                "the disk of %s holds up the save of step %lld: no read, write "
                "or fsync of it was done for %.1f s (checkpoint.timeout); "
                "training goes on",
                comm_host(save->saving.writer.comm),
                (long long)save->saving.step, save->job->comm.files_timeout);
    return !waits;
}

static void work(struct save *save, enum state state)
{
    double began = clock_seconds();
    assert(state == WRITING || state == COMMITTING);
    save->status =
            state == WRITING ? write_shard(save) : saving_commit(&save->saving);
    *(state == WRITING ? &save->written : &save->committed) =
            clock_seconds() - began;
    save->error = *zd_error_get();
    zd_error_clear();
    if (state == COMMITTING && save->status == ZD_OK)
        retain(save);
}

static void *run_thread(void *ctx)
{
    struct save *save = ctx;
    enum state state = state_of(save);
    struct comm_files *files =
            comm_files_begin(save->saving.writer.comm, "save");
    comm_files_ask_first(files, job_goes_on, save);
    work(save, state);
    comm_files_end(files);
    change(save, state + 1);
    return NULL;
}

/* --- the trainer's part of one save --------------------------------------- */

/* Starts the worker in state WRITING or COMMITTING. Without a snapshot, or if
 * no thread can be created, the trainer does the work before this returns. */
static void start(struct save *save)
{
    enum state state = state_of(save);
    assert(!save->has_thread);
    save->is_waited_for = save->is_stuck = false; /* there is no thread */
    save->has_thread =
            save->snapshot &&
            thread_start(&save->thread, "zerod-save", run_thread, save) == 0;
    if (save->has_thread)
        return;
    work(save, state);
    change(save, state + 1);
}

/* Waits for the worker; from here on the job waits for the save. */
static void join(struct save *save)
{
    atomic_store(&save->is_waited_for, true);
    if (save->has_thread)
        pthread_join(save->thread, NULL);
    save->has_thread = false;
}

/* NULL is accepted. */
static void save_end(struct save *save, enum zd_status status)
{
    if (!save)
        return;
    join(save);
    if (save->saving.step >= 0)
        saving_end(&save->saving, status);
    free(save);
}

/* Takes the snapshot and starts the worker. */
static enum zd_status take(struct save *save)
{
    enum zd_status status = ZD_OK;
    if (save->snapshot)
        status = zero_snapshot_take(save->snapshot);
    if (status == ZD_OK)
        start(save);
    else
        zero_snapshot_leave(save->snapshot);
    return status;
}

/* All shards are written: starts the commit by rank 0's worker. */
static enum zd_status commit(struct save *save)
{
    bool is_first = comm_rank(save->saving.writer.comm) == 0;
    ZD_TRY(saving_gather(&save->saving));
    change(save, is_first ? COMMITTING : COMMITTED);
    if (is_first)
        start(save);
    return ZD_OK;
}

/* --- what the run makes of it --------------------------------------------- */

/* Collective. On failure no files remain. */
static enum zd_status begin(
        struct trainer *trainer, struct zero_snapshot *snapshot)
{
    struct checkpoint_writer *writer = &trainer->writer;
    struct saves *saves = &trainer->saves;
    struct save *save = zd_array(1, sizeof *save);
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    save->began = clock_seconds();
    save->job = trainer->job;
    save->own = saves->own;
    save->snapshot = snapshot;
    save->view = snapshot ? zero_snapshot_view(snapshot)
                          : zero_view_live(trainer->zero);
    saves->is_outdated = false;
    writer->last_event = events_last_id(trainer->events);
    writer->trainer_state = trainer_state_text(trainer);
    enum zd_status status =
            saving_begin(&save->saving, writer, &trainer->state);
    writer->trainer_state = NULL;
    ZD_THEN(status, comm_agree(trainer->comm, take(save)));
    save->stalled = clock_seconds() - save->began;
    rank_meter_add(trainer, PHASE_CHECKPOINT, save->began);
    if (status == ZD_OK)
        saves->current = save;
    else
        save_end(save, status);
    comm_work(trainer->comm, before);
    return status;
}

/* Collective. Times of a save: waiting for the writer, and writing, are the
 * slowest rank's. The time that training was stopped is the minimum over ranks:
 * its parts end for all at once, so the last rank waits for no one. The other
 * ranks' longer waits belong to the step; without the save they would be in the
 * next exchange. */
static enum zd_status slowest(
        const struct trainer *trainer, double *stall_out, double *write_out)
{
    const struct save *save = trainer->saves.current;
    int64_t micro[] = {
            (int64_t)(1e6 * zero_snapshot_waited(save->snapshot)),
            (int64_t)(-1e6 * save->stalled), (int64_t)(1e6 * save->written),
            (int64_t)(1e6 * save->committed)};
    ZD_TRY(comm_all_reduce_i64(
            trainer->comm, micro, sizeof micro / sizeof micro[0], COMM_MAX));
    *stall_out = 1e-6 * (double)(micro[0] - micro[1]);
    *write_out = 1e-6 * (double)(micro[2] + micro[3]);
    return ZD_OK;
}

/* `stall`: seconds that training was stopped; `write`: seconds of writing on
 * the slowest rank; `all`: total. */
static void tell_saved(
        const struct trainer *trainer, double all, double stall, double write)
{
    const struct saving *saving = &trainer->saves.current->saving;
    const char *path = trainer->last_checkpoint;
    if (!trainer_is_first(trainer))
        return;
    zd_log_info("saved %s", path);
    events_tell(
            trainer->events, "checkpoint", saving->step,
            json_pack(
                    "{s:s, s:f, s:f, s:f, s:I}", "path", path, "seconds", all,
                    "stall_seconds", stall, "write_seconds", write, "bytes",
                    manifest_bytes(saving->manifest)));
}

/* Reports the committed save and puts it at the front of `own`. */
static enum zd_status committed(struct trainer *trainer)
{
    struct saves *saves = &trainer->saves;
    const struct save *save = saves->current;
    double all = clock_seconds() - save->began, stall = all, write = all;
    if (save->snapshot) {
        ZD_TRY(slowest(trainer, &stall, &write));
        all = stall + write;
    }
    memmove(saves->own + 1, saves->own,
            sizeof saves->own - sizeof saves->own[0]);
    saves->own[0] = save->saving.step;
    saves->failed = 0;
    trainer->last_saved_step = saves->is_outdated ? -1 : save->saving.step;
    trainer->save_seconds = write;
    trainer->last_save_time = clock_seconds();
    strcpy(trainer->last_checkpoint, save->saving.final);
    tell_saved(trainer, all, stall, write);
    return ZD_OK;
}

/* Collective: makes the next change of state, waiting for unfinished workers. A
 * failure is the same on all ranks, with its record where it happened. The
 * command that requested a save gets its failure; the run counts failures of
 * the saves that it began itself. */
static enum zd_status go_on(struct trainer *trainer)
{
    struct save *save = trainer->saves.current;
    const struct asked_save *asked = &trainer->saves.asked;
    double began = clock_seconds();
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    join(save);
    if (save->status != ZD_OK)
        zd_error_set(&save->error);
    enum zd_status status = comm_agree(trainer->comm, save->status);
    bool is_committed = status == ZD_OK && state_of(save) == COMMITTED;
    if (status == ZD_OK && !is_committed)
        status = commit(save);
    save->stalled += clock_seconds() - began;
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
    if (is_committed)
        status = committed(trainer);
    if (status != ZD_OK || is_committed) {
        trainer->saves.current = NULL;
        save_end(save, status);
        if (asked->ended && status != ZD_ERR_PEER)
            status = asked->ended(trainer, status);
    }
    comm_work(trainer->comm, before);
    return status;
}

/* --- failures ------------------------------------------------------------- */

enum { FAILED_SAVES_MAX = 3 };

/* Collective. Rank 0 reports the failure for any rank, because its warnings are
 * events and in the status. */
static enum zd_status tell_failed(
        struct trainer *trainer, int64_t step, const char *what_now)
{
    struct zd_error error;
    ZD_TRY(trainer_share_error(trainer, &error));
    if (error.status != ZD_OK && trainer_is_first(trainer))
        zd_log_warning(
                "checkpoint at step %lld was not saved, %s: %s",
                (long long)step, what_now, error.what);
    return ZD_OK;
}

/* Collective. Reports and tolerates a failure, unless the save must succeed or
 * is the third failed one in a row. A lost transport is not tolerated. */
static enum zd_status tolerate(
        struct trainer *trainer, enum zd_status status, int64_t step, bool must)
{
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    /* for timed saves the next try is an interval later, not in the next step
     */
    trainer->last_save_time = clock_seconds();
    if (!must && ++trainer->saves.failed < FAILED_SAVES_MAX)
        return tell_failed(trainer, step, "training goes on");
    struct zd_error error = *zd_error_get();
    if (error.status != ZD_OK) {
        size_t used = strlen(error.help);
        if (!must)
            snprintf(
                    error.help + used, sizeof error.help - used,
                    "%sthe run ends: %d saves in a row have failed",
                    used ? "\n" : "", FAILED_SAVES_MAX);
        error.status = ZD_ERR_IO;
        zd_error_set(&error);
    }
    return ZD_ERR_IO;
}

/* --- saves of a run ------------------------------------------------------- */

bool save_is_writing(const struct trainer *trainer)
{
    const struct save *save = trainer->saves.current;
    return save && (state_of(save) == WRITING || state_of(save) == COMMITTING);
}

bool save_is_stuck(const struct trainer *trainer)
{
    return save_is_writing(trainer) &&
           atomic_load(&trainer->saves.current->is_stuck);
}

enum zd_status save_check(struct trainer *trainer)
{
    const struct save *save = trainer->saves.current;
    enum zd_status status = ZD_OK;
    if (!save)
        return ZD_OK;
    if (save_is_stuck(trainer))
        status = ZD_FAIL(
                ZD_ERR_IO, "E0816",
                "the disk of %s still holds up the save of step %lld: no read, "
                "write or fsync of it was done for %.1f s (checkpoint.timeout)",
                comm_host(trainer->comm), (long long)save->saving.step,
                save->job->comm.files_timeout);
    return comm_agree(trainer->comm, status);
}

enum zd_status save_poll(struct trainer *trainer, bool is_writing)
{
    if (!trainer->saves.current || is_writing)
        return ZD_OK;
    int64_t step = trainer->saves.current->saving.step;
    return tolerate(trainer, go_on(trainer), step, false);
}

enum zd_status save_settle(struct trainer *trainer)
{
    while (trainer->saves.current)
        ZD_TRY(save_poll(trainer, false));
    return ZD_OK;
}

void save_outdated(struct trainer *trainer)
{
    trainer->last_saved_step = -1;
    trainer->saves.is_outdated = true;
}

/* Saves while all ranks wait. */
static enum zd_status save_here(struct trainer *trainer)
{
    enum train_run_state before = trainer->run_state;
    trainer_tell_state(trainer, RUN_CHECKPOINTING);
    struct comm_files *files = comm_files_begin(trainer->comm, "save");
    enum zd_status status = begin(trainer, NULL);
    while (status == ZD_OK && trainer->saves.current)
        status = go_on(trainer);
    comm_files_end(files);
    trainer_tell_state(trainer, before);
    return status;
}

static enum zd_status make(
        struct trainer *trainer, enum save_reason reason, bool waits)
{
    struct saves *saves = &trainer->saves;
    bool is_under_way = saves->current && !saves->is_outdated &&
                        saves->current->saving.step == trainer->state.step;
    if (reason == SAVE_ASKED && !waits && is_under_way)
        return ZD_OK;
    if (reason == SAVE_TIMED || reason == SAVE_ASKED)
        ZD_TRY(save_check(trainer));
    ZD_TRY(save_settle(trainer)); /* only one save at a time */
    if (trainer->last_saved_step == trainer->state.step)
        return ZD_OK;
    return waits ? save_here(trainer) : begin(trainer, trainer->snapshot);
}

enum zd_status trainer_save(struct trainer *trainer, enum save_reason reason)
{
    int64_t step = trainer->state.step;
    bool may_go_on = reason == SAVE_TIMED || reason == SAVE_ASKED;
    bool waits = !may_go_on || !trainer->snapshot;
    enum zd_status status = make(trainer, reason, waits);
    switch (reason) {
    case SAVE_TIMED:
    case SAVE_LAST:
        return tolerate(trainer, status, step, reason == SAVE_LAST);
    case SAVE_FAILING: /* must not hide the failure that ends the run */
        return status == ZD_OK || status == ZD_ERR_PEER
                       ? status
                       : tell_failed(trainer, step, "the run ends");
    case SAVE_ASKED:
    case SAVE_STOPPING:
        break;
    }
    return status;
}

bool saves_end(struct trainer *trainer)
{
    struct save *save = trainer->saves.current;
    struct timespec until;
    trainer->saves.current = NULL;
    if (save && save->has_thread && trainer->job->comm.files_timeout > 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (time_t)ceil(
                save->is_stuck ? 0 : trainer->job->comm.files_timeout);
        if (pthread_timedjoin_np(save->thread, NULL, &until) != 0)
            return false;
        save->has_thread = false;
    }
    struct zd_error cause = *zd_error_get();
    save_end(save, ZD_OK); /* the next start removes its files */
    zd_error_set(&cause);
    return true;
}
