/* phases.h - what a rank has at most in each phase of a run.
 *
 * Everything that a step, an evaluation or a sample needs is in the plan's
 * memory, which is taken once, before the first phase; a save in the background
 * has its copy there too (checkpoint.snapshot). On top come
 * buffers for reading and writing files, and the files. Pure. */
#ifndef ZD_TRAIN_PLAN_PHASES_H
#define ZD_TRAIN_PLAN_PHASES_H

#include "train/plan/plan.h"

/* Allowed for the program, its libraries and stacks on top of that. Jobs on the
 * CPU device were seen to take 3 to 38 MiB of it. */
enum { PLAN_LIBRARIES_BYTES = 64 << 20 };

/* {"load": {"device", "pinned", "host", "disk"}, .. "libraries": {"device",
 * "host"}} of those that happen. New reference. */
json_t *plan_peaks_json(
        const struct train_job *job, const struct job_plan *plan);
void plan_peaks_print(
        const struct train_job *job, const struct job_plan *plan, FILE *stream);

#endif
