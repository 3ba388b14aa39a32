/* load.c - a job file, step by step. */
#include "daemon/job/job_internal.h"

#include "base/log.h"
#include "base/must.h"

#include <string.h>

struct job *job_open(const struct job_request *request)
{
    struct job *job = job_create(request->path);
    job->options.run.force = request->force;
    job_read_tree(job, request);
    return job;
}

struct comm_options job_comm_options(struct job *job)
{
    /* checkpoint.timeout is of comm too */
    job_read_quietly(job, "comm");
    job_read_quietly(job, "checkpoint");
    return job->options.comm;
}

enum zd_status job_finish(struct job *job, int world, enum job_paths paths)
{
    job->world = world;
    if (job->root)
        job_read_values(job);
    JSON_EACH(line, job->notes)
        zd_log_info("%s", json_string_value(line));
    if (!job->is_partial) {
        job_settle(job);
        job_check(job);
        if (paths != JOB_PATHS_IGNORED)
            job_check_paths(job);
    }
    problems_sort(&job->problems);
    if (job->problems.count)
        return problems_status(&job->problems);
    job->options.values = job_values(job);
    ZD_FREED char *text = job_canonical(job);
    hash_bytes(text, strlen(text), job->digest);
    job->options.digest = job->digest;
    return ZD_OK;
}

enum zd_status job_load(const struct job_request *request, struct job **job_out)
{
    *job_out = job_open(request);
    return job_finish(*job_out, request->world, request->paths);
}
