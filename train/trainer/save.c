#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "train/checkpoint/saving.h"
#include "train/trainer/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A save in the background holds up training as it begins, when all shards are
 * written, and when it is committed. */
enum { STALLS = 3 };
enum { OWN = sizeof((struct saves *)0)->own / sizeof(int64_t) };

/* The worker's changes of state are each one more (see save.h). */
enum state { WRITING, WRITTEN, COMMITTING, COMMITTED, ABANDONED, GONE, STATES };

struct save {
    struct saving saving;
    struct zero_snapshot *snapshot; /* NULL: the trainer is the worker */
    struct zero_view view;          /* of it, else of zero */
    const struct train_job *job;
    int64_t own[OWN], step; /* as saves.own, once it is committed */
    char path[PATH_MAX];
    _Atomic int state;       /* enum state */
    atomic_bool is_given_up; /* the thread is to end */
    pthread_mutex_t lock;    /* held to read the snapshot, and to abandon */
    bool is_waited_for;      /* under it: by the trainer */
    bool has_left;           /* under it: the snapshot */
    pthread_t thread;
    bool has_thread;
    enum zd_status status;        /* of the worker, and .. */
    struct zd_error error;        /* .. its record */
    double written, committed;    /* seconds that this rank's worker took */
    double began, stalls[STALLS]; /* seconds that training was held up */
    int stall_count;
    bool is_abandoned_anywhere; /* known after a failure */
};

/* The one way in which the state changes; false: the watch was first. */
static bool change(struct save *save, enum state from, enum state to)
{
    static const bool legal[STATES][STATES] = {
            [WRITING] = {[WRITTEN] = true, [ABANDONED] = true},
            [WRITTEN] = {[COMMITTING] = true, [COMMITTED] = true},
            [COMMITTING] = {[COMMITTED] = true, [ABANDONED] = true},
            [ABANDONED] = {[GONE] = true}};
    int was = (int)from;
    assert(legal[from][to]);
    return atomic_compare_exchange_strong(&save->state, &was, (int)to);
}

static enum state state_of(const struct save *save)
{
    return (enum state)atomic_load(&save->state);
}

static bool is_abandoned(const struct save *save)
{
    return state_of(save) == ABANDONED || state_of(save) == GONE;
}

/* --- the worker ----------------------------------------------------------- */

/* The snapshot is the thread's until the lock is let go. */
static enum zd_status lock_snapshot(struct save *save)
{
    pthread_mutex_lock(&save->lock);
    if (!atomic_load(&save->is_given_up)) {
        assert(!save->has_left);
        return ZD_OK;
    }
    pthread_mutex_unlock(&save->lock);
    return ZD_FAIL(ZD_ERR_PEER, "E0807", "the save was given up");
}

static enum zd_status read_unless_given_up(
        const void *ctx, int range, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    struct save *save = (struct save *)(uintptr_t)ctx;
    ZD_TRY(lock_snapshot(save));
    enum zd_status status = save->view.read(
            save->view.ctx, range, lane, begin, count, values, scales);
    pthread_mutex_unlock(&save->lock);
    return status;
}

static enum zd_status blocks_unless_given_up(
        const void *ctx, int range, float *values)
{
    struct save *save = (struct save *)(uintptr_t)ctx;
    ZD_TRY(lock_snapshot(save));
    enum zd_status status = save->view.blocks(save->view.ctx, range, values);
    pthread_mutex_unlock(&save->lock);
    return status;
}

/* Under the lock: the snapshot has no owner from here on. */
static void leave(struct save *save)
{
    if (!save->has_left && save->snapshot)
        zero_snapshot_leave(save->snapshot);
    save->has_left = true;
}

static enum zd_status write_shard(struct save *save)
{
    struct zero_view guarded = {
            .ctx = save,
            .read = read_unless_given_up,
            .blocks = blocks_unless_given_up,
            .backwards = save->view.backwards};
    enum zd_status status = saving_write(
            &save->saving, save->snapshot ? &guarded : &save->view);
    pthread_mutex_lock(&save->lock);
    leave(save);
    pthread_mutex_unlock(&save->lock);
    return status;
}

/* The new one is safe; old ones may stay a while. */
static void retain(const struct save *save)
{
    const struct train_job *job = save->job;
    enum zd_status status = checkpoint_retain(
            job->job.output_dir, job->checkpoint.save_total_limit, save->step,
            job, save->own, OWN);
    if (status != ZD_OK)
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
    zd_error_clear();
}

/* On the watch's thread: nothing of its files is done. Unless the thread reads
 * the snapshot, or the trainer waits, the save is given up and not the job. */
static bool abandon(void *ctx)
{
    struct save *save = ctx;
    if (pthread_mutex_trylock(&save->lock) != 0)
        return false;
    enum state state = state_of(save);
    bool is_ours = !save->is_waited_for &&
                   (state == WRITING || state == COMMITTING) &&
                   change(save, state, ABANDONED);
    if (is_ours) {
        atomic_store(&save->is_given_up, true);
        leave(save);
    }
    pthread_mutex_unlock(&save->lock);
    return is_ours;
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
    if (state == COMMITTING && save->status == ZD_OK &&
        !atomic_load(&save->is_given_up))
        retain(save);
}

static void *run_thread(void *ctx)
{
    struct save *save = ctx;
    enum state state = state_of(save);
    struct comm_files *files =
            comm_files_begin(save->saving.writer.comm, "save");
    comm_files_give_up(files, abandon, save);
    work(save, state);
    comm_files_end(files); /* from here on it is not abandoned */
    if (!change(save, state, state + 1))
        change(save, ABANDONED, GONE);
    return NULL;
}

/* --- the trainer's part of one save --------------------------------------- */

/* The worker begins, WRITING or COMMITTING; one that is the trainer is done
 * when this returns. */
static enum zd_status start(struct save *save)
{
    enum state state = state_of(save);
    assert(!save->has_thread);
    if (!save->snapshot) {
        work(save, state);
        change(save, state, state + 1);
        return ZD_OK;
    }
    save->is_waited_for = false; /* no thread is there */
    int error = thread_start(&save->thread, "zerod-save", run_thread, save);
    save->has_thread = error == 0;
    if (error)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "no thread for a checkpoint: %s",
                strerror(error));
    return ZD_OK;
}

/* From here on the save is one that the job waits for. */
static void wait_for(struct save *save)
{
    pthread_mutex_lock(&save->lock);
    save->is_waited_for = true;
    pthread_mutex_unlock(&save->lock);
}

/* Its status, with its record as this thread's. */
static enum zd_status join(struct save *save)
{
    struct comm *comm = save->saving.writer.comm;
    wait_for(save);
    if (is_abandoned(save))
        return ZD_FAIL(
                ZD_ERR_IO, "E0816",
                "the save of rank %d on %s is given up: no read, write or "
                "fsync of it was done for %.1f s (checkpoint.timeout)",
                comm_rank(comm), comm_host(comm),
                save->job->comm.files_timeout);
    if (save->has_thread)
        pthread_join(save->thread, NULL);
    save->has_thread = false;
    if (save->status != ZD_OK)
        zd_error_set(&save->error);
    return save->status;
}

static void save_free(struct save *save)
{
    pthread_mutex_destroy(&save->lock);
    free(save);
}

/* Of one that is given up, also by the watch. */
static void end_thread(struct save *save)
{
    if (!save->has_thread)
        return;
    struct comm_files *files =
            comm_files_begin(save->saving.writer.comm, "save");
    atomic_store(&save->is_given_up, true);
    wait_for(save);
    pthread_join(save->thread, NULL);
    save->has_thread = false;
    comm_files_end(files);
}

/* At the end of the run: the thread has ended, or does within
 * checkpoint.timeout (if it was abandoned: now). True: the disk holds it up,
 * and it is left behind with `save`, which must not be freed; what else it
 * reads from here on is its own (checkpoint/saving.h). */
static bool leaves_thread(struct save *save)
{
    struct timespec until;
    double seconds = is_abandoned(save) ? 0 : save->job->comm.files_timeout;
    if (!save->has_thread || (seconds <= 0 && state_of(save) != ABANDONED))
        return false;
    atomic_store(&save->is_given_up, true);
    wait_for(save);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)ceil(seconds);
    save->has_thread = false;
    if (pthread_timedjoin_np(save->thread, NULL, &until) == 0)
        return false;
    pthread_detach(save->thread);
    zd_log_warning(
            "the disk still holds up a file of the save of step %lld on %s; "
            "the end of the run does not wait for it",
            (long long)save->step, comm_host(save->saving.writer.comm));
    return true;
}

/* NULL is nothing. */
static void save_end(struct save *save)
{
    if (!save)
        return;
    struct zd_error cause = *zd_error_get();
    end_thread(save);
    zd_error_set(&cause);
    if (save->saving.step >= 0)
        saving_end(&save->saving, ZD_OK);
    save_free(save);
}

/* The snapshot is taken and the workers begin. */
static enum zd_status take(struct save *save)
{
    enum zd_status status = ZD_OK;
    if (save->snapshot)
        status = zero_snapshot_take(save->snapshot);
    if (status == ZD_OK)
        status = start(save);
    if (save->snapshot && !save->has_thread)
        zero_snapshot_leave(save->snapshot);
    return status;
}

/* Collective. On a failure nothing is left. */
static enum zd_status save_begin(
        struct trainer *trainer, struct zero_snapshot *snapshot)
{
    struct save *save = zd_array(1, sizeof *save);
    struct saving *saving = &save->saving;
    pthread_mutex_init(&save->lock, NULL);
    save->job = trainer->job;
    save->began = clock_seconds();
    save->step = save->own[0] = trainer->state.step;
    memcpy(save->own + 1, trainer->saves.own, (OWN - 1) * sizeof *save->own);
    enum zd_status status =
            saving_begin(saving, &trainer->writer, &trainer->state);
    if (status != ZD_OK) {
        save_free(save);
        return status;
    }
    saving->is_given_up = &save->is_given_up;
    strcpy(save->path, saving->final);
    save->snapshot = snapshot;
    save->view = snapshot ? zero_snapshot_view(snapshot)
                          : zero_view_live(trainer->zero);
    status = comm_agree(trainer->comm, take(save));
    if (status != ZD_OK) {
        struct zd_error cause = *zd_error_get();
        end_thread(save);
        zd_error_set(&cause);
        saving_end(saving, status);
        save_free(save);
        return status;
    }
    trainer->saves.current = save;
    return ZD_OK;
}

/* All shards are written: rank 0's worker commits them. That it has none is
 * told with the next change, as what a worker failed at. */
static enum zd_status commit(struct save *save)
{
    ZD_TRY(saving_gather(&save->saving));
    if (comm_rank(save->saving.writer.comm) > 0) {
        change(save, WRITTEN, COMMITTED);
        return ZD_OK;
    }
    change(save, WRITTEN, COMMITTING);
    if (start(save) == ZD_OK)
        return ZD_OK;
    save->error = *zd_error_get();
    save->status = save->error.status;
    zd_error_clear();
    change(save, COMMITTING, COMMITTED);
    return ZD_OK;
}

/* What is left of a failed one goes; where files stand still anywhere it is
 * left alone: the next save sweeps. */
static enum zd_status fail(struct save *save, enum zd_status status)
{
    struct zd_error cause = *zd_error_get();
    bool is_here = is_abandoned(save);
    int64_t anywhere = is_here;
    zd_error_clear();
    if (status != ZD_ERR_PEER)
        ZD_TRY(comm_all_reduce_i64(
                save->saving.writer.comm, &anywhere, 1, COMM_MAX));
    zd_error_set(&cause);
    save->is_abandoned_anywhere = anywhere;
    if (!is_here) /* else the thread's */
        saving_end(&save->saving, anywhere ? ZD_OK : status);
    return status;
}

/* Collective: the trainer's next change, once the workers have come to an end.
 * After a failure, which is the same on all ranks, nothing is left of the save
 * but files of an abandoned one. */
static enum zd_status save_next(struct save *save, bool *committed_out)
{
    enum zd_status status = comm_agree(save->saving.writer.comm, join(save));
    enum state state = state_of(save);
    *committed_out = status == ZD_OK && state == COMMITTED;
    if (status != ZD_OK)
        return fail(save, status);
    assert(state == WRITTEN || state == COMMITTED);
    if (state == WRITTEN)
        status = commit(save);
    if (status != ZD_OK || *committed_out)
        saving_end(&save->saving, status);
    return status;
}

/* --- what the run makes of it --------------------------------------------- */

/* The rows of the steps a checkpoint holds are on disk before it is, and so is
 * what happened: the worker that commits waits for it. */
static enum zd_status harden_rows(const void *ctx)
{
    const struct trainer *trainer = ctx;
    ZD_TRY(file_writer_sync(trainer->metrics));
    return events_sync(trainer->events);
}

/* Collective. No other save begins while the thread of one that was given up
 * is there: it may still write where this one would. */
static enum zd_status end_abandoned(struct trainer *trainer)
{
    struct saves *saves = &trainer->saves;
    enum zd_status status = ZD_OK;
    if (!saves->has_abandoned)
        return ZD_OK;
    if (saves->abandoned && state_of(saves->abandoned) != GONE) {
        status = ZD_FAIL(
                ZD_ERR_IO, "E0816",
                "on %s the disk still holds up a file of the save of step "
                "%lld, which was given up (checkpoint.timeout)",
                comm_host(trainer->comm), (long long)saves->abandoned->step);
    } else {
        save_end(saves->abandoned);
        saves->abandoned = NULL;
    }
    status = comm_agree(trainer->comm, status);
    saves->has_abandoned = status != ZD_OK;
    return status;
}

static enum zd_status begin(
        struct trainer *trainer, struct zero_snapshot *snapshot)
{
    double began = clock_seconds();
    struct checkpoint_writer *writer = &trainer->writer;
    struct saves *saves = &trainer->saves;
    char *text = trainer_state_text(trainer);
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    saves->is_outdated = false;
    enum zd_status status = end_abandoned(trainer);
    writer->harden_rows = harden_rows;
    writer->rows = trainer;
    writer->last_event = events_last_id(trainer->events);
    writer->trainer_state = text;
    if (status == ZD_OK)
        status = save_begin(trainer, snapshot);
    writer->harden_rows = NULL; /* an export's */
    writer->trainer_state = NULL;
    free(text);
    if (status == ZD_OK)
        saves->current->stalls[saves->current->stall_count++] =
                clock_seconds() - began;
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
    comm_work(trainer->comm, before);
    return status;
}

/* Collective. Of waits for the writer, and of writing, the slowest rank's. A
 * part of a save ends for all ranks at once, so what it takes is the time from
 * when the last has come to it: the least of all ranks'. What the others wait
 * until then is a step's, which would else be the next exchange's. */
static enum zd_status slowest(
        const struct trainer *trainer, double *stall_out, double *write_out)
{
    enum { WAITED, SHARD, COMMIT, PARTS, COUNT = PARTS + STALLS };
    const struct save *save = trainer->saves.current;
    int64_t micro[COUNT] = {
            [WAITED] = (int64_t)(1e6 * zero_snapshot_waited(save->snapshot)),
            [SHARD] = (int64_t)(1e6 * save->written),
            [COMMIT] = (int64_t)(1e6 * save->committed)};
    for (int i = 0; i < save->stall_count; i++)
        micro[PARTS + i] = (int64_t)(-1e6 * save->stalls[i]);
    ZD_TRY(comm_all_reduce_i64(trainer->comm, micro, COUNT, COMM_MAX));
    *stall_out = 1e-6 * (double)micro[WAITED];
    for (int i = PARTS; i < COUNT; i++)
        *stall_out -= 1e-6 * (double)micro[i];
    *write_out = 1e-6 * (double)(micro[SHARD] + micro[COMMIT]);
    return ZD_OK;
}

/* As told, at the front of this process's own. */
static enum zd_status committed(struct trainer *trainer)
{
    struct saves *saves = &trainer->saves;
    const struct save *save = saves->current;
    double all = clock_seconds() - save->began, stall = all, write = all;
    if (save->snapshot) {
        ZD_TRY(slowest(trainer, &stall, &write));
        all = stall + write;
    }
    memcpy(saves->own, save->own, sizeof saves->own);
    saves->failed = 0;
    trainer->last_saved_step = saves->is_outdated ? -1 : save->step;
    trainer->save_seconds = write;
    trainer->last_save_time = clock_seconds();
    strcpy(trainer->last_checkpoint, save->path);
    trainer_tell_saved(
            trainer, &(struct train_saved){
                             .step = save->step,
                             .path = save->path,
                             .seconds = all,
                             .stall_seconds = stall,
                             .write_seconds = write});
    return ZD_OK;
}

/* The command that asked for it hears of a failure; the run counts those of its
 * own. */
static enum zd_status asked_ended(
        struct trainer *trainer, enum zd_status status)
{
    struct asked_save *asked = &trainer->saves.asked;
    if (asked->state != ASKED_WRITING || status == ZD_ERR_PEER)
        return status;
    asked->state = ASKED_ENDED;
    asked->status = status;
    asked->error = *zd_error_get();
    strcpy(asked->path, trainer->last_checkpoint);
    zd_error_clear();
    return ZD_OK;
}

/* One that was given up stays until its thread is gone. */
static void end_current(struct trainer *trainer)
{
    struct saves *saves = &trainer->saves;
    struct save *save = saves->current;
    saves->current = NULL;
    saves->has_abandoned = save->is_abandoned_anywhere;
    assert(!saves->abandoned);
    if (is_abandoned(save))
        saves->abandoned = save;
    else
        save_end(save);
}

/* The next change, waiting for the workers where they are not done. */
static enum zd_status go_on(struct trainer *trainer)
{
    struct save *save = trainer->saves.current;
    bool is_committed = false;
    double began = clock_seconds();
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    enum zd_status status = save_next(save, &is_committed);
    assert(save->stall_count < STALLS);
    save->stalls[save->stall_count++] = clock_seconds() - began;
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
    if (is_committed)
        status = committed(trainer);
    if (status != ZD_OK || is_committed) {
        end_current(trainer);
        status = asked_ended(trainer, status);
    }
    comm_work(trainer->comm, before);
    return status;
}

/* --- failures ------------------------------------------------------------- */

enum { FAILED_SAVES_MAX = 3 };

/* Collective. Whichever rank has the record, rank 0 says it: its warnings are
 * events, and in the status. */
static enum zd_status tell_failed(
        struct trainer *trainer, int64_t step, const char *what_now)
{
    struct zd_error error = *zd_error_get();
    int64_t teller =
            error.status != ZD_OK ? (int64_t)comm_rank(trainer->comm) : -1;
    zd_error_clear();
    ZD_TRY(comm_all_reduce_i64(trainer->comm, &teller, 1, COMM_MAX));
    if (teller < 0)
        return ZD_OK;
    ZD_TRY(comm_broadcast(trainer->comm, &error, sizeof error, (int)teller));
    if (trainer_is_first(trainer))
        zd_log_warning(
                "checkpoint at step %lld was not saved, %s: %s",
                (long long)step, what_now, error.what);
    return ZD_OK;
}

/* Collective. A failure is told and tolerated, unless the save must succeed or
 * is the third in a row. A transport that is gone cannot be tolerated. */
static enum zd_status tolerate(
        struct trainer *trainer, enum zd_status status, int64_t step, bool must)
{
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    /* by time: the next try is an interval later, not in the next step */
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

enum zd_status save_poll(struct trainer *trainer, bool is_writing)
{
    if (!trainer->saves.current || is_writing)
        return ZD_OK;
    int64_t step = trainer->saves.current->step;
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

/* While everyone waits. */
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
                        saves->current->step == trainer->state.step;
    if (reason == SAVE_ASKED && !waits && is_under_way)
        return ZD_OK;
    ZD_TRY(save_settle(trainer)); /* one at a time */
    if (trainer->last_saved_step == trainer->state.step)
        return ZD_OK;
    return waits ? save_here(trainer) : begin(trainer, trainer->snapshot);
}

enum zd_status trainer_save(struct trainer *trainer, enum save_reason reason)
{
    struct asked_save *asked = &trainer->saves.asked;
    int64_t step = trainer->state.step;
    bool may_go_on = reason == SAVE_TIMED || reason == SAVE_ASKED;
    bool waits = !may_go_on || !trainer->snapshot;
    assert(reason != SAVE_ASKED || asked->state == ASKED_NOT);
    enum zd_status status = make(trainer, reason, waits);
    switch (reason) {
    case SAVE_TIMED:
    case SAVE_LAST:
        return tolerate(trainer, status, step, reason == SAVE_LAST);
    case SAVE_FAILING: /* the failure that ends the run is not hidden by this */
        return status == ZD_OK || status == ZD_ERR_PEER
                       ? status
                       : tell_failed(trainer, step, "the run ends");
    case SAVE_ASKED:
    case SAVE_STOPPING:
        break;
    }
    ZD_TRY(status);
    if (reason == SAVE_ASKED && trainer->saves.current) {
        asked->state = ASKED_WRITING;
        asked->step = step;
    }
    return ZD_OK;
}

void saves_end(struct trainer *trainer)
{
    struct saves *saves = &trainer->saves;
    struct save *all[] = {saves->current, saves->abandoned};
    for (int i = 0; i < 2; i++)
        if (all[i] && !leaves_thread(all[i]))
            save_end(all[i]);
    saves->current = saves->abandoned = NULL;
}
