#include "zero/private.h"

#include <assert.h>

static struct pending_op *find(struct op_queue *ops, uint64_t ticket)
{
    for (int i = 0; i < COMM_OPS_MAX; i++)
        if (ops->pending[i].ticket == ticket)
            return &ops->pending[i];
    return NULL;
}

static enum zd_status finish(struct op_queue *ops, struct pending_op *pending)
{
    struct comm_op *op = pending->op;
    *pending = (struct pending_op){0};
    ops->count--;
    return comm_wait(ops->comm, op);
}

static enum zd_status ops_wait_oldest(struct op_queue *ops)
{
    struct pending_op *oldest = NULL;
    for (int i = 0; i < COMM_OPS_MAX; i++) {
        struct pending_op *pending = &ops->pending[i];
        if (pending->ticket && (!oldest || pending->ticket < oldest->ticket))
            oldest = pending;
    }
    return oldest ? finish(ops, oldest) : ZD_OK;
}

static enum zd_status ops_wait(
        struct timeline *timeline, uint64_t ticket, struct stream *stream)
{
    struct op_queue *ops = timeline->owner;
    struct pending_op *pending = find(ops, ticket);
    (void)stream; /* collectives end on the compute stream */
    return pending ? finish(ops, pending) : ZD_OK;
}

void ops_init(struct op_queue *ops, struct comm *comm)
{
    *ops = (struct op_queue){
            .comm = comm, .begun = {.wait = ops_wait, .owner = ops}};
}

enum zd_status ops_wait_all(struct op_queue *ops)
{
    while (ops->count > 0)
        ZD_TRY(ops_wait_oldest(ops));
    return ZD_OK;
}

/* A place for one more. */
static enum zd_status reserve(struct op_queue *ops, struct pending_op **out)
{
    if (ops->count == COMM_OPS_MAX)
        ZD_TRY(ops_wait_oldest(ops));
    *out = find(ops, 0);
    assert(*out);
    return ZD_OK;
}

static struct token commit(struct op_queue *ops, struct pending_op *pending)
{
    struct token begun = timeline_next(&ops->begun);
    pending->ticket = begun.number;
    ops->count++;
    return begun;
}

enum zd_status ops_all_gather(
        struct op_queue *ops, const void *shard, void *full, size_t count,
        enum dtype type, struct token *begun_out)
{
    struct pending_op *pending;
    ZD_TRY(reserve(ops, &pending));
    ZD_TRY(comm_all_gather_begin(
            ops->comm, shard, full, count, type, &pending->op));
    *begun_out = commit(ops, pending);
    return ZD_OK;
}

enum zd_status ops_reduce_scatter(
        struct op_queue *ops, const void *full, void *shard, size_t count,
        enum dtype type, bool accumulate, struct token *begun_out)
{
    struct pending_op *pending;
    ZD_TRY(reserve(ops, &pending));
    ZD_TRY(comm_reduce_scatter_begin(
            ops->comm, full, shard, count, type, accumulate, &pending->op));
    *begun_out = commit(ops, pending);
    return ZD_OK;
}
