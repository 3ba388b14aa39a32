/* Operations as tokens that can be waited for. */
#include "comm/backend.h"

/* The operation with number `order` + 1; 0: the oldest under way. NULL: it is
 * finished. */
static struct comm_op *find(struct comm *comm, uint64_t number)
{
    struct comm_op *found = NULL;
    ZD_EACH(op, comm->ops, COMM_OPS_MAX)
        if (op->in_use && (!number || op->order + 1 == number) &&
            (!found || op->order < found->order))
            found = op;
    return found;
}

static enum zd_status wait_for(
        struct timeline *timeline, uint64_t number, struct stream *stream)
{
    struct comm_op *op = find(timeline->owner, number);
    (void)stream; /* operations end on the compute stream */
    return op ? comm_wait(timeline->owner, op) : ZD_OK;
}

bool comm_is_full(const struct comm *comm)
{
    int count = 0;
    while (count < COMM_OPS_MAX && comm->ops[count].in_use)
        count++;
    return count == COMM_OPS_MAX;
}

enum zd_status comm_queue(
        struct comm *comm, const struct comm_op *request,
        struct token *begun_out)
{
    struct comm_op *op;
    if (comm_is_full(comm))
        ZD_TRY(comm_wait(comm, find(comm, 0)));
    ZD_TRY(comm_begin(comm, request, &op));
    comm->timeline.wait = wait_for;
    comm->timeline.owner = comm;
    *begun_out = (struct token){&comm->timeline, op->order + 1};
    return ZD_OK;
}

enum zd_status comm_finish(struct comm *comm)
{
    struct comm_op *op;
    while (comm && (op = find(comm, 0)))
        ZD_TRY(comm_wait(comm, op));
    return ZD_OK;
}
