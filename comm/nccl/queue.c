/* Turn the operations that have begun into NCCL groups on its stream */
#include "comm/nccl/private.h"
#include "comm/sum_cuda.h"

#include "base/device/device_cuda.h"
#include "base/device/device_memory.h"

struct event *nccl_done_of(struct nccl *nccl, const struct comm_op *op)
{
    return nccl->done[op->sequence % NCCL_EVENTS];
}

enum { SCRATCH_ALIGN = 64 };

/* --- scratch -------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static bool in_levels(const struct nccl_group *group)
{
    return group->rail.size > 1;
}

/* Is this one summed in rank order, by a kernel of ours? */
static bool is_ordered(const struct nccl_group *group, const struct comm_op *op)
{
    return op->kind == OP_REDUCE_SCATTER &&
           group->base.options.reduce == COMM_REDUCE_ORDERED;
}

/* First the intermediate results between the levels, then a sum that is still
 * to be added. */
static size_t levels_bytes(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t bytes = (size_t)group->rail.size * op->count * dtype_bytes(op->type);
    return in_levels(group) ? aligned(bytes) : 0;
}

size_t nccl_scratch_need(
        const struct nccl_group *group, const struct comm_op *op)
{
    if (is_ordered(group, op))
        return nccl_ordered_need(group, op);
    if (op->kind == OP_ALL_TO_ALL)
        return 0;
    size_t adds = op->accumulate ? aligned(op->count * sizeof(float)) : 0;
    return levels_bytes(group, op) + adds;
}

static char *levels_of(const struct nccl_pending *p)
{
    return p->group->scratch + p->scratch;
}

/* Destination of the sum: the shard, or scratch from which it is added. */
static void *sum_of(const struct nccl_pending *p)
{
    return p->op->accumulate ? levels_of(p) + levels_bytes(p->group, p->op)
                             : p->op->to;
}

/* --- one operation in an ncclGroup ---------------------------------------- */

/* Within the node, once for each node's ranks. In one level all are one node:
 * there is nothing in between. */
static enum zd_status put_node(
        const struct nccl_pending *p, cudaStream_t stream)
{
    const struct nccl_group *group = p->group;
    const struct nccl_functions *f = group->nccl->functions;
    const struct comm_op *op = p->op;
    ncclComm_t node = group->comms[nccl_node_comm(group)];
    size_t bytes = op->count * dtype_bytes(op->type);
    size_t per_node = bytes * (size_t)group->node.size;
    if (is_ordered(group, op))
        return nccl_ordered_put_node(p);
    for (size_t d = 0; d < (size_t)group->rail.size; d++) {
        char *part = levels_of(p) + d * bytes;
        if (op->kind == OP_ALL_GATHER)
            ZD_NCCL(f, node, AllGather, in_levels(group) ? part : op->from,
                    (char *)op->to + d * per_node, op->count,
                    nccl_type_of(op->type), node, stream);
        else
            ZD_NCCL(f, node, ReduceScatter,
                    (const char *)op->from + d * per_node,
                    in_levels(group) ? part : sum_of(p), op->count,
                    nccl_type_of(op->type), ncclSum, node, stream);
    }
    return ZD_OK;
}

static enum zd_status put_rail(
        const struct nccl_pending *p, cudaStream_t stream)
{
    const struct nccl_functions *f = p->group->nccl->functions;
    const struct comm_op *op = p->op;
    ncclComm_t rail = p->group->comms[NCCL_RAIL];
    if (op->kind == OP_ALL_GATHER)
        ZD_NCCL(f, rail, AllGather, op->from, levels_of(p), op->count,
                nccl_type_of(op->type), rail, stream);
    else if (is_ordered(p->group, op))
        return nccl_ordered_put_rail(p);
    else
        ZD_NCCL(f, rail, ReduceScatter, levels_of(p), sum_of(p), op->count,
                nccl_type_of(op->type), ncclSum, rail, stream);
    return ZD_OK;
}

/* To and from every rank of the group, itself too, in one level. */
static enum zd_status put_exchange(
        const struct nccl_pending *p, cudaStream_t stream)
{
    const struct nccl_functions *f = p->group->nccl->functions;
    const struct comm_op *op = p->op;
    ncclComm_t all = p->group->comms[NCCL_WORLD];
    size_t bytes = op->count * dtype_bytes(op->type);
    ncclDataType_t type = nccl_type_of(op->type);
    struct mesh_group who = {
            .size = p->group->base.size, .place = p->group->base.rank};
    for (int away = 0; away < who.size; away++) {
        int to = mesh_neighbor(who, away), from = mesh_neighbor(who, -away);
        ZD_NCCL(f, all, Send, (const char *)op->from + (size_t)to * bytes,
                op->count, type, to, all, stream);
        ZD_NCCL(f, all, Recv, (char *)op->to + (size_t)from * bytes, op->count,
                type, from, all, stream);
    }
    return ZD_OK;
}

/* --- runs: pending operations of one comm ----------------------------------
 */

struct run {
    struct nccl_group *group;
    struct nccl_pending *pending;
    int count;
};

typedef enum zd_status put_fn(
        const struct nccl_pending *pending, cudaStream_t stream);

/* Sets of kinds of operations. */
enum {
    NOTHING = 0,
    GATHERS = 1 << OP_ALL_GATHER,
    REDUCES = 1 << OP_REDUCE_SCATTER,
    EXCHANGES = 1 << OP_ALL_TO_ALL
};

static bool is_among(const struct run *run, int i, unsigned kinds)
{
    return kinds >> run->pending[i].op->kind & 1;
}

static enum zd_status put_run(
        const struct run *run, int which, put_fn *put, unsigned kinds)
{
    const struct nccl *nccl = run->group->nccl;
    const struct nccl_functions *f = nccl->functions;
    ncclComm_t comm = run->group->comms[which];
    cudaStream_t stream = device_cuda_stream(nccl->stream);
    enum zd_status status = ZD_OK;
    ZD_NCCL(f, comm, GroupStart);
    for (int i = 0; i < run->count && status == ZD_OK; i++)
        if (is_among(run, i, kinds))
            status = put(&run->pending[i], stream);
    enum zd_status ended = nccl_check(f, f->GroupEnd(), "ncclGroupEnd", comm);
    return status != ZD_OK ? status : ended;
}

/* Queue one ncclGroup with the run's operations of these kinds, on one
 * communicator. */
static enum zd_status queue_group(
        const struct run *run, int which, put_fn *put, unsigned kinds)
{
    struct nccl *nccl = run->group->nccl;
    int first = 0;
    while (first < run->count && !is_among(run, first, kinds))
        first++;
    if (first == run->count)
        return ZD_OK;
    if (!nccl_calls_begin(nccl))
        return nccl_check_alive(nccl);
    enum zd_status status = put_run(run, which, put, kinds);
    nccl_calls_end(nccl);
    ZD_TRY(status);
    /* one that does not block has queued them when it says so */
    return nccl_settle(
            nccl, run->group->comms[which], run->group->base.options.timeout);
}

/* Sums of our own, after the exchange that they need. */
static enum zd_status add_ordered(
        const struct run *run,
        enum zd_status (*add)(const struct nccl_pending *pending))
{
    for (int i = 0; i < run->count; i++)
        if (is_ordered(run->group, run->pending[i].op))
            ZD_TRY(add(&run->pending[i]));
    return ZD_OK;
}

/* NCCL has no sum that is added to what is there. */
static enum zd_status add_sums(const struct run *run)
{
    for (int i = 0; i < run->count; i++) {
        const struct nccl_pending *p = &run->pending[i];
        if (p->op->accumulate && !is_ordered(run->group, p->op))
            ZD_TRY(comm_add_cuda(
                    run->group->nccl->stream, p->op->to, sum_of(p),
                    p->op->count));
    }
    return ZD_OK;
}

static enum zd_status queue_round(const struct run *run, size_t round)
{
    bool has_rails = in_levels(run->group);
    unsigned gathers = round == 0 ? GATHERS : NOTHING;
    for (int i = 0; i < run->count; i++)
        run->pending[i].round = round;
    if (round == 0)
        ZD_TRY(queue_group(run, NCCL_WORLD, put_exchange, EXCHANGES));
    if (has_rails)
        ZD_TRY(queue_group(run, NCCL_RAIL, put_rail, gathers));
    ZD_TRY(queue_group(
            run, nccl_node_comm(run->group), put_node, gathers | REDUCES));
    ZD_TRY(add_ordered(run, nccl_ordered_sum_node));
    if (!has_rails)
        return ZD_OK;
    ZD_TRY(queue_group(run, NCCL_RAIL, put_rail, REDUCES));
    return add_ordered(run, nccl_ordered_sum_rail);
}

/* One round, unless a shard is summed in order in several pieces. */
static enum zd_status queue_run(const struct run *run)
{
    size_t rounds = 1;
    for (int i = 0; i < run->count; i++) {
        const struct comm_op *op = run->pending[i].op;
        size_t own = is_ordered(run->group, op)
                             ? nccl_ordered_rounds(run->group, op)
                             : 1;
        rounds = own > rounds ? own : rounds;
    }
    for (size_t round = 0; round < rounds; round++)
        ZD_TRY(queue_round(run, round));
    return add_sums(run);
}

/* From `first` on. A number that is missing is of another group: its operation
 * is not queued where there is one rank, and ends the run elsewhere. */
static struct run find_run(struct nccl *nccl, int first)
{
    const struct nccl_pending *at = &nccl->pending[first];
    int count = 1;
    while (first + count < nccl->pending_count &&
           at[count].group == at->group &&
           at[count].op->sequence == at[count - 1].op->sequence + 1)
        count++;
    return (struct run){at->group, &nccl->pending[first], count};
}

/* --- all ------------------------------------------------------------------ */

static enum zd_status queue_all(struct nccl *nccl)
{
    const struct comm_op *last = nccl->pending[nccl->pending_count - 1].op;
    ZD_TRY(stream_wait(
            nccl->stream, nccl->ready[last->sequence % NCCL_EVENTS]));
    for (int i = 0; i < nccl->pending_count;) {
        struct run run = find_run(nccl, i);
        ZD_TRY(queue_run(&run));
        i += run.count;
    }
    for (int i = 0; i < nccl->pending_count; i++) {
        const struct nccl_pending *p = &nccl->pending[i];
        ZD_TRY(stream_record(nccl->stream, nccl_done_of(nccl, p->op)));
        atomic_store(&nccl->queued, p->op->sequence + 1);
    }
    return ZD_OK;
}

enum zd_status nccl_flush(struct nccl *nccl)
{
    if (nccl->pending_count == 0)
        return ZD_OK;
    ZD_TRY(nccl_check_alive(nccl));
    enum zd_status status = queue_all(nccl);
    for (int i = 0; i < nccl->pending_count; i++) /* later comes later */
        nccl->pending[i].group->scratch_used = 0;
    nccl->pending_count = 0;
    if (status != ZD_ERR_PEER) /* a failed GPU is this rank's own cause */
        return status;
    ZD_TRY(nccl_check_alive(nccl));
    nccl_fail(nccl);
    zd_error_clear(); /* has been told */
    return nccl_check_alive(nccl);
}
