/* doctor.h - what a machine has for zerod, and what zerod cannot use.
 *
 * One object of JSON is the result; the text is printed from it:
 *
 *   {"ranks", "host", "libraries": [{"name", "version", "path", "needed"}],
 *    "gpus": [..], "limits": {..}, "mpi",
 *    "attention": [..], "differences": [..],
 *    "findings": [{"level", "what", "cost", "fix", "rank"}], "stops": false}
 *
 * A finding is a warning where the job runs without what declines, with what
 * that costs and what to do; a stop where it would not run. */
#pragma once

#include "base/file/json.h"
#include "comm/comm.h"
#include "train/train.h"

#include <stdbool.h>
#include <stdio.h>

struct doctor {
    json_t *report; /* owned */
    const struct train_job *job;
    bool has_job;   /* else `job` is the defaults */
    bool wants_gpu; /* the job's device is a GPU, or would be */
    int gpus;
    struct device *device; /* this rank's GPU, open; NULL */
};

/* Looks at all of it, of this rank; `comm` says its place. */
void doctor_examine(
        struct doctor *doctor, const struct train_job *job, bool has_job,
        struct comm *comm);
/* All ranks call; rank 0's report then has what the others found, and where
 * they differ from it. */
enum zd_status doctor_compare(struct doctor *doctor, struct comm *comm);
/* A finding of any rank would stop the job. */
bool doctor_stops(const struct doctor *doctor);
void doctor_print(const struct doctor *doctor, FILE *stream);
void doctor_fini(struct doctor *doctor);
/* Makes this thread's error record, which is taken, a finding. */
void doctor_stop(struct doctor *doctor);
