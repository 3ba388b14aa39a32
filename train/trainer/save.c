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

/* The changes of state that save.h has. */
enum state { WRITING, WRITTEN, COMMITTING, COMMITTED };

struct save {
    struct saving saving;
    struct zero_snapshot *snapshot; /* NULL: the trainer is the worker */
    struct zero_view view;          /* of it, else of zero */
    const struct train_job *job;
    int64_t own[OWN], step; /* as saves.own, once it is committed */
    char path[PATH_MAX];
    _Atomic int state;         /* enum state */
    atomic_bool is_waited_for; /* by the trainer */
    atomic_bool is_stuck;      /* the watch has found its disk standing still */
    double updates_waited;     /* the watch's: as it was then */
    pthread_t thread;
    bool has_thread;
    enum zd_status status;        /* of the worker, and .. */
    struct zd_error error;        /* .. its record */
    double written, committed;    /* seconds that this rank's worker took */
    double began, stalls[STALLS]; /* seconds that training was held up */
    int stall_count;
};

static enum state state_of(const struct save *save)
{
    return (enum state)atomic_load(&save->state);
}

static void change(struct save *save, enum state from, enum state to)
{
    int was = (int)from;
    bool is_next = to == from + 1 || (from == WRITTEN && to == COMMITTED);
    assert(is_next);
    bool changed = atomic_compare_exchange_strong(&save->state, &was, (int)to);
    assert(changed);
    (void)is_next;
    (void)changed;
}

/* --- the worker ----------------------------------------------------------- */

static enum zd_status write_shard(struct save *save)
{
    enum zd_status status = saving_write(&save->saving, &save->view);
    if (save->snapshot)
        zero_snapshot_leave(save->snapshot);
    return status;
}

/* The new one is safe; old ones may stay a while. */
static void retain(const struct save *save)
{
    enum zd_status status =
            checkpoint_retain(save->job, save->step, save->own, OWN);
    if (status != ZD_OK)
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
    zd_error_clear();
}

/* On the watch's thread: nothing of its files was done for checkpoint.timeout.
 * The job ends if training waits for the save, or an update for its snapshot.
 */
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
                comm_host(save->saving.writer.comm), (long long)save->step,
                save->job->comm.files_timeout);
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
    change(save, state, state + 1);
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
    save->is_waited_for = save->is_stuck = false; /* no thread is there */
    int error = thread_start(&save->thread, "zerod-save", run_thread, save);
    save->has_thread = error == 0;
    if (error)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "no thread for a checkpoint: %s",
                strerror(error));
    return ZD_OK;
}

/* From here on the save is one that the job waits for. */
static void join(struct save *save)
{
    atomic_store(&save->is_waited_for, true);
    if (save->has_thread)
        pthread_join(save->thread, NULL);
    save->has_thread = false;
}

/* NULL is nothing. */
static void save_end(struct save *save, enum zd_status status)
{
    if (!save)
        return;
    join(save);
    if (save->saving.step >= 0)
        saving_end(&save->saving, status);
    free(save);
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
    save->job = trainer->job;
    save->began = clock_seconds();
    save->step = save->own[0] = trainer->state.step;
    memcpy(save->own + 1, trainer->saves.own, (OWN - 1) * sizeof *save->own);
    enum zd_status status =
            saving_begin(saving, &trainer->writer, &trainer->state);
    if (status == ZD_OK) {
        strcpy(save->path, saving->final);
        save->snapshot = snapshot;
        save->view = snapshot ? zero_snapshot_view(snapshot)
                              : zero_view_live(trainer->zero);
        status = comm_agree(trainer->comm, take(save));
    }
    if (status == ZD_OK)
        trainer->saves.current = save;
    else
        save_end(save, status);
    return status;
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

/* Collective: the trainer's next change, once the workers have come to an end.
 * A failure is the same on all ranks, with its record where it came about. */
static enum zd_status save_next(struct save *save, bool *committed_out)
{
    join(save);
    if (save->status != ZD_OK)
        zd_error_set(&save->error);
    enum zd_status status = comm_agree(save->saving.writer.comm, save->status);
    *committed_out = status == ZD_OK && state_of(save) == COMMITTED;
    return status == ZD_OK && !*committed_out ? commit(save) : status;
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

static enum zd_status begin(
        struct trainer *trainer, struct zero_snapshot *snapshot)
{
    double began = clock_seconds();
    struct checkpoint_writer *writer = &trainer->writer;
    struct saves *saves = &trainer->saves;
    char *text = trainer_state_text(trainer);
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    saves->is_outdated = false;
    writer->harden_rows = harden_rows;
    writer->rows = trainer;
    writer->last_event = events_last_id(trainer->events);
    writer->trainer_state = text;
    enum zd_status status = save_begin(trainer, snapshot);
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
        trainer->saves.current = NULL;
        save_end(save, status);
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
    struct zd_error error;
    ZD_TRY(trainer_share_error(trainer, &error));
    if (error.status != ZD_OK && trainer_is_first(trainer))
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
                comm_host(trainer->comm), (long long)save->step,
                save->job->comm.files_timeout);
    return comm_agree(trainer->comm, status);
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
    if (reason == SAVE_TIMED || reason == SAVE_ASKED)
        ZD_TRY(save_check(trainer));
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
    save_end(save, ZD_OK); /* the next start sweeps its files */
    zd_error_set(&cause);
    return true;
}
