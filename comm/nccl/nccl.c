/* Collectives by NCCL on a stream of their own. */
#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/private.h"

#include <string.h>

static struct nccl_group *group_of(struct comm *comm)
{
    return (struct nccl_group *)comm;
}

static struct nccl *nccl_of(struct comm *comm)
{
    return group_of(comm)->nccl;
}

/* --- the back end --------------------------------------------------------- */

static enum zd_status nccl_begin(struct comm *comm, struct comm_op *op)
{
    struct nccl_group *group = group_of(comm);
    struct nccl *nccl = group->nccl;
    size_t need = nccl_scratch_need(group, op);
    op->rounds = op->count > 0;
    if (op->rounds == 0)
        return ZD_OK;
    if (need > group->scratch_bytes)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "a collective needs %zu bytes of comm.device, which has %zu",
                need, group->scratch_bytes);
    ZD_TRY(nccl_check_alive(nccl));
    if (need > group->scratch_bytes - group->scratch_used ||
        nccl->pending_count == NCCL_EVENTS)
        ZD_TRY(nccl_flush(nccl));
    ZD_TRY(stream_record(NULL, nccl->ready[op->sequence % NCCL_EVENTS]));
    nccl->pending[nccl->pending_count++] = (struct nccl_pending){
            .group = group, .op = op, .scratch = group->scratch_used};
    group->scratch_used += need;
    return ZD_OK;
}

static enum zd_status nccl_wait(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    if (op->rounds == 0)
        return ZD_OK;
    ZD_TRY(nccl_flush(nccl));
    ZD_TRY(nccl_check_alive(nccl));
    return stream_wait_counted(NULL, nccl_done_of(nccl, op));
}

static void set_memory(struct comm *comm, const struct arena *arena)
{
    struct nccl_group *group = group_of(comm);
    char name[COMM_SPAN_MAX];
    comm_span_name(comm->row.name, "device", name);
    const struct arena_span *span =
            arena ? arena_plan_find(arena->plan, name) : NULL;
    group->scratch = span ? arena_span(arena, name) : NULL;
    group->scratch_bytes = span ? span->bytes : 0;
}

/* Of the compute stream; the host does not wait. */
static double waited(const struct comm *comm)
{
    (void)comm;
    return stream_waited(NULL);
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
    nccl_await_end(nccl);
    nccl_abort_all(nccl);
}

static void give_up(struct comm *comm)
{
    nccl_give_up(nccl_of(comm));
}

const struct comm_functions nccl_backend = {
        .group = nccl_group_create,
        .begin = nccl_begin,
        .wait = nccl_wait,
        .progress = nccl_progress,
        .set_memory = set_memory,
        .transport = COMM_TRANSPORT_NCCL,
        .abort = nccl_abort,
        .give_up = give_up,
        .waited = waited,
        .destroy = nccl_destroy,
};
