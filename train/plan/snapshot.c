/* snapshot.c - the copy that checkpoints are written from while training goes
 * on. It is the last to be planned: it takes what nothing else needs, and a job
 * that has no room for it saves while it waits. */
#include "zero/snapshot.h"
#include "train/plan/fit.h"

/* Within the job's limits, and in this machine. */
static bool has_room(
        const struct job_plan *plan, int local_size, uint64_t bytes)
{
    const struct plan_limits *limits = &plan->limits;
    uint64_t device = plan_device_bytes(plan);
    uint64_t host = plan_host_bytes(plan) + bytes;
    uint64_t here = job_plan_memory(plan) + bytes;
    return host <= limits->host && device + host <= limits->total &&
           here <= job_machine_memory(local_size);
}

enum zd_status plan_snapshot(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    const struct checkpoint_options *save = &job->checkpoint;
    plan->snapshot_bytes = 0;
    plan->no_snapshot = NULL;
    if (!save->async_save || save->save_strategy == SAVE_NO)
        return ZD_OK;
    if (job->offload.optimizer == OFFLOAD_NVME) {
        plan->no_snapshot = "states are on a disk (offload.optimizer)";
        return ZD_OK;
    }
    uint64_t bytes = zero_snapshot_bytes(&plan->zero, !save->save_only_model);
    if (save->snapshot_bytes && bytes > save->snapshot_bytes) {
        plan->no_snapshot = "checkpoint.snapshot_memory is less";
        return ZD_OK;
    }
    if (!has_room(plan, local_size, bytes)) {
        plan->no_snapshot = "so much memory is not free";
        return ZD_OK;
    }
    plan->snapshot_bytes = bytes;
    return arena_plan_add(
            &plan->arena, "checkpoint.snapshot", ARENA_HOST, SPAN_BUFFERS,
            bytes);
}
