/* weights.c - loads a run's initial weights, and exports its model. */
#include "base/file/fs.h"
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/files/weights_hf.h"
#include "train/checkpoint/export.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Logs if lora.path's adapter names another base: shapes agree, but it may be
 * another model. */
static void tell_base(const struct trainer *trainer)
{
    const char *here = trainer->job->model.path;
    const char *was = trainer->plan.adapter.base_model;
    if (!trainer->job->lora.path || !here || !was || !was[0] ||
        !trainer_is_first(trainer) ||
        strcmp(last_part(was), last_part(here)) == 0)
        return;
    zd_log_info(
            "the adapter of lora.path was made for `%s`; it goes on with %s",
            was, here);
}

static enum zd_status open_source(
        const struct train_job *job, const struct job_plan *plan,
        struct weight_source *source)
{
    const struct model_config *config = &plan->config;
    const struct param_table *table = &plan->table;
    const char *path = train_stored_base(job);
    if (path)
        ZD_TRY(weights_open_hf(path, config, table, NULL, source));
    else
        ZD_TRY(weights_open_random(job->job.seed, table, source));
    if (!table->adapters)
        return ZD_OK;
    return weights_open_lora(
            config, table, source, job->job.seed, job->lora.path, source);
}

enum zd_status trainer_load_weights(struct trainer *trainer, bool digests)
{
    struct weight_source source;
    const struct param_table *table = &trainer->plan.table;
    uint64_t *each =
            digests ? zd_array((size_t)table->count, sizeof *each) : NULL;
    enum zd_status status = open_source(trainer->job, &trainer->plan, &source);
    tell_base(trainer);
    free(trainer->base_digests);
    trainer->base_digests = each;
    ZD_TRY(comm_agree(trainer->comm, status));
    status = zero_load(trainer->zero, &source, each);
    weights_close(&source);
    trainer->writer.base_digest = 0;
    for (int id = 0; each && id < table->count; id++)
        if (!table->params[id].trainable)
            trainer->writer.base_digest += each[id];
    return status;
}

/* --- the export ----------------------------------------------------------- */

struct fs_path export_dir(const struct train_job *job)
{
    bool is_adapter = job->checkpoint.export == EXPORT_PEFT;
    return fs_in(job->job.output_dir, is_adapter ? "peft" : "hf");
}

/* Export reads a checkpoint that this run has just written or verified. Without
 * one of this step (save_strategy = "no") the weights are first written to a
 * hidden folder, which is removed afterwards. */
static enum zd_status export_from(struct trainer *trainer, const char *path)
{
    const struct train_job *job = trainer->job;
    const struct fs_path dir = export_dir(job);
    bool is_adapter = job->checkpoint.export == EXPORT_PEFT;
    struct export_request request = {
            .path = path,
            .out_dir = dir.text,
            .dtype = &trainer->plan.export_dtype,
            .max_shard_bytes = job->checkpoint.max_shard_bytes,
            .check = CHECKPOINT_TRUSTED,
            .merges = !is_adapter && trainer->plan.table.adapters,
            .base = train_stored_base(job)};
    if (is_adapter && job->model.dtype < 0)
        request.dtype = NULL; /* fp32 */
    return export_checkpoint(trainer->comm, &request);
}

static enum zd_status export_unsaved(struct trainer *trainer)
{
    char path[PATH_MAX];
    struct train_job job = *trainer->job;
    struct checkpoint_writer writer = trainer->writer;

    /* below output_dir/.tmp-export, which every start removes */
    const struct fs_path hidden = fs_in(job.job.output_dir, ".tmp-export");
    job.job.output_dir = hidden.text;
    job.checkpoint.save_only_model = true;
    writer.job = &job;
    writer.harden_rows = NULL;
    ZD_TRY(COMM_FIRST(trainer->comm, fs_make_dirs(hidden.text)));
    ZD_TRY(checkpoint_save(&writer, &trainer->state, path));
    ZD_TRY(export_from(trainer, path));
    return COMM_FIRST(trainer->comm, fs_remove_tree(hidden.text));
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
