/* Collectives by NCCL on a stream of their own. UNTESTED on a GPU. */
#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/private.h"

#include <string.h>

static struct nccl *nccl_of(struct comm *comm)
{
    return (struct nccl *)comm;
}

/* --- the back end --------------------------------------------------------- */

static enum zd_status nccl_begin(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    size_t need = nccl_scratch_need(nccl, op);
    comm_device_count(comm, op);
    op->rounds = op->count > 0;
    if (op->rounds == 0)
        return ZD_OK;
    if (need > nccl->scratch_bytes)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "a collective needs %zu bytes of comm.device, which has %zu",
                need, nccl->scratch_bytes);
    ZD_TRY(nccl_check_alive(nccl));
    if (need > nccl->scratch_bytes - nccl->scratch_used)
        ZD_TRY(nccl_flush(nccl));
    ZD_TRY(stream_record(NULL, nccl->ready[op->slot]));
    nccl_note_begun(nccl, op);
    nccl->pending[nccl->pending_count] = op;
    nccl->pending_scratch[nccl->pending_count++] = nccl->scratch_used;
    nccl->scratch_used += need;
    return ZD_OK;
}

static enum zd_status nccl_wait(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    if (op->rounds == 0)
        return ZD_OK;
    ZD_TRY(nccl_flush(nccl));
    ZD_TRY(nccl_check_alive(nccl));
    return stream_wait(NULL, nccl_done_of(nccl, op));
}

static enum zd_status nccl_progress(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    ZD_TRY(nccl_flush(nccl));
    return nccl_check_alive(nccl);
}

static void nccl_abort(struct comm *comm, int exit_code)
{
    struct nccl *nccl = nccl_of(comm);
    nccl_await_told(nccl);
    nccl_abort_all(nccl);
    comm_device_abort(comm, exit_code);
}

static void give_up(struct comm *comm)
{
    nccl_give_up(nccl_of(comm));
}

/* --- memory --------------------------------------------------------------- */

static void deregister(struct nccl *nccl)
{
    for (int c = 0; c < NCCL_COMMS; c++) {
        if (nccl->registered[c] && !atomic_load(&nccl->has_failed))
            nccl->functions->CommDeregister(
                    nccl->comms[c], nccl->registered[c]);
        nccl->registered[c] = NULL;
    }
}

/* All ranks or none. Not having it costs a copy within NCCL, so it is told and
 * not an error. */
static void register_memory(struct nccl *nccl, void *base, size_t bytes)
{
    struct comm *comm = &nccl->device.base;
    int64_t is_registered = bytes > 0;
    ncclResult_t result = ncclSuccess;
    for (int c = 0; c < NCCL_COMMS && is_registered; c++) {
        if (!nccl->comms[c])
            continue;
        result = nccl->functions->CommRegister(
                nccl->comms[c], base, bytes, &nccl->registered[c]);
        is_registered = result == ncclSuccess && nccl->registered[c];
    }
    if (comm_all_reduce_i64(
                nccl->device.control, &is_registered, 1, COMM_MIN) != ZD_OK)
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
    struct nccl *nccl = nccl_of(comm);
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

const struct comm_functions nccl_backend = {
        .begin = nccl_begin,
        .wait = nccl_wait,
        .progress = nccl_progress,
        .barrier = comm_device_barrier,
        .broadcast = comm_device_broadcast,
        .gather = comm_device_gather,
        .set_memory = nccl_set_memory,
        .transport = COMM_TRANSPORT_NCCL,
        .name = "nccl",
        .abort = nccl_abort,
        .give_up = give_up,
        .destroy = nccl_destroy,
};
