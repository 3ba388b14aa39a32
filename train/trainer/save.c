/* save.c - when a save fails, and what the end of a run leaves behind. */
#include "base/clock.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "train/checkpoint/export.h"
#include "train/trainer/trainer.h"

#include <string.h>

enum { FAILED_SAVES_MAX = 3 };

/* The rows of the steps a checkpoint holds are on disk before it is, and so is
 * what happened. */
static enum zd_status sync_rows(struct trainer *trainer)
{
    enum zd_status status = ZD_OK;
    if (trainer_is_first(trainer))
        status = metrics_sync(trainer->metrics);
    if (trainer_is_first(trainer) && status == ZD_OK)
        status = events_sync(trainer->events);
    return comm_agree(trainer->comm, status);
}

static void committed(struct trainer *trainer, const char *path, double seconds)
{
    trainer->failed_saves = 0;
    trainer->last_saved_step = trainer->state.step;
    trainer->save_seconds = seconds;
    trainer->last_save_time = clock_seconds();
    strcpy(trainer->last_checkpoint, path);
    trainer_tell_saved(trainer, path, seconds);
}

static enum zd_status retain(struct trainer *trainer)
{
    enum zd_status status = ZD_OK;
    const struct train_job *job = trainer->job;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    status = checkpoint_retain(
            job->job.output_dir, job->checkpoint.save_total_limit,
            trainer->state.step, job);
    if (status != ZD_OK) { /* the new one is safe; old ones stay a while */
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
        zd_error_clear();
    }
    return ZD_OK;
}

enum zd_status trainer_save_now(struct trainer *trainer)
{
    char path[PATH_MAX];
    double began = clock_seconds();
    enum train_run_state before = trainer->run_state;

    if (trainer->last_saved_step == trainer->state.step)
        return ZD_OK;
    trainer_tell_state(trainer, RUN_CHECKPOINTING);
    struct comm_files *files = comm_files_begin(trainer->comm, "save");
    enum zd_status status = sync_rows(trainer);
    trainer->writer.last_event = events_last_id(trainer->events);
    char *text = trainer_state_text(trainer);
    trainer->writer.trainer_state = text;
    if (status == ZD_OK)
        status = checkpoint_save(&trainer->writer, &trainer->state, path);
    trainer->writer.trainer_state = NULL;
    free(text);
    rank_meter_add(trainer, PHASE_CHECKPOINT, began);
    if (status == ZD_OK) {
        committed(trainer, path, clock_seconds() - began);
        status = retain(trainer);
    }
    comm_files_end(files);
    trainer_tell_state(trainer, before);
    return status;
}

enum zd_status trainer_save(struct trainer *trainer, bool must)
{
    enum zd_status status = trainer_save_now(trainer);
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
    const struct zd_error *error = zd_error_get();
    if (error->status != ZD_OK)
        zd_log_warning(
                "checkpoint at step %lld was not saved, training goes "
                "on: %s",
                (long long)trainer->state.step, error->what);
    zd_error_clear();
    return ZD_OK;
}

const char *export_folder(const struct train_job *job)
{
    return job->checkpoint.export == EXPORT_PEFT ? "peft" : "hf";
}

enum zd_status trainer_open_base(
        const struct train_job *job, const struct model_config *config,
        const struct param_table *table, struct weight_source *source)
{
    if (job->model.config || job->model.init == MODEL_RANDOM)
        return weights_open_random(job->job.seed, table, source);
    return weights_open_hf(job->model.path, config, table, NULL, source);
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
