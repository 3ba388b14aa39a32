/* resume.c - where to go on: the highest checkpoint that verifies. */
#include "base/file/fs.h"
#include "base/log.h"
#include "train/checkpoint/manifest.h"
#include "train/trainer/live.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The newest sound checkpoint of output_dir, open; NULL when there is none.
 * Those passed over are named. */
static enum zd_status open_newest(
        const struct train_job *job, char *path, struct checkpoint **out)
{
    int64_t *steps;
    int count;
    *out = NULL;
    ZD_TRY(checkpoint_list(job->job.output_dir, &steps, &count));
    for (int i = 0; i < count && !*out; i++) {
        char name[64];
        checkpoint_name(name, sizeof name, steps[i]);
        fs_join(path, PATH_MAX, job->job.output_dir, name);
        if (checkpoint_open(path, job->checkpoint.verify, out) != ZD_OK) {
            zd_log_warning("passing over %s: %s", path, zd_error_get()->what);
            zd_error_clear();
            *out = NULL;
        }
    }
    free(steps);
    if (!*out)
        path[0] = '\0';
    return ZD_OK;
}

static enum zd_status refuse_existing(const struct train_job *job)
{
    int64_t *steps;
    int count;
    ZD_TRY(checkpoint_list(job->job.output_dir, &steps, &count));
    free(steps);
    if (!count)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0812",
            "%s holds %d checkpoint%s and run.resume is \"never\"",
            job->job.output_dir, count, count == 1 ? "" : "s");
    zd_fail_help("use run.resume = \"auto\", or give another job.output_dir");
    return ZD_ERR_CREATE;
}

/* Rank 0 decides; path is empty for a fresh start. */
static enum zd_status choose(const struct train_job *job, char *path)
{
    struct checkpoint *checkpoint = NULL;
    path[0] = '\0';
    if (job->run.resume == RESUME_NEVER)
        return refuse_existing(job);
    if (job->run.resume == RESUME_PATH) {
        if (strlen(job->run.resume_path) >= PATH_MAX)
            return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "run.resume is too long");
        strcpy(path, job->run.resume_path);
        ZD_TRY(checkpoint_open(path, true, &checkpoint));
    } else {
        ZD_TRY(open_newest(job, path, &checkpoint));
    }
    if (!checkpoint && job->run.resume == RESUME_MUST)
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E0801",
                "run.resume is \"must\" and %s holds no checkpoint that "
                "verifies",
                job->job.output_dir);
    checkpoint_close(checkpoint);
    return ZD_OK;
}

static enum zd_status restore(
        struct trainer *trainer, const struct checkpoint *checkpoint)
{
    enum checkpoint_moments moments;
    struct train_state *state = &trainer->state;
    const struct train_options *train = &trainer->job->train;
    int64_t max_steps = state->max_steps;

    ZD_TRY(checkpoint_match_model(checkpoint, &trainer->plan.table));
    ZD_TRY(checkpoint_match_run(
            checkpoint, trainer->job, trainer->writer.global_batch,
            &trainer->writer.identity));
    ZD_TRY(checkpoint_load(
            checkpoint, &trainer->plan.zero, trainer->zero, &moments));
    *state = checkpoint_state(checkpoint);
    if (train->dtype == DTYPE_FP16)
        state->loss_scale = loss_scale_resume(&state->loss_scale, &train->fp16);
    else
        state->loss_scale = (struct loss_scale){0};
    if (trainer->job->train.max_steps > 0)
        state->max_steps =
                max_steps; /* the job file's; else the first start's */
    else if (state->max_steps != max_steps)
        zd_log_info(
                "the run keeps the %lld steps fixed at its first start; "
                "train.max_steps changes them",
                (long long)state->max_steps);
    if (moments == MOMENTS_NOT_SAVED)
        zd_log_warning(
                "%s holds no optimizer states "
                "(checkpoint.save_only_model): they begin at nothing",
                trainer->resumed_from);
    if (moments == MOMENTS_OTHERS)
        zd_log_warning(
                "the optimizer changed from %s to %s: the weights go on, its "
                "states begin at nothing",
                checkpoint_optimizer(checkpoint),
                train_optimizer_name(trainer->job->optim.name));
    if (moments != MOMENTS_LOADED)
        state->applied_steps = 0;
    const json_t *manifest = checkpoint_manifest(checkpoint);
    const json_t *commands = json_object_get(manifest, "commands");
    trainer->commands =
            json_is_array(commands) ? json_deep_copy(commands) : NULL;
    trainer->writer.commands = trainer->commands;
    trainer->resumed_event =
            json_integer_value(json_object_get(manifest, "last_event"));
    return live_resume(trainer, manifest);
}

/* Every rank reads its own ranges. */
static enum zd_status load(struct trainer *trainer)
{
    struct checkpoint *checkpoint;
    enum zd_status status =
            checkpoint_open(trainer->resumed_from, false, &checkpoint);
    if (status == ZD_OK) {
        status = restore(trainer, checkpoint);
        checkpoint_close(checkpoint);
    }
    ZD_TRY(comm_agree(trainer->comm, status));
    return zero_ranges_loaded(trainer->zero);
}

/* What of the events before does not count. The checkpoint of another folder
 * knows ids of another file: its commands are told with it. */
static void tell_resumed(struct trainer *trainer, bool is_own)
{
    int64_t after = is_own ? trainer->resumed_event : 0;
    const char *from = trainer->resumed_from;
    if (!trainer_is_first(trainer) || (!from[0] && !trainer->had_events))
        return;
    events_tell(
            trainer->events, "resumed", trainer->state.step,
            json_pack(
                    "{s:s?, s:I, s:O*}", "from", from[0] ? from : NULL, "after",
                    (json_int_t)after, "commands",
                    is_own ? NULL : trainer->commands));
}

enum zd_status trainer_resume(struct trainer *trainer)
{
    bool is_own = true;
    enum zd_status status = ZD_OK;
    char *path = trainer->resumed_from;
    struct train_state *state = &trainer->state;

    if (trainer_is_first(trainer))
        status = choose(trainer->job, path);
    ZD_TRY(comm_agree(trainer->comm, status));
    ZD_TRY(comm_broadcast(
            trainer->comm, path, sizeof trainer->resumed_from, 0));
    if (path[0]) {
        ZD_TRY(load(trainer));
        trainer_state_resume(trainer);
        strcpy(trainer->last_checkpoint, path);
        char name[64], own[PATH_MAX];
        checkpoint_name(name, sizeof name, state->step);
        fs_join(own, sizeof own, trainer->job->job.output_dir, name);
        is_own = strcmp(own, path) == 0;
        if (is_own)
            trainer->last_saved_step = state->step;
    }
    trainer->base_step = state->step;
    tell_resumed(trainer, is_own);
    return ZD_OK;
}
