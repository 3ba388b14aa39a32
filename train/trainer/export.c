/* export.c - the model that a run leaves behind. */
#include "train/checkpoint/export.h"

#include "base/file/fs.h"
#include "model/adapters/merge.h"
#include "train/trainer/trainer.h"

const char *export_folder(const struct train_job *job)
{
    return job->checkpoint.export == EXPORT_PEFT ? "peft" : "hf";
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
            .open_base = trainer_open_base,
            .ctx = job};
    if (is_adapter && job->model.dtype < 0)
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
