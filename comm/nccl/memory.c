/* The device's memory: scratch of the back end, and what NCCL may register. */
#include "base/log.h"
#include "comm/nccl/private.h"

static void deregister(struct nccl *nccl)
{
    bool may_call = nccl_calls_begin(nccl);
    for (int c = 0; c < NCCL_COMMS; c++) {
        if (may_call && nccl->registered[c] && !atomic_load(&nccl->has_failed))
            nccl->functions->CommDeregister(
                    nccl->comms[c], nccl->registered[c]);
        nccl->registered[c] = NULL;
    }
    if (may_call)
        nccl_calls_end(nccl);
}

/* All ranks or none. Not having it costs a copy within NCCL, so it is told and
 * not an error. */
static void register_memory(struct nccl *nccl, void *base, size_t bytes)
{
    struct comm *comm = &nccl->base;
    bool may_call = nccl_calls_begin(nccl);
    int64_t is_registered = bytes > 0 && may_call;
    ncclResult_t result = ncclSuccess;
    for (int c = 0; c < NCCL_COMMS && is_registered; c++) {
        if (!nccl->comms[c])
            continue;
        result = nccl->functions->CommRegister(
                nccl->comms[c], base, bytes, &nccl->registered[c]);
        is_registered = result == ncclSuccess && nccl->registered[c];
    }
    if (may_call)
        nccl_calls_end(nccl);
    if (comm_all_reduce_i64(nccl->base.control, &is_registered, 1, COMM_MIN) !=
        ZD_OK)
        return; /* the next collective says so */
    if (is_registered)
        return;
    deregister(nccl);
    if (comm->rank == 0 && bytes > 0)
        zd_log_info(
                "nccl: the device's memory is not registered (%s); messages "
                "pass through buffers",
                result == ncclSuccess
                        ? "NCCL does without it here"
                        : nccl->functions->GetErrorString(result));
}

void nccl_set_memory(struct comm *comm, const struct arena *arena)
{
    struct nccl *nccl = (struct nccl *)comm;
    deregister(nccl);
    nccl->scratch = NULL;
    nccl->scratch_bytes = 0;
    if (!arena)
        return;
    const struct arena_span *span = arena_plan_find(arena->plan, "comm.device");
    if (span) {
        nccl->scratch = arena_span(arena, "comm.device");
        nccl->scratch_bytes = span->bytes;
    }
    register_memory(
            nccl, arena->base[ARENA_DEVICE], arena->taken_bytes[ARENA_DEVICE]);
}
