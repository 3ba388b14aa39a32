/* load.c - a job file, step by step. */
#include "daemon/job/job_internal.h"

#include <stdlib.h>
#include <string.h>

enum zd_status job_load(const struct job_request *request, struct job **job_out)
{
    struct job *job = job_create(request);
    *job_out = job;
    job_read_tree(job, request);
    if (job->root)
        job_read_values(job);
    job->options.run.force = request->force;
    if (!job->is_partial) {
        job_settle(job, request->path);
        job_check(job);
        if (!job->problems.count && request->paths != JOB_PATHS_IGNORED)
            job_check_paths(job);
        if (!job->problems.count && request->paths == JOB_PATHS_READ)
            job_check_files(job);
    }
    problems_sort(&job->problems);
    if (job->problems.count)
        return problems_status(&job->problems);
    char *text = job_canonical(job);
    hash_bytes(text, strlen(text), job->digest);
    free(text);
    job->options.digest = job->digest;
    return ZD_OK;
}
