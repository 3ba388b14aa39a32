/* fit.c - a plan that fits. */
#include "train/plan/fit.h"

/* The job's checkpointing, batch and pieces, with what auto comes to. */
static enum zd_status fit(
        const struct train_job *job, struct comm *comm, struct job_plan *plan)
{
    struct job_choice choice = {.B = plan->per_device, .A = plan->accumulation};
    bool fits = false;
    plan->limits = plan_limits_of(job, plan);
    plan->chose_checkpointing =
            job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO;
    for (;;) {
        ZD_TRY(plan_try_orders(job, &choice, false, plan, &fits));
        if (fits || !job->train.auto_find_batch_size || choice.B % 2)
            break;
        choice.B /= 2; /* the same samples in more, smaller micro-batches */
        choice.A *= 2;
    }
    if (!fits)
        ZD_TRY(plan_try_orders(job, &choice, true, plan, &fits));
    plan->chose_pieces = !job->train.tiled_mlp && plan->shape.mlp_pieces > 1;
    plan->chose_order =
            plan->by_layer && job->train.accumulation_order == ORDER_AUTO;
    if (!fits && !job->run.force)
        return plan_refuse(job, plan, &plan->limits);
    plan->is_forced = !fits;
    if (fits)
        ZD_TRY(plan_undo(job, &choice, &plan->limits, plan));
    if (fits)
        ZD_TRY(plan_divide(job, &choice, comm, &plan->limits, plan));
    return plan_snapshot(job, plan);
}

enum zd_status job_plan_build(
        const struct train_job *job, int world, int local_size,
        struct comm *comm, struct job_plan *plan)
{
    ZD_TRY(plan_begin(job, world, local_size, comm, plan));
    enum zd_status status = ZD_OK;
    if (comm) {
        status = plan_ask_free(comm, local_size, &plan->free);
        plan->knows_free = status == ZD_OK;
    }
    if (status == ZD_OK)
        status = fit(job, comm, plan);
    if (status != ZD_OK)
        job_plan_fini(plan);
    return status;
}

enum zd_status plan_check_machine(
        const struct train_job *job, struct job_plan *plan)
{
    const struct plan_limits limits = plan_limits_here(plan);
    uint64_t takes = job_plan_memory(plan), memory = plan_machine_memory(plan);
    if (!job->run.force && !plan_fits(plan, &limits))
        return plan_refuse(job, plan, &limits);
    if (job->run.force && takes > memory)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0608",
                "--force: a rank takes %.3f MiB of memory, and this machine "
                "has %.3f MiB for it",
                units_mib(takes), units_mib(memory));
    return ZD_OK;
}
