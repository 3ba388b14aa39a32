/* Leaving. */
#include "comm/nccl/private.h"

#include <stdlib.h>

static const double LEAVE_SECONDS = 10;

static enum zd_status finalize(struct nccl *nccl, ncclComm_t comm)
{
    const struct nccl_functions *f = nccl->functions;
    if (!nccl_calls_begin(nccl))
        return ZD_ERR_PEER;
    enum zd_status status =
            nccl_check(f, f->CommFinalize(comm), "ncclCommFinalize", comm);
    nccl_calls_end(nccl);
    return status == ZD_OK ? nccl_settle(nccl, comm, LEAVE_SECONDS) : status;
}

static void leave_comm(struct nccl *nccl, ncclComm_t comm)
{
    enum zd_status status = finalize(nccl, comm);
    if (!nccl_calls_begin(nccl))
        return;
    for (int c = 0; c < NCCL_ALL; c++)
        if (nccl->all[c] == comm)
            nccl->all[c] = NULL;
    if (status == ZD_OK)
        nccl->functions->CommDestroy(comm);
    nccl_calls_end(nccl);
}

static void free_all(struct nccl *nccl)
{
    for (int i = 0; i < NCCL_EVENTS; i++) {
        event_destroy(nccl->ready[i]);
        event_destroy(nccl->done[i]);
    }
    stream_destroy(nccl->stream);
    pthread_mutex_destroy(&nccl->calls);
    free(nccl);
}

/* After a failure the memory stays with the threads that may still look at it;
 * the process is about to end. */
void nccl_destroy(struct comm *comm)
{
    struct nccl_group *group = (struct nccl_group *)comm;
    struct nccl *nccl = group->nccl;
    bool is_whole = group == nccl->whole;
    if (is_whole)
        nccl_watch_stop(nccl);
    if (atomic_load(&nccl->has_failed) || atomic_load(&nccl->aborts))
        return;
    stream_finish(nccl->stream);
    for (int c = NCCL_COMMS - 1; c >= 0; c--)
        if (group->comms[c])
            leave_comm(nccl, group->comms[c]);
    if (is_whole)
        free_all(nccl);
    comm_base_fini(comm);
    free(group);
}
