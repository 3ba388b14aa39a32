#include "train/choose.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 looks through, newest first. */
struct search {
    const struct train_job *job;
    int64_t *steps;
    int count, next;
    bool is_given; /* one that the job names; none is passed over */
};

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

static void pass_over(const char *path)
{
    zd_log_warning("passing over %s: %s", path, zd_error_get()->what);
    zd_error_clear();
}

/* Manifest and sizes. */
static enum zd_status look_at(const char *path, char *digest)
{
    struct checkpoint *checkpoint;
    ZD_TRY(checkpoint_open(path, CHECKPOINT_SIZES, &checkpoint));
    snprintf(
            digest, HASH_HEX, "%s",
            json_string_at(
                    checkpoint_manifest(checkpoint), "manifest_xxh3_128"));
    checkpoint_close(checkpoint);
    return ZD_OK;
}

/* The next one whose manifest and sizes are right; `path` is empty when there
 * is none. */
static enum zd_status next_candidate(
        struct search *search, char *path, char *digest)
{
    if (search->is_given) {
        strcpy(path, search->job->run.resume_path);
        return checkpoint_unreadable(path, look_at(path, digest));
    }
    while (search->next < search->count) {
        char name[64];
        checkpoint_name(name, sizeof name, search->steps[search->next++]);
        fs_join(path, PATH_MAX, search->job->job.output_dir, name);
        enum zd_status status = look_at(path, digest);
        if (status != ZD_ERR_DATA && status != ZD_ERR_NO_INPUT)
            return checkpoint_unreadable(path, status);
        pass_over(path);
    }
    path[0] = digest[0] = '\0';
    if (search->job->run.resume == RESUME_MUST)
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E0801",
                "run.resume is \"must\" and %s holds no checkpoint that "
                "verifies",
                search->job->job.output_dir);
    return ZD_OK;
}

static int threads_of(struct comm *comm, const struct train_job *job)
{
    return device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(),
            comm_local_size(comm));
}

/* Collective: is the candidate sound? *found_out: the search is over. */
static enum zd_status judge(
        struct comm *comm, const struct search *search, const char *path,
        bool *found_out)
{
    const struct train_job *job = search->job;
    *found_out = true;
    if (!path[0] || (!search->is_given && !job->checkpoint.verify))
        return ZD_OK;
    enum zd_status status =
            checkpoint_verify_ranks(comm, path, threads_of(comm, job));
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
    bool first = comm_rank(comm) == 0, found = false;
    struct search search = {
            .job = job, .is_given = job->run.resume == RESUME_PATH};
    enum zd_status status = ZD_OK;

    path[0] = digest[0] = '\0';
    if (job->run.resume == RESUME_NEVER)
        return ZD_OK; /* tell_replaced says what that costs */
    if (first)
        status = begin_search(&search);
    status = comm_agree(comm, status);
    while (status == ZD_OK && !found) {
        if (first)
            status = next_candidate(&search, path, digest);
        status = comm_agree(comm, status);
        if (status == ZD_OK)
            status = comm_broadcast(comm, path, PATH_MAX, 0);
        if (status == ZD_OK)
            status = judge(comm, &search, path, &found);
    }
    free(search.steps);
    return status;
}
