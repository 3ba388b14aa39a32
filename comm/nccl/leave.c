/* Leaving. */
#include "comm/nccl/private.h"

#include <stdlib.h>

static const double LEAVE_SECONDS = 10;

static void leave_comm(struct nccl *nccl, ncclComm_t comm)
{
    const struct nccl_functions *f = nccl->functions;
    enum zd_status status =
            nccl_check(f, f->CommFinalize(comm), "ncclCommFinalize", comm);
    if (status == ZD_OK)
        status = nccl_settle(nccl, comm, LEAVE_SECONDS);
    if (status == ZD_OK)
        f->CommDestroy(comm);
}

/* After a failure the memory stays with the threads that may still look at it;
 * the process is about to end. */
void nccl_destroy(struct comm *comm)
{
    struct nccl *nccl = (struct nccl *)comm;
    nccl_watch_stop(nccl);
    if (atomic_load(&nccl->has_failed) || atomic_load(&nccl->aborts))
        return;
    stream_finish(nccl->stream);
    nccl_set_memory(comm, NULL);
    for (int c = NCCL_COMMS - 1; c >= 0; c--)
        if (nccl->comms[c])
            leave_comm(nccl, nccl->comms[c]);
    for (int i = 0; i < COMM_OPS_MAX; i++)
        event_destroy(nccl->ready[i]);
    for (int i = 0; i < DONE_EVENTS; i++)
        event_destroy(nccl->done[i]);
    stream_destroy(nccl->stream);
    comm_base_fini(comm);
    pthread_mutex_destroy(&nccl->calls);
    free(nccl);
}
