/* save.c - when a save fails, and what the end of a run leaves behind. */
#include "base/clock.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "model/adapters/merge.h"
#include "train/checkpoint/export.h"
#include "train/trainer/trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED_SAVES_MAX = 3 };

/* The rows of the steps a checkpoint holds are on disk before it is, and so is
 * what happened: rank 0's thread that commits waits for it. */
static enum zd_status harden_rows(const void *ctx)
{
    const struct trainer *trainer = ctx;
    ZD_TRY(metrics_sync(trainer->metrics));
    return events_sync(trainer->events);
}

/* As told, at the front of this process's own. */
static void committed(struct trainer *trainer, const struct train_saved *saved)
{
    int64_t *own = trainer->own_commits;
    memmove(own + 1, own, sizeof trainer->own_commits - sizeof *own);
    own[0] = saved->step;
    trainer->failed_saves = 0;
    trainer->last_saved_step = saved->step;
    trainer->save_seconds = saved->write_seconds;
    trainer->last_save_time = clock_seconds();
    strcpy(trainer->last_checkpoint, saved->path);
    trainer_tell_saved(trainer, saved);
}

static enum zd_status retain(struct trainer *trainer)
{
    enum zd_status status = ZD_OK;
    const struct train_job *job = trainer->job;
    const int64_t *own = trainer->own_commits;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    status = checkpoint_retain(
            job->job.output_dir, job->checkpoint.save_total_limit,
            trainer->state.step, job, own,
            (int)(sizeof trainer->own_commits / sizeof *own));
    if (status != ZD_OK) { /* the new one is safe; old ones stay a while */
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
        zd_error_clear();
    }
    return ZD_OK;
}

/* What the writer says of the run as it is now; *text_out is for forget. */
static void tell_writer(struct trainer *trainer, char **text_out)
{
    trainer->writer.harden_rows = harden_rows;
    trainer->writer.rows = trainer;
    trainer->writer.last_event = events_last_id(trainer->events);
    *text_out = trainer_state_text(trainer);
    trainer->writer.trainer_state = *text_out;
}

static void forget(struct trainer *trainer, char *text)
{
    trainer->writer.harden_rows = NULL; /* an export's */
    trainer->writer.trainer_state = NULL;
    free(text);
}

/* Collective. Whichever rank has the record, rank 0 says it: its warnings are
 * events, and in the status. */
static enum zd_status tell_failed(struct trainer *trainer, int64_t step)
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
                "checkpoint at step %lld was not saved, training goes "
                "on: %s",
                (long long)step, error.what);
    return ZD_OK;
}

/* A failed save of `step` is survived, unless it `must` succeed or is the
 * third in a row. */
static enum zd_status survive(
        struct trainer *trainer, enum zd_status status, int64_t step, bool must)
{
    /* a transport that is gone: nothing to survive */
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    if (must || ++trainer->failed_saves == FAILED_SAVES_MAX) {
        struct zd_error error = *zd_error_get();
        if (error.status != ZD_OK) {
            error.status = ZD_ERR_IO;
            zd_error_set(&error);
        }
        return ZD_ERR_IO;
    }
    return tell_failed(trainer, step);
}

/* --- in the background ---------------------------------------------------- */

/* CPUs of this rank's share that it does not compute on. */
static int idle_cpus(const struct trainer *trainer)
{
    int mask = device_affinity_cpus(), online = device_online_cpus();
    int ranks = comm_local_size(trainer->comm);
    int idle = device_rank_cpus(mask, online, ranks) -
               device_threads(&trainer->job->device, mask, online, ranks);
    return idle > 0 ? idle : 0;
}

void trainer_warm_snapshot(struct trainer *trainer)
{
    int spare = device_spare_cpus(
            &trainer->job->device, device_affinity_cpus(), device_online_cpus(),
            comm_local_size(trainer->comm));
    if (!trainer->snapshot)
        return;
    zero_snapshot_help(trainer->snapshot, idle_cpus(trainer));
    zero_snapshot_warm(trainer->snapshot, spare > 0);
}

/* Of the next of the save's parts. */
static void add_stall(struct trainer *trainer, double began)
{
    assert(trainer->stall_count < SAVE_PARTS);
    trainer->stalls[trainer->stall_count++] = clock_seconds() - began;
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
}

/* Collective. No other save begins while the thread of one that was given up
 * is there: it may still write where this one would. */
static enum zd_status end_abandoned(struct trainer *trainer)
{
    struct background *abandoned = trainer->abandoned;
    enum zd_status status = ZD_OK;
    if (!trainer->has_abandoned)
        return ZD_OK;
    if (abandoned && !background_is_gone(abandoned)) {
        status = ZD_FAIL(
                ZD_ERR_IO, "E0816",
                "on %s the disk still holds up a file of the save of step "
                "%lld, which was given up (checkpoint.timeout)",
                comm_host(trainer->comm),
                (long long)background_step(abandoned));
    } else {
        background_end(abandoned);
        trainer->abandoned = NULL;
    }
    status = comm_agree(trainer->comm, status);
    trainer->has_abandoned = status != ZD_OK;
    return status;
}

static enum zd_status begin_background(struct trainer *trainer)
{
    enum { OWN = sizeof trainer->own_commits / sizeof *trainer->own_commits };
    char *text = NULL;
    struct background_retention retention = {
            .limit = trainer->job->checkpoint.save_total_limit};
    double began = clock_seconds();
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    retention.own[0] = trainer->state.step; /* once it is there */
    for (int i = 1; i < OWN; i++)
        retention.own[i] = trainer->own_commits[i - 1];
    trainer->stall_count = 0;
    trainer->background_is_old = false;
    enum zd_status status = end_abandoned(trainer);
    tell_writer(trainer, &text);
    if (status == ZD_OK)
        status = background_begin(
                &trainer->writer, &trainer->state, trainer->snapshot,
                &retention, &trainer->background);
    forget(trainer, text);
    add_stall(trainer, began);
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
    enum { WAITED, SHARD, COMMIT, PARTS, COUNT = PARTS + SAVE_PARTS };
    struct background_seconds mine = background_seconds(trainer->background);
    int64_t micro[COUNT] = {
            [WAITED] = (int64_t)(1e6 * zero_snapshot_waited(trainer->snapshot)),
            [SHARD] = (int64_t)(1e6 * mine.shard),
            [COMMIT] = (int64_t)(1e6 * mine.commit)};
    for (int i = 0; i < trainer->stall_count; i++)
        micro[PARTS + i] = (int64_t)(-1e6 * trainer->stalls[i]);
    ZD_TRY(comm_all_reduce_i64(trainer->comm, micro, COUNT, COMM_MAX));
    *stall_out = 1e-6 * (double)micro[WAITED];
    for (int i = PARTS; i < COUNT; i++)
        *stall_out -= 1e-6 * (double)micro[i];
    *write_out = 1e-6 * (double)(micro[SHARD] + micro[COMMIT]);
    return ZD_OK;
}

static enum zd_status background_committed(struct trainer *trainer)
{
    const struct background *background = trainer->background;
    double stall, write;
    ZD_TRY(slowest(trainer, &stall, &write));
    committed(
            trainer, &(struct train_saved){
                             .step = background_step(background),
                             .path = background_path(background),
                             .seconds = stall + write,
                             .stall_seconds = stall,
                             .write_seconds = write});
    if (trainer->background_is_old)
        trainer->last_saved_step = -1;
    return ZD_OK;
}

/* Whoever asked for it hears of a failure; the run counts those of its own. */
static enum zd_status asked_ended(
        struct trainer *trainer, enum zd_status status)
{
    struct asked_save *asked = &trainer->asked;
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
static void end_background(struct trainer *trainer)
{
    struct background *background = trainer->background;
    trainer->background = NULL;
    trainer->has_abandoned = background_is_abandoned_anywhere(background);
    assert(!trainer->abandoned);
    if (background_is_abandoned(background))
        trainer->abandoned = background;
    else
        background_end(background);
}

/* The next part, waiting for it where it is not ready. */
static enum zd_status go_on(struct trainer *trainer)
{
    bool is_committed = false;
    double began = clock_seconds();
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    enum zd_status status = background_next(trainer->background, &is_committed);
    add_stall(trainer, began);
    if (is_committed)
        status = background_committed(trainer);
    if (status != ZD_OK || is_committed) {
        end_background(trainer);
        status = asked_ended(trainer, status);
    }
    comm_work(trainer->comm, before);
    return status;
}

enum zd_status trainer_save_look(struct trainer *trainer, bool is_writing)
{
    if (!trainer->background || is_writing)
        return ZD_OK;
    int64_t step = background_step(trainer->background);
    return survive(trainer, go_on(trainer), step, false);
}

enum zd_status trainer_save_settle(struct trainer *trainer)
{
    while (trainer->background) {
        int64_t step = background_step(trainer->background);
        ZD_TRY(survive(trainer, go_on(trainer), step, false));
    }
    return ZD_OK;
}

enum zd_status trainer_save_background(struct trainer *trainer)
{
    if (!trainer->snapshot)
        return trainer_save(trainer, false);
    ZD_TRY(trainer_save_settle(trainer)); /* one at a time */
    if (trainer->last_saved_step == trainer->state.step)
        return ZD_OK;
    return survive(
            trainer, begin_background(trainer), trainer->state.step, false);
}

/* Is what would be saved now under way already? */
static bool is_under_way(const struct trainer *trainer)
{
    return trainer->background && !trainer->background_is_old &&
           background_step(trainer->background) == trainer->state.step;
}

enum zd_status trainer_save_asked(struct trainer *trainer)
{
    assert(trainer->asked.state == ASKED_NOT);
    if (!trainer->snapshot)
        return trainer_save_now(trainer);
    if (!is_under_way(trainer)) {
        ZD_TRY(trainer_save_settle(trainer)); /* one at a time */
        if (trainer->last_saved_step == trainer->state.step)
            return ZD_OK;
        ZD_TRY(begin_background(trainer));
    }
    trainer->asked.state = ASKED_WRITING;
    trainer->asked.step = trainer->state.step;
    return ZD_OK;
}

void trainer_saved_less(struct trainer *trainer)
{
    trainer->last_saved_step = -1;
    trainer->background_is_old = true;
}

/* --- while everybody waits ------------------------------------------------ */

static enum zd_status save_here(struct trainer *trainer)
{
    char path[PATH_MAX], *text = NULL;
    double began = clock_seconds();
    struct comm_files *files = comm_files_begin(trainer->comm, "save");
    enum zd_status status = end_abandoned(trainer);
    tell_writer(trainer, &text);
    if (status == ZD_OK)
        status = checkpoint_save(&trainer->writer, &trainer->state, path);
    forget(trainer, text);
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
    double seconds = clock_seconds() - began;
    if (status == ZD_OK) {
        committed(
                trainer, &(struct train_saved){
                                 .step = trainer->state.step,
                                 .path = path,
                                 .seconds = seconds,
                                 .stall_seconds = seconds,
                                 .write_seconds = seconds});
        status = retain(trainer);
    }
    comm_files_end(files);
    return status;
}

enum zd_status trainer_save_now(struct trainer *trainer)
{
    enum train_run_state before = trainer->run_state;
    ZD_TRY(trainer_save_settle(trainer));
    if (trainer->last_saved_step == trainer->state.step)
        return ZD_OK;
    trainer_tell_state(trainer, RUN_CHECKPOINTING);
    enum zd_status status = save_here(trainer);
    trainer_tell_state(trainer, before);
    return status;
}

enum zd_status trainer_save(struct trainer *trainer, bool must)
{
    return survive(
            trainer, trainer_save_now(trainer), trainer->state.step, must);
}

const char *export_folder(const struct train_job *job)
{
    return job->checkpoint.export == EXPORT_PEFT ? "peft" : "hf";
}

static enum zd_status open_base(
        const void *ctx, const struct model_config *config,
        const struct param_table *table, struct weight_source *source)
{
    return trainer_open_base(ctx, config, table, source);
}

/* Export reads a checkpoint, which this run has just written or verified.
 * Without one of this step (save_strategy = "no") the weights are written to a
 * hidden folder first, which goes again. */
static enum zd_status export_from(struct trainer *trainer, const char *path)
{
    char dir[PATH_MAX];
    const struct train_job *job = trainer->job;
    bool is_adapter = job->checkpoint.export == EXPORT_PEFT;
    struct export_request request = {
            .path = path,
            .out_dir = dir,
            .dtype = &trainer->plan.export_dtype,
            .max_shard_bytes = job->checkpoint.max_shard_bytes,
            .check = CHECKPOINT_TRUSTED,
            .merges = !is_adapter && trainer->plan.table.adapters,
            .open_base = open_base,
            .ctx = job};
    if (is_adapter && job->model.dtype_auto)
        request.dtype = NULL; /* fp32 */
    fs_join(dir, PATH_MAX, job->job.output_dir, export_folder(job));
    if (request.merges && trainer->plan.config.is_quantized &&
        trainer_is_first(trainer))
        merge_tell_codes(job->model.path);
    return export_checkpoint(trainer->comm, &request);
}

static enum zd_status export_unsaved(struct trainer *trainer)
{
    char path[PATH_MAX], hidden[PATH_MAX];
    struct train_job job = *trainer->job;
    struct checkpoint_writer writer = trainer->writer;
    enum zd_status status = ZD_OK;

    /* written below output_dir/.tmp-export, which every start sweeps */
    fs_join(hidden, sizeof hidden, trainer->job->job.output_dir, ".tmp-export");
    job.job.output_dir = hidden;
    job.checkpoint.save_only_model = true;
    writer.job = &job;
    if (trainer_is_first(trainer))
        status = fs_make_dirs(hidden);
    ZD_TRY(comm_agree(trainer->comm, status));
    ZD_TRY(checkpoint_save(&writer, &trainer->state, path));
    ZD_TRY(export_from(trainer, path));
    if (trainer_is_first(trainer))
        status = fs_remove_tree(hidden);
    return comm_agree(trainer->comm, status);
}

enum zd_status trainer_export(struct trainer *trainer)
{
    if (trainer->job->checkpoint.export == EXPORT_NONE)
        return ZD_OK;
    enum comm_work before = comm_work(trainer->comm, WORK_EXPORT);
    struct comm_files *files = comm_files_begin(trainer->comm, "export");
    bool is_saved = trainer->last_saved_step == trainer->state.step;
    enum zd_status status =
            is_saved ? export_from(trainer, trainer->last_checkpoint)
                     : export_unsaved(trainer);
    comm_files_end(files);
    comm_work(trainer->comm, before);
    return status;
}
