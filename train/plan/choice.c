/* choice.c - what "auto" leaves open, in the order of its preference. */
#include "train/plan/fit.h"

/* Where gradients of several micro-batches are added up: offload.accumulate, or
 * with "auto" on the device if that fits, else on the host. */
static enum zd_status try_accumulations(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    enum offload_accumulate asked = job->offload.accumulate;
    bool several = job->offload.optimizer != OFFLOAD_NONE && choice->A > 1;
    bool can_both = plan->world == 1 || job->zero.stage > 0;
    choice->accumulate_on_host = several && asked == OFFLOAD_ACCUMULATE_HOST;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = plan_fits(plan, limits);
    if (*fits_out || !several || !can_both || asked != OFFLOAD_ACCUMULATE_AUTO)
        return ZD_OK;
    choice->accumulate_on_host = true;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = plan_fits(plan, limits);
    return ZD_OK;
}

/* Paged states that do not fit the device's limit go to the host's. */
static bool can_spill(
        const struct train_job *job, const struct plan_limits *limits)
{
    return job->optim.paged && job->offload.optimizer == OFFLOAD_NONE &&
           limits->device < limits->total;
}

static enum zd_status try_to_spill(
        const struct train_job *job, struct job_choice *choice, size_t bytes,
        struct job_plan *plan)
{
    choice->spill_bytes = bytes;
    return job_plan_try(job, choice, plan);
}

/* As much of the states on the host as the device needs, not more; when all of
 * them there are not enough that is the plan left. */
static enum zd_status try_spills(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    ZD_TRY(try_to_spill(job, choice, SIZE_MAX, plan));
    const struct arena_span *all = arena_plan_find(&plan->arena, "zero.paged");
    size_t few = 0, enough = all ? all->bytes : 0;
    *fits_out = false;
    if (!all || plan_device_bytes(plan) > limits->device)
        return ZD_OK;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        ZD_TRY(try_to_spill(job, choice, middle, plan));
        *(plan_device_bytes(plan) <= limits->device ? &enough : &few) = middle;
    }
    ZD_TRY(try_to_spill(job, choice, enough, plan));
    *fits_out = plan_fits(plan, limits);
    return ZD_OK;
}

enum zd_status plan_try_choice(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    choice->spill_bytes = 0;
    ZD_TRY(try_accumulations(job, choice, limits, plan, fits_out));
    if (*fits_out || !can_spill(job, limits))
        return ZD_OK;
    return try_spills(job, choice, limits, plan, fits_out);
}

enum zd_status plan_try_modes(
        const struct train_job *job, int B, int A, struct job_plan *plan,
        bool *fits_out)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_SQRT,
            CHECKPOINTING_FULL};
    const struct plan_limits *limits = &plan->limits;
    struct job_choice choice = {
            .checkpointing = job->train.gradient_checkpointing, .B = B, .A = A};
    if (choice.checkpointing.mode != CHECKPOINTING_AUTO)
        return plan_try_choice(job, &choice, limits, plan, fits_out);
    int first = job->offload.activations != OFFLOAD_NONE ? 2 : 0;
    for (int spills = 0; spills <= can_spill(job, limits); spills++)
        for (int i = first ? first : spills; i < 4; i++) {
            choice.checkpointing = (struct checkpointing){.mode = modes[i]};
            ZD_TRY((spills ? try_spills : try_accumulations)(
                    job, &choice, limits, plan, fits_out));
            if (*fits_out)
                return ZD_OK;
        }
    return ZD_OK;
}
