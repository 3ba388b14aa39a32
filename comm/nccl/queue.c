/* Turn the operations that have begun into NCCL groups on its stream */
#include "comm/nccl/private.h"
#include "comm/sum_cuda.h"

#include "base/device/device_cuda.h"
#include "base/device/device_memory.h"
#include "base/number/sizes.h"

struct event *nccl_done_of(struct nccl *nccl, const struct comm_op *op)
{
    return nccl->done[op->sequence % NCCL_EVENTS];
}

/* --- sums in rank order --------------------------------------------------- */

/* Sums in rank order over NCCL (comm.reduce = "ordered"): ranks exchange their
 * parts, and a kernel of ours adds them, which gives the bits of sum_parts on
 * any number of GPUs, whatever NCCL's algorithm and version.
 *
 * Slots of scratch of one operation, each as large as a piece of a shard:
 *
 *   one level    the parts of the other ranks, in rank order
 *   two levels   A: the parts of the node's other ranks, for each node (k-1, n)
 *                B: the node's sums, for each node (n)
 *                then A again: the other nodes' sums (n-1)
 *
 * A shard that is larger than a slot takes several rounds. Each needs the
 * exchange and sum of the one before, which the stream's order ensures. */

/* A piece of one operation, with its operation and group. */
struct piece {
    const struct comm_op *op;
    ncclDataType_t type;
    size_t width, at, count; /* at, count: elements of a shard */
    size_t slot_bytes;
    char *slots;
    struct mesh_group node, rail;
};

static size_t slots_of(const struct nccl_group *group)
{
    return nccl_ordered_slots(group->base.size, group->rail.size);
}

static size_t slot_bytes(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t whole =
            size_round_up(op->count * dtype_bytes(op->type), NCCL_SLOT_ALIGN);
    size_t most = group->scratch_bytes / slots_of(group) / NCCL_SLOT_ALIGN *
                  NCCL_SLOT_ALIGN;
    return whole < most ? whole : most;
}

static size_t ordered_need(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t slot = slot_bytes(group, op);
    bool has_room = slot > 0 || op->count == 0;
    return has_room ? slots_of(group) * slot : SIZE_MAX;
}

static size_t ordered_rounds(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t piece = slot_bytes(group, op);
    size_t bytes = op->count * dtype_bytes(op->type);
    return piece ? (bytes + piece - 1) / piece : 1;
}

/* False: the operation has no piece in this round. */
static bool find_piece(const struct nccl_pending *pending, struct piece *piece)
{
    const struct nccl_group *group = pending->group;
    const struct comm_op *op = pending->op;
    struct piece p = {
            .op = op,
            .type = nccl_type_of(op->type),
            .width = dtype_bytes(op->type),
            .slot_bytes = slot_bytes(group, op),
            .slots = group->scratch + pending->scratch,
            .node = group->node,
            .rail = group->rail};
    size_t most = p.slot_bytes / p.width;
    p.at = pending->round * most;
    if (op->kind != COMM_REDUCE_SCATTER || p.at >= op->count)
        return false;
    p.count = op->count - p.at < most ? op->count - p.at : most;
    *piece = p;
    return true;
}

/* This rank's contribution to the piece of `rank`. */
static const char *part_for(const struct piece *p, int rank)
{
    return (const char *)p->op->from +
           ((size_t)rank * p->op->count + p->at) * p->width;
}

static char *slot(const struct piece *p, int number)
{
    return p->slots + (size_t)number * p->slot_bytes;
}

/* The slot of rank `number`; our own rank has none. */
static int among_others(int number, int own)
{
    return number < own ? number : number - 1;
}

static char *node_sum(const struct piece *p, int node)
{
    return slot(p, (p->node.size - 1) * p->rail.size + node);
}

/* To and from the others of `who`: of each node a part, or their nodes' sums.
 */
static enum zd_status put_parts(
        const struct nccl_group *group, const struct piece *p, int which,
        struct mesh_group who)
{
    const struct nccl_functions *f = group->nccl->functions;
    ncclComm_t comm = group->comms[which];
    cudaStream_t stream = device_cuda_stream(group->nccl->stream);
    int parts = which == NCCL_RAIL ? 1 : p->rail.size;
    for (int away = 1; away < who.size; away++) {
        int to = mesh_neighbor(who, away), from = mesh_neighbor(who, -away);
        for (int d = 0; d < parts; d++) {
            const char *give = which == NCCL_RAIL
                                       ? node_sum(p, to)
                                       : part_for(p, d * who.size + to);
            char *take = slot(p, among_others(from, who.place) * parts + d);
            ZD_NCCL(f, comm, Send, give, p->count, p->type, to, comm, stream);
            ZD_NCCL(f, comm, Recv, take, p->count, p->type, from, comm, stream);
        }
    }
    return ZD_OK;
}

/* own, and the parts of the others of `who`, in order; to NULL: the shard. */
static enum zd_status sum(
        const struct nccl_group *group, const struct piece *p,
        struct mesh_group who, const char *own, int first, int stride, void *to)
{
    return comm_sum_cuda(
            group->nccl->stream,
            &(struct sum_cuda){
                    .to = to ? to : (char *)p->op->to + p->at * p->width,
                    .own = own,
                    .others = slot(p, first),
                    .stride = (size_t)stride * p->slot_bytes / p->width,
                    .count = p->count,
                    .parts = who.size,
                    .place = who.place,
                    .type = p->op->type,
                    .accumulate = !to && p->op->accumulate});
}

static enum zd_status ordered_put(
        const struct nccl_pending *pending, bool along_rail)
{
    const struct nccl_group *group = pending->group;
    struct piece p;
    if (!find_piece(pending, &p))
        return ZD_OK;
    return along_rail ? put_parts(group, &p, NCCL_RAIL, p.rail)
                      : put_parts(group, &p, nccl_node_comm(group), p.node);
}

/* First the nodes' sums (in one level, the whole sum), then the sums along the
 * rail. */
static enum zd_status ordered_sum(
        const struct nccl_pending *pending, bool along_rail)
{
    const struct nccl_group *group = pending->group;
    struct piece p;
    if (!find_piece(pending, &p))
        return ZD_OK;
    if (along_rail)
        return sum(group, &p, p.rail, node_sum(&p, p.rail.place), 0, 1, NULL);
    for (int d = 0; d < p.rail.size; d++)
        ZD_TRY(sum(
                group, &p, p.node, part_for(&p, d * p.node.size + p.node.place),
                d, p.rail.size, p.rail.size > 1 ? node_sum(&p, d) : NULL));
    return ZD_OK;
}

/* --- scratch -------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return size_round_up(bytes, 64);
}

static bool in_levels(const struct nccl_group *group)
{
    return group->rail.size > 1;
}

/* Is this operation summed in rank order, by our own kernel? */
static bool is_ordered(const struct nccl_group *group, const struct comm_op *op)
{
    return op->kind == COMM_REDUCE_SCATTER &&
           group->base.options.reduce == COMM_REDUCE_ORDERED;
}

/* The scratch first has the results between the levels, then a sum that is
 * still to be added to the shard. */
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
        return ordered_need(group, op);
    if (op->kind == COMM_ALL_TO_ALL)
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
        return ordered_put(p, false);
    for (size_t d = 0; d < (size_t)group->rail.size; d++) {
        char *part = levels_of(p) + d * bytes;
        if (op->kind == COMM_ALL_GATHER)
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
    if (op->kind == COMM_ALL_GATHER)
        ZD_NCCL(f, rail, AllGather, op->from, levels_of(p), op->count,
                nccl_type_of(op->type), rail, stream);
    else if (is_ordered(p->group, op))
        return ordered_put(p, true);
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
    GATHERS = 1 << COMM_ALL_GATHER,
    REDUCES = 1 << COMM_REDUCE_SCATTER,
    EXCHANGES = 1 << COMM_ALL_TO_ALL
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
    /* a nonblocking communicator has queued them once it is no longer in
     * progress */
    return nccl_settle(
            nccl, run->group->comms[which], run->group->base.options.timeout);
}

/* Sums of our own, after the exchange that they need. */
static enum zd_status add_ordered(const struct run *run, bool along_rail)
{
    for (int i = 0; i < run->count; i++)
        if (is_ordered(run->group, run->pending[i].op))
            ZD_TRY(ordered_sum(&run->pending[i], along_rail));
    return ZD_OK;
}

/* NCCL cannot accumulate into a buffer: add its sums to the shards. */
static enum zd_status add_sums(const struct run *run)
{
    ZD_EACH(p, run->pending, run->count)
        if (p->op->accumulate && !is_ordered(run->group, p->op))
            ZD_TRY(comm_add_cuda(
                    run->group->nccl->stream, p->op->to, sum_of(p),
                    p->op->count));
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
    ZD_TRY(add_ordered(run, false));
    if (!has_rails)
        return ZD_OK;
    ZD_TRY(queue_group(run, NCCL_RAIL, put_rail, REDUCES));
    return add_ordered(run, true);
}

/* One round, unless a shard is summed in order in several pieces. */
static enum zd_status queue_run(const struct run *run)
{
    size_t rounds = 1;
    for (int i = 0; i < run->count; i++) {
        const struct comm_op *op = run->pending[i].op;
        size_t own =
                is_ordered(run->group, op) ? ordered_rounds(run->group, op) : 1;
        rounds = own > rounds ? own : rounds;
    }
    for (size_t round = 0; round < rounds; round++)
        ZD_TRY(queue_round(run, round));
    return add_sums(run);
}

/* The run that begins at `first`. A missing number belongs to another group: if
 * that group has one rank here nothing is queued for it, elsewhere it ends the
 * run. */
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
    ZD_EACH(p, nccl->pending, nccl->pending_count) {
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
    /* keep what was begun after the flush */
    for (int i = 0; i < nccl->pending_count; i++)
        nccl->pending[i].group->scratch_used = 0;
    nccl->pending_count = 0;
    if (status != ZD_ERR_PEER) /* a failed GPU is this rank's own cause */
        return status;
    ZD_TRY(nccl_check_alive(nccl));
    nccl_fail(nccl);
    zd_error_clear(); /* has been told */
    return nccl_check_alive(nccl);
}
