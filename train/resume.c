/* resume.c - finds, checks and loads a checkpoint. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "data/chat.h"
#include "kernels/kernels.h"
#include "train/checkpoint/manifest.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>

/* --- which ---------------------------------------------------------------- */

/* Rank 0's search, newest first: the checkpoints of the output folder, or the
 * one that the job names. */
struct search {
    const struct train_job *job;
    int64_t *steps; /* owned */
    int count, next;
    bool is_given; /* named by the job: do not skip it */
};

static struct search search_of(const struct train_job *job)
{
    bool is_given = job->run.resume == RESUME_PATH;
    return (struct search){.job = job, .count = is_given, .is_given = is_given};
}

static void end_search(struct search *search)
{
    free(search->steps);
}

static enum zd_status begin_search(struct search *search)
{
    const struct train_job *job = search->job;
    if (search->is_given)
        return strlen(job->run.resume_path) < PATH_MAX
                       ? ZD_OK
                       : ZD_FAIL(ZD_ERR_NO_INPUT, "E0801",
                                 "run.resume is too long");
    return checkpoint_list(job->job.output_dir, &search->steps, &search->count);
}

static bool next_path(struct search *search, char *path)
{
    if (search->next == search->count)
        return false;
    if (search->is_given)
        strcpy(path, search->job->run.resume_path);
    else
        strcpy(path, checkpoint_place(
                             search->job->job.output_dir, "",
                             search->steps[search->next])
                             .text);
    search->next++;
    return true;
}

static void pass_over(const char *path)
{
    zd_log_warning("passing over %s: %s", path, zd_error_get()->what);
    zd_error_clear();
}

/* Checks manifest and sizes. */
static enum zd_status look_at(const char *path, char *digest)
{
    struct checkpoint *checkpoint;
    ZD_TRY(checkpoint_open(path, CHECKPOINT_SIZES, &checkpoint));
    snprintf(
            digest, HASH_HEX, "%s",
            json_string_at(checkpoint->manifest, "manifest_xxh3_128"));
    checkpoint_close(checkpoint);
    return ZD_OK;
}

/* The next candidate with a valid manifest and sizes; empty `path`: none. */
static enum zd_status next_candidate(
        struct search *search, char *path, char *digest)
{
    while (next_path(search, path)) {
        enum zd_status status = look_at(path, digest);
        if (search->is_given ||
            (status != ZD_ERR_DATA && status != ZD_ERR_NO_INPUT))
            return checkpoint_unreadable(path, status);
        pass_over(path);
    }
    path[0] = digest[0] = '\0';
    if (search->job->run.resume != RESUME_MUST)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0801",
            "run.resume is \"must\" and %s holds no checkpoint that verifies",
            search->job->job.output_dir);
    return zd_fail_help(
            "run.resume = \"auto\" starts from the beginning where there is "
            "none");
}

/* Collective: verifies the candidate. *found_out: the search is over. */
static enum zd_status judge(
        struct comm *comm, const struct search *search, const char *path,
        bool *found_out)
{
    const struct train_job *job = search->job;
    *found_out = true;
    if (!path[0] || (!search->is_given && !job->checkpoint.verify))
        return ZD_OK;
    int threads = device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(),
            comm_local_size(comm));
    enum zd_status status = checkpoint_verify_ranks(comm, path, threads);
    if (status == ZD_ERR_DATA && !search->is_given) {
        *found_out = false;
        if (comm_rank(comm) == 0)
            pass_over(path);
        return ZD_OK;
    }
    if (status != ZD_OK && comm_rank(comm) == 0)
        status = checkpoint_unreadable(path, status);
    return comm_agree(comm, status);
}

enum zd_status choose_checkpoint(
        struct comm *comm, const struct train_job *job, char *path,
        char digest[HASH_HEX])
{
    bool found = false;
    ZD_SCOPED(end_search) struct search search = search_of(job);
    path[0] = digest[0] = '\0';
    if (job->run.resume == RESUME_NEVER)
        return ZD_OK; /* tell_replaced reports the consequences */
    ZD_TRY(COMM_FIRST(comm, begin_search(&search)));
    while (!found) {
        ZD_TRY(COMM_FIRST(comm, next_candidate(&search, path, digest)));
        ZD_TRY(comm_broadcast(comm, path, PATH_MAX, 0));
        ZD_TRY(judge(comm, &search, path, &found));
    }
    return ZD_OK;
}

static void read_batch(
        const struct checkpoint *checkpoint, const struct train_job *job,
        struct run_ahead *ahead)
{
    struct train_live live = checkpoint_state(checkpoint).live;
    if (!live.given[SET_ACCUMULATION] ||
        manifest_batch_changed(checkpoint->manifest, &job->train))
        return;
    ahead->accumulation = (int64_t)live.value[SET_ACCUMULATION];
    ahead->global_batch = live.global_batch;
}

/* Reads ahead from a readable checkpoint; judge() handles others. */
static bool read_ahead(
        const char *path, const struct train_job *job, struct run_ahead *ahead)
{
    struct checkpoint *checkpoint;
    if (checkpoint_open(path, CHECKPOINT_TRUSTED, &checkpoint) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    const json_t *manifest = checkpoint->manifest;
    const char *kept =
            json_string_at(json_object_get(manifest, "data"), "template_date");
    if (kept)
        ZD_PRINT(ahead->date, "%s", kept);
    read_batch(checkpoint, job, ahead);
    checkpoint_close(checkpoint);
    return true;
}

static enum zd_status look_ahead(
        const struct train_job *job, struct run_ahead *ahead)
{
    char path[PATH_MAX];
    ZD_SCOPED(end_search) struct search search = search_of(job);
    const char *given = job->data.template_date;
    chat_today(ahead->date);
    if (search.is_given ||
        (job->run.resume != RESUME_NEVER && fs_is_dir(job->job.output_dir)))
        ZD_TRY(begin_search(&search));
    while (next_path(&search, path) && !read_ahead(path, job, ahead))
        continue;
    if (given)
        ZD_PRINT(ahead->date, "%s", given);
    return ZD_OK;
}

enum zd_status trainer_look_ahead(struct trainer *trainer)
{
    struct comm *comm = trainer->comm;
    ZD_TRY(COMM_FIRST(comm, look_ahead(trainer->job, &trainer->ahead)));
    return comm_broadcast(comm, &trainer->ahead, sizeof trainer->ahead, 0);
}

/* --- loading it ----------------------------------------------------------- */

/* The job says so, by a path or "never". */
static bool goes_back(const struct train_job *job)
{
    return job->run.resume == RESUME_PATH || job->run.resume == RESUME_NEVER;
}

/* "checkpoint-000020", or "checkpoint-000020 to checkpoint-000060 (3)". */
static void name_steps(
        const int64_t *steps, int count, char *out, size_t out_bytes)
{
    char first[64], last[64];
    checkpoint_name(first, sizeof first, steps[count - 1]);
    checkpoint_name(last, sizeof last, steps[0]);
    if (count == 1)
        snprintf(out, out_bytes, "%s", first);
    else
        snprintf(out, out_bytes, "%s to %s (%d)", first, last, count);
}

/* Uses the checkpoint's matmul algorithms, for equal rounding: timing might
 * choose others if `~/.cache` does not have them. */
static void take_products(const json_t *manifest)
{
    const char *text = json_string_at(manifest, "products");
    const char *why = text ? kernels_products_take(text) : NULL;
    if (why)
        zd_log_info(
                "products: the algorithms that the checkpoint has are not "
                "taken: %s; the run goes on with others, which round otherwise",
                why);
}

static enum zd_status restore(
        struct trainer *trainer, const struct checkpoint *checkpoint)
{
    enum checkpoint_moments moments;
    struct train_state *state = &trainer->state;
    const struct train_options *train = &trainer->job->train;
    int64_t max_steps = state->max_steps;

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
    if (train->max_steps > 0)
        state->max_steps = max_steps; /* the job's; else the first start's */
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
    const json_t *manifest = checkpoint->manifest;
    take_products(manifest);
    /* the model's folder may no longer exist */
    trainer->writer.file_prefix =
            json_is_true(json_object_get(manifest, "gpt2_prefix"));
    trainer->resumed_event = json_integer_at(manifest, "last_event");
    return live_resume(trainer, manifest);
}

/* Collective. Loads what the checkpoint does not hold, and checks the base. */
static enum zd_status load_base(
        struct trainer *trainer, const struct checkpoint *checkpoint)
{
    const struct param_table *table = &trainer->plan.table;
    if (!checkpoint_base(checkpoint) && !param_has_base(table))
        return ZD_OK;
    ZD_TRY(trainer_load_weights(trainer, true));
    return checkpoint_match_base(checkpoint, table, trainer->base_digests);
}

/* Loads the checkpoint; every rank reads its own ranges. */
static enum zd_status load_from(
        struct trainer *trainer, const struct checkpoint *checkpoint)
{
    enum zd_status status =
            checkpoint_match_adapter(checkpoint, &trainer->plan);
    ZD_THEN(status, checkpoint_match_model(checkpoint, &trainer->plan.table));
    ZD_TRY(comm_agree(trainer->comm, status));
    status = load_base(trainer, checkpoint);
    ZD_THEN(status, restore(trainer, checkpoint));
    return comm_agree(trainer->comm, status);
}

static enum zd_status load(struct trainer *trainer)
{
    struct checkpoint *checkpoint = NULL;
    enum zd_status status = checkpoint_open(
            trainer->resumed_from, CHECKPOINT_TRUSTED, &checkpoint);
    if (status != ZD_OK)
        status = checkpoint_unreadable(trainer->resumed_from, status);
    status = comm_agree(trainer->comm, status);
    ZD_THEN(status, load_from(trainer, checkpoint));
    checkpoint_close(checkpoint);
    ZD_TRY(status);
    return zero_ranges_loaded(trainer->zero);
}

/* Warns if the run goes back to a named checkpoint or to the beginning: later
 * checkpoints, and rows of metrics.jsonl, then belong to another branch. */
static enum zd_status tell_replaced(const struct trainer *trainer)
{
    const char *output_dir = trainer->job->job.output_dir;
    ZD_FREED int64_t *steps = NULL;
    int64_t step = trainer->state.step;
    int count, later = 0;
    char names[160];
    if (!goes_back(trainer->job))
        return ZD_OK;
    ZD_TRY(checkpoint_list(output_dir, &steps, &count));
    while (later < count && steps[later] > step)
        later++;
    if (later) {
        name_steps(steps, later, names, sizeof names);
        zd_log_warning(
                "this run %s step %lld: it replaces, in %s, %s where it saves "
                "at their steps, and the rows of metrics.jsonl after that "
                "step now. What it does not replace is where --resume auto "
                "goes on: move it away if this branch is to be the run",
                step ? "goes back to" : "begins anew at", (long long)step,
                output_dir, names);
    }
    return ZD_OK;
}

/* Reports which earlier events were undone. A checkpoint from another folder
 * has ids of another file. */
static void tell_resumed(struct trainer *trainer, bool is_own)
{
    int64_t after = is_own ? trainer->resumed_event : 0;
    const char *from = trainer->resumed_from;
    if (!trainer_is_first(trainer) || (!from[0] && !trainer->had_events))
        return;
    events_tell(
            trainer->events, "resumed", trainer->state.step,
            json_pack(
                    "{s:s?, s:I}", "from", from[0] ? from : NULL, "after",
                    (json_int_t)after));
}

enum zd_status trainer_resume(struct trainer *trainer)
{
    bool is_own = true;
    char *path = trainer->resumed_from, digest[HASH_HEX] = "";
    struct train_state *state = &trainer->state;

    ZD_TRY(choose_checkpoint(trainer->comm, trainer->job, path, digest));
    ZD_TRY(crash_guard_begin(
            trainer->comm, trainer->job, digest, path, &trainer->crash_guard));
    if (path[0]) {
        ZD_TRY(load(trainer));
        trainer_state_resume(trainer);
        strcpy(trainer->last_checkpoint, path);
        struct fs_path own =
                checkpoint_place(trainer->job->job.output_dir, "", state->step);
        is_own = strcmp(own.text, path) == 0;
        if (is_own)
            trainer->last_saved_step = state->step;
    } else {
        ZD_TRY(live_own_batch(trainer));
    }
    crash_guard_step(trainer->crash_guard, state->step);
    trainer->writer.may_replace = goes_back(trainer->job);
    trainer->writer.own = trainer->last_checkpoint;
    ZD_TRY(COMM_FIRST(trainer->comm, tell_replaced(trainer)));
    tell_resumed(trainer, is_own);
    return ZD_OK;
}
