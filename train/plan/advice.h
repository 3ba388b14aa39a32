/* advice.h - a plan's predicted time as it is told: what binds, and the one
 * change that would help most. */
#pragma once

#include "train/plan/search.h"

struct plan_advice {
    struct plan_prediction predicted;
    int64_t steps;  /* of the job; 0: epochs of data that was not counted */
    double seconds; /* of them; 0: not known */
    struct plan_found change; /* the one that helps most; setting_count 0:
                                 none does */
};

/* Plans each job that differs in one choice and fits the limits of `plan`.
 * local_size: as for job_plan_build. */
enum zd_status plan_advise(
        const struct train_job *job, const struct job_plan *plan,
        const struct plan_machine *machine, int local_size,
        struct plan_advice *out);

/* {"step_seconds", "tokens_per_second", "binds", "phases": {..}, "busy":
 * {..}}; new references. */
json_t *plan_prediction_json(const struct plan_prediction *predicted);
/* The same with "machine", "calibrated", "days", "change". */
json_t *plan_advice_json(
        const struct plan_advice *advice, const struct plan_machine *machine);
void plan_advice_print(
        const struct plan_advice *advice, const struct job_plan *plan,
        const struct plan_machine *machine, FILE *stream);
