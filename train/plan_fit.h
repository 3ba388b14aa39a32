/* plan_fit.h - choose what "auto" leaves open so that the job fits, or say why
 * it does not and what would. Internal to train. */
#ifndef ZD_TRAIN_PLAN_FIT_H
#define ZD_TRAIN_PLAN_FIT_H

#include "train/train.h"

/* Fill `plan` (config and table are there) for the job's checkpointing mode and
 * batch, resolving auto. ZD_ERR_UNFIT when nothing allowed fits. */
enum zd_status plan_fit(
        const struct train_job *job, int local_size, struct job_plan *plan);

/* One candidate of what may be open. */
struct job_choice {
    struct checkpointing checkpointing;
    int B, A;
    bool accumulate_on_host;
    size_t spill_bytes; /* paged states on the host */
};
/* Replaces what the plan held. Defined in plan.c. */
enum zd_status job_plan_try(
        const struct train_job *job, const struct job_choice *choice,
        struct job_plan *plan);
int job_plan_prefetch(const struct train_job *job, int accumulation);

#endif
