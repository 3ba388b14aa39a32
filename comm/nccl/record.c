/* Which operations are under way. */
#include "comm/nccl/private.h"

static struct flight *flight_of(struct nccl *nccl, uint64_t sequence)
{
    return &nccl->flights[sequence % FLIGHT_ENTRIES];
}

void nccl_note_begun(struct nccl *nccl, const struct comm_op *op)
{
    pthread_mutex_lock(&nccl->lock);
    *flight_of(nccl, op->sequence) =
            (struct flight){.number = op->sequence + 1};
    nccl->flight_count = op->sequence + 1;
    pthread_mutex_unlock(&nccl->lock);
}

void nccl_note_queued(struct nccl *nccl, const struct comm_op *op)
{
    pthread_mutex_lock(&nccl->lock);
    flight_of(nccl, op->sequence)->is_queued = true;
    pthread_mutex_unlock(&nccl->lock);
}

/* Operations end in the order in which they were queued. */
void nccl_note_done(struct nccl *nccl)
{
    struct seat *seat = nccl->device.base.seat;
    pthread_mutex_lock(&nccl->lock);
    while (nccl->flight_first < nccl->flight_count) {
        struct flight *flight = flight_of(nccl, nccl->flight_first);
        bool is_ours = flight->number == nccl->flight_first + 1;
        if (is_ours &&
            (!flight->is_queued ||
             !event_is_done(nccl->done[nccl->flight_first % FLIGHT_ENTRIES])))
            break;
        nccl->flight_first++;
        if (seat)
            atomic_store(
                    &seat->lanes[LANE_OPERATIONS].done, nccl->flight_first);
    }
    pthread_mutex_unlock(&nccl->lock);
}
