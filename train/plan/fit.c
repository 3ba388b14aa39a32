#include "train/plan/fit.h"

enum zd_status plan_fit(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    const struct plan_limits limits = plan_limits_of(job, local_size, plan);
    int B = plan->per_device, A = plan->accumulation;
    bool fit = false;

    plan->limits = limits;
    plan->chose_checkpointing =
            job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO;
    for (;;) {
        ZD_TRY(plan_try_modes(job, B, A, &limits, plan, &fit));
        if (fit || !job->train.auto_find_batch_size || B % 2)
            break;
        B /= 2; /* the same samples in more, smaller micro-batches */
        A *= 2;
    }
    if (!fit && !job->run.force)
        return plan_refuse(job, plan, &limits);
    plan->is_forced = !fit;
    return plan_snapshot(job, local_size, plan);
}

/* Nothing that the system says is passed over: the memory must be there. */
static enum zd_status check_forced(const struct job_plan *plan, uint64_t memory)
{
    uint64_t takes = job_plan_memory(plan);
    if (takes <= memory)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_MEMORY, "E0608",
            "--force: a rank takes %.3f MiB of memory, and %.3f MiB are there "
            "for it",
            (double)takes / (1 << 20), (double)memory / (1 << 20));
}

enum zd_status plan_check_machine(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    uint64_t memory = plan_machine_memory(plan, local_size);
    const struct plan_limits limits = {
            .device = on_gpu ? plan_gpu_bytes(plan) : UINT64_MAX,
            .host = on_gpu ? memory : UINT64_MAX,
            .total = on_gpu ? UINT64_MAX : memory,
            .on_gpu = on_gpu,
            .is_free = plan->knows_free && memory == plan->free.host,
            .local_size = local_size};
    if (job->run.force)
        return check_forced(plan, memory);
    return plan_fits(plan, &limits) ? ZD_OK : plan_refuse(job, plan, &limits);
}
