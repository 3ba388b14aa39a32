/* Sums in rank order over NCCL (comm.reduce = "ordered"): ranks exchange their
 * parts, and a kernel of ours adds them, so that they have the bits of
 * sum_parts on any number of GPUs, by any algorithm and version of NCCL.
 *
 *
 * Slots of scratch of one operation, each as large as a piece of a shard:
 *
 *   one level    the parts of the other ranks, in rank order
 *   two levels   A: the parts of the node's other ranks, for each node (k-1, n)
 *                B: the node's sums, for each node (n)
 *                then A again: the other nodes' sums (n-1)
 *
 * A shard that is larger than a slot goes in several rounds, which need the
 * exchange and the sum of the one before to be over: the stream sees to that.
 */
#include "comm/nccl/private.h"
#include "comm/sum_cuda.h"

#include "base/device/device_cuda.h"

/* A piece of one operation, and what is around it. */
struct piece {
    const struct comm_op *op;
    ncclDataType_t type;
    size_t width, at, count; /* at, count: elements of a shard */
    size_t slot_bytes;
    char *slots;
    struct mesh_group node, rail;
};

static size_t rounded_up(size_t bytes)
{
    return (bytes + NCCL_SLOT_ALIGN - 1) / NCCL_SLOT_ALIGN * NCCL_SLOT_ALIGN;
}

static size_t slots_of(const struct nccl_group *group)
{
    return nccl_ordered_slots(group->base.size, group->rail.size);
}

static size_t slot_bytes(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t whole = rounded_up(op->count * dtype_bytes(op->type));
    size_t most = group->scratch_bytes / slots_of(group) / NCCL_SLOT_ALIGN *
                  NCCL_SLOT_ALIGN;
    return whole < most ? whole : most;
}

size_t nccl_ordered_need(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t slot = slot_bytes(group, op);
    bool has_room = slot > 0 || op->count == 0;
    return has_room ? slots_of(group) * slot : SIZE_MAX;
}

size_t nccl_ordered_rounds(
        const struct nccl_group *group, const struct comm_op *op)
{
    size_t piece = slot_bytes(group, op);
    size_t bytes = op->count * dtype_bytes(op->type);
    return piece ? (bytes + piece - 1) / piece : 1;
}

/* False: this round has nothing of it. */
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
    if (op->kind != OP_REDUCE_SCATTER || p.at >= op->count)
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

/* Among the others: the slot of the rank with this number. */
static int among_others(int number, int own)
{
    return number < own ? number : number - 1;
}

static char *node_sum(const struct piece *p, int node)
{
    return slot(p, (p->node.size - 1) * p->rail.size + node);
}

/* --- within nodes, along rails -------------------------------------------- */

/* To and from the others of `who`: of each node a part, or their nodes' sums.
 */
static enum zd_status put(
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

enum zd_status nccl_ordered_put_node(const struct nccl_pending *pending)
{
    const struct nccl_group *group = pending->group;
    struct piece p;
    return find_piece(pending, &p)
                   ? put(group, &p, nccl_node_comm(group), p.node)
                   : ZD_OK;
}

/* The nodes' sums; in one level, that of all. */
enum zd_status nccl_ordered_sum_node(const struct nccl_pending *pending)
{
    struct piece p;
    if (!find_piece(pending, &p))
        return ZD_OK;
    for (int d = 0; d < p.rail.size; d++)
        ZD_TRY(
                sum(pending->group, &p, p.node,
                    part_for(&p, d * p.node.size + p.node.place), d,
                    p.rail.size, p.rail.size > 1 ? node_sum(&p, d) : NULL));
    return ZD_OK;
}

enum zd_status nccl_ordered_put_rail(const struct nccl_pending *pending)
{
    struct piece p;
    return find_piece(pending, &p) ? put(pending->group, &p, NCCL_RAIL, p.rail)
                                   : ZD_OK;
}

enum zd_status nccl_ordered_sum_rail(const struct nccl_pending *pending)
{
    struct piece p;
    return find_piece(pending, &p) ? sum(pending->group, &p, p.rail,
                                         node_sum(&p, p.rail.place), 0, 1, NULL)
                                   : ZD_OK;
}
