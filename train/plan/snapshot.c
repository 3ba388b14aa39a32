/* snapshot.c - the copy that checkpoints are written from while training goes
 * on. It is planned last, from memory that nothing else needs; a job without
 * room for it waits while it saves. */
#include "zero/snapshot.h"
#include "train/plan/fit.h"

enum zd_status plan_snapshot(const struct train_job *job, struct job_plan *plan)
{
    const struct checkpoint_options *save = &job->checkpoint;
    plan->snapshot_bytes = 0;
    plan->no_snapshot = NULL;
    if (!save->async_save || save->save_strategy == SAVE_NO)
        return ZD_OK;
    if (job->offload.optimizer == OFFLOAD_NVME) {
        plan->no_snapshot = "states are on disk (offload.optimizer)";
        return ZD_OK;
    }
    struct zero_snapshot_needs needs;
    ZD_TRY(zero_snapshot_measure(&plan->zero, !save->save_only_model, &needs));
    if (save->snapshot_bytes && needs.copied > save->snapshot_bytes) {
        plan->no_snapshot = "checkpoint.snapshot_memory is too small";
        return ZD_OK;
    }
    uint64_t bytes = needs.copied + needs.on_write;
    uint64_t room = plan_free_bytes(plan, &plan->limits);
    if (save->snapshot_bytes && bytes > save->snapshot_bytes)
        bytes = save->snapshot_bytes;
    if (bytes > room)
        bytes = room;
    if (bytes < needs.copied || bytes == 0) {
        plan->no_snapshot = "not enough memory is free";
        return ZD_OK;
    }
    plan->snapshot_bytes = bytes;
    return arena_plan_add(
            &plan->arena, "checkpoint.snapshot", ARENA_HOST, SPAN_BUFFERS,
            bytes);
}
