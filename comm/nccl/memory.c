/* The device's memory: scratch of the back end, and what NCCL may register. */
#include "base/log.h"
#include "comm/nccl/private.h"

static void deregister(struct nccl_group *group)
{
    struct nccl *nccl = group->nccl;
    bool may_call = nccl_calls_begin(nccl);
    for (int c = 0; c < NCCL_COMMS; c++) {
        if (may_call && group->registered[c] && !atomic_load(&nccl->has_failed))
            nccl->functions->CommDeregister(
                    group->comms[c], group->registered[c]);
        group->registered[c] = NULL;
    }
    if (may_call)
        nccl_calls_end(nccl);
}

/* All ranks or none. Not having it costs a copy within NCCL, so it is told and
 * not an error. */
static void register_memory(struct nccl_group *group, void *base, size_t bytes)
{
    struct comm *comm = &group->base;
    struct nccl *nccl = group->nccl;
    bool may_call = nccl_calls_begin(nccl);
    int64_t is_registered = bytes > 0 && may_call;
    ncclResult_t result = ncclSuccess;
    for (int c = 0; c < NCCL_COMMS && is_registered; c++) {
        if (!group->comms[c])
            continue;
        result = nccl->functions->CommRegister(
                group->comms[c], base, bytes, &group->registered[c]);
        is_registered = result == ncclSuccess && group->registered[c];
    }
    if (may_call)
        nccl_calls_end(nccl);
    if (comm_all_reduce_i64(comm->control, &is_registered, 1, COMM_MIN) !=
        ZD_OK)
        return; /* the next collective says so */
    if (is_registered)
        return;
    deregister(group);
    if (comm->root->rank == 0 && bytes > 0)
        zd_log_info(
                "nccl: the device's memory is not registered (%s); messages "
                "pass through buffers",
                result == ncclSuccess
                        ? "NCCL does without it here"
                        : nccl->functions->GetErrorString(result));
}

void nccl_set_memory(struct comm *comm, const struct arena *arena)
{
    struct nccl_group *group = (struct nccl_group *)comm;
    char name[COMM_SPAN_MAX];
    deregister(group);
    group->scratch = NULL;
    group->scratch_bytes = 0;
    if (!arena)
        return;
    comm_span_name(comm->row.name, "device", name);
    const struct arena_span *span = arena_plan_find(arena->plan, name);
    if (span) {
        group->scratch = arena_span(arena, name);
        group->scratch_bytes = span->bytes;
    }
    register_memory(
            group, arena->base[ARENA_DEVICE], arena->taken_bytes[ARENA_DEVICE]);
}
