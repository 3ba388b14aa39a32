/* Turn the operations that have begun into NCCL groups on its stream */
#include "comm/nccl/private.h"
#include "comm/sum_cuda.h"

#include "base/device/device_cuda.h"
#include "base/device/device_memory.h"

struct event *nccl_done_of(struct nccl *nccl, const struct comm_op *op)
{
    return nccl->done[op->sequence % DONE_EVENTS];
}

enum { SCRATCH_ALIGN = 64 };

/* --- scratch -------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static bool in_levels(const struct nccl *nccl)
{
    return nccl->rail.size > 1;
}

/* Is this one summed in rank order, by a kernel of ours? */
static bool is_ordered(const struct nccl *nccl, const struct comm_op *op)
{
    return op->kind == OP_REDUCE_SCATTER &&
           nccl->base.options.reduce == COMM_REDUCE_ORDERED;
}

/* First the intermediate results between the levels, then a sum that is still
 * to be added. */
static size_t levels_bytes(const struct nccl *nccl, const struct comm_op *op)
{
    size_t bytes = (size_t)nccl->rail.size * op->count * dtype_bytes(op->type);
    return in_levels(nccl) ? aligned(bytes) : 0;
}

size_t nccl_scratch_need(const struct nccl *nccl, const struct comm_op *op)
{
    if (is_ordered(nccl, op))
        return nccl_ordered_need(nccl, op);
    size_t adds = op->accumulate ? aligned(op->count * sizeof(float)) : 0;
    return levels_bytes(nccl, op) + adds;
}

static char *levels_of(struct nccl *nccl, int i)
{
    return nccl->scratch + nccl->pending_scratch[i];
}

/* Destination of the sum: the shard, or scratch from which it is added. */
static void *sum_of(struct nccl *nccl, int i)
{
    const struct comm_op *op = nccl->pending[i];
    return op->accumulate ? levels_of(nccl, i) + levels_bytes(nccl, op)
                          : op->to;
}

/* --- one operation in a group --------------------------------------------- */

/* Within the node, once for each node's ranks. In one level all are one node:
 * there is nothing in between. */
static enum zd_status put_node(struct nccl *nccl, int i, cudaStream_t stream)
{
    const struct nccl_functions *f = nccl->functions;
    const struct comm_op *op = nccl->pending[i];
    ncclComm_t node = nccl->comms[nccl_node_comm(nccl)];
    size_t bytes = op->count * dtype_bytes(op->type);
    size_t per_node = bytes * (size_t)nccl->node.size;
    if (is_ordered(nccl, op))
        return nccl_ordered_put_node(nccl, i);
    for (size_t d = 0; d < (size_t)nccl->rail.size; d++) {
        char *part = levels_of(nccl, i) + d * bytes;
        if (op->kind == OP_ALL_GATHER)
            ZD_NCCL(f, node, AllGather, in_levels(nccl) ? part : op->from,
                    (char *)op->to + d * per_node, op->count,
                    nccl_type_of(op->type), node, stream);
        else
            ZD_NCCL(f, node, ReduceScatter,
                    (const char *)op->from + d * per_node,
                    in_levels(nccl) ? part : sum_of(nccl, i), op->count,
                    nccl_type_of(op->type), ncclSum, node, stream);
    }
    return ZD_OK;
}

static enum zd_status put_rail(struct nccl *nccl, int i, cudaStream_t stream)
{
    const struct nccl_functions *f = nccl->functions;
    const struct comm_op *op = nccl->pending[i];
    ncclComm_t rail = nccl->comms[NCCL_RAIL];
    if (op->kind == OP_ALL_GATHER)
        ZD_NCCL(f, rail, AllGather, op->from, levels_of(nccl, i), op->count,
                nccl_type_of(op->type), rail, stream);
    else if (is_ordered(nccl, op))
        return nccl_ordered_put_rail(nccl, i);
    else
        ZD_NCCL(f, rail, ReduceScatter, levels_of(nccl, i), sum_of(nccl, i),
                op->count, nccl_type_of(op->type), ncclSum, rail, stream);
    return ZD_OK;
}

/* --- groups --------------------------------------------------------------- */

typedef enum zd_status put_fn(struct nccl *nccl, int i, cudaStream_t stream);

static enum zd_status put_group(
        struct nccl *nccl, int which, put_fn *put, bool gathers, bool reduces,
        int *put_out)
{
    const struct nccl_functions *f = nccl->functions;
    ncclComm_t comm = nccl->comms[which];
    cudaStream_t stream = device_cuda_stream(nccl->stream);
    enum zd_status status = ZD_OK;
    *put_out = 0;
    ZD_NCCL(f, comm, GroupStart);
    for (int i = 0; i < nccl->pending_count && status == ZD_OK; i++) {
        bool is_gather = nccl->pending[i]->kind == OP_ALL_GATHER;
        if (is_gather ? !gathers : !reduces)
            continue;
        status = put(nccl, i, stream);
        ++*put_out;
    }
    enum zd_status ended = nccl_check(f, f->GroupEnd(), "ncclGroupEnd", comm);
    return status != ZD_OK ? status : ended;
}

/* Queue one group with the pending operations of these kinds, on one
 * communicator. */
static enum zd_status queue_group(
        struct nccl *nccl, int which, put_fn *put, bool gathers, bool reduces)
{
    int count;
    if (!nccl_calls_begin(nccl))
        return nccl_check_alive(nccl);
    enum zd_status status =
            put_group(nccl, which, put, gathers, reduces, &count);
    nccl_calls_end(nccl);
    if (status != ZD_OK || count == 0)
        return status;
    /* one that does not block has queued them when it says so */
    return nccl_settle(nccl, nccl->comms[which], nccl->base.options.timeout);
}

/* Sums of our own, after the exchange that they need. */
static enum zd_status add_ordered(
        struct nccl *nccl, enum zd_status (*add)(struct nccl *nccl, int i))
{
    for (int i = 0; i < nccl->pending_count; i++)
        if (is_ordered(nccl, nccl->pending[i]))
            ZD_TRY(add(nccl, i));
    return ZD_OK;
}

/* NCCL has no sum that is added to what is there. */
static enum zd_status add_sums(struct nccl *nccl)
{
    for (int i = 0; i < nccl->pending_count; i++) {
        const struct comm_op *op = nccl->pending[i];
        if (op->accumulate && !is_ordered(nccl, op))
            ZD_TRY(comm_add_cuda(
                    nccl->stream, op->to, sum_of(nccl, i), op->count));
    }
    return ZD_OK;
}

static enum zd_status queue_round(struct nccl *nccl)
{
    bool gathers = nccl->round == 0, has_rails = in_levels(nccl);
    if (has_rails)
        ZD_TRY(queue_group(nccl, NCCL_RAIL, put_rail, gathers, false));
    ZD_TRY(queue_group(nccl, nccl_node_comm(nccl), put_node, gathers, true));
    ZD_TRY(add_ordered(nccl, nccl_ordered_sum_node));
    if (!has_rails)
        return ZD_OK;
    ZD_TRY(queue_group(nccl, NCCL_RAIL, put_rail, false, true));
    return add_ordered(nccl, nccl_ordered_sum_rail);
}

/* One round, unless a shard is summed in order in several pieces. */
static enum zd_status queue_pending(struct nccl *nccl)
{
    size_t rounds = 1;
    for (int i = 0; i < nccl->pending_count; i++) {
        const struct comm_op *op = nccl->pending[i];
        size_t own = is_ordered(nccl, op) ? nccl_ordered_rounds(nccl, op) : 1;
        rounds = own > rounds ? own : rounds;
    }
    for (nccl->round = 0; nccl->round < rounds; nccl->round++)
        ZD_TRY(queue_round(nccl));
    return add_sums(nccl);
}

static enum zd_status queue_all(struct nccl *nccl)
{
    const struct comm_op *last = nccl->pending[nccl->pending_count - 1];
    ZD_TRY(stream_wait(nccl->stream, nccl->ready[last->slot]));
    ZD_TRY(queue_pending(nccl));
    for (int i = 0; i < nccl->pending_count; i++) {
        ZD_TRY(stream_record(
                nccl->stream, nccl_done_of(nccl, nccl->pending[i])));
        atomic_store(&nccl->queued, nccl->pending[i]->sequence + 1);
    }
    return ZD_OK;
}

enum zd_status nccl_flush(struct nccl *nccl)
{
    if (nccl->pending_count == 0)
        return ZD_OK;
    ZD_TRY(nccl_check_alive(nccl));
    enum zd_status status = queue_all(nccl);
    nccl->pending_count = 0;
    nccl->scratch_used = 0;    /* what is queued later comes later */
    if (status != ZD_ERR_PEER) /* a failed GPU is this rank's own cause */
        return status;
    ZD_TRY(nccl_check_alive(nccl));
    nccl_fail(nccl);
    zd_error_clear(); /* has been told */
    return nccl_check_alive(nccl);
}
