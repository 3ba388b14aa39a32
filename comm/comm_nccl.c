/* Collectives by NCCL on a stream of their own. UNTESTED on a GPU. */
#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl_private.h"
#include "comm/sum_cuda.h"

#include "base/device_cuda.h"

#include <string.h>

enum { SCRATCH_ALIGN = 64 };

static struct nccl *nccl_of(struct comm *comm)
{
    return (struct nccl *)comm;
}

static ncclDataType_t type_of(enum dtype type)
{
    return type == DTYPE_FP32   ? ncclFloat32
           : type == DTYPE_BF16 ? ncclBfloat16
                                : ncclFloat16;
}

static struct event *done_of(struct nccl *nccl, const struct comm_op *op)
{
    return nccl->done[op->sequence % FLIGHT_ENTRIES];
}

static enum zd_status check_alive(struct nccl *nccl)
{
    if (!atomic_load(&nccl->has_failed))
        return ZD_OK;
    return ZD_FAIL(ZD_ERR_PEER, "E0501", "a collective failed; see above");
}

/* --- scratch -------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static bool in_levels(const struct nccl *nccl)
{
    return nccl->nodes > 1;
}

/* What lies between the levels, then a sum that is still to be added. */
static size_t levels_bytes(const struct nccl *nccl, const struct comm_op *op)
{
    size_t bytes = (size_t)nccl->nodes * op->count * dtype_bytes(op->type);
    return in_levels(nccl) ? aligned(bytes) : 0;
}

static size_t scratch_need(const struct nccl *nccl, const struct comm_op *op)
{
    size_t adds = op->accumulate ? aligned(op->count * sizeof(float)) : 0;
    return levels_bytes(nccl, op) + adds;
}

static char *levels_of(struct nccl *nccl, int i)
{
    return nccl->scratch + nccl->pending_scratch[i];
}

/* Where the sum goes: the shard, or scratch from where it is added. */
static void *sum_of(struct nccl *nccl, int i)
{
    const struct comm_op *op = nccl->pending[i];
    return op->accumulate ? levels_of(nccl, i) + levels_bytes(nccl, op)
                          : op->to;
}

/* --- one operation in a group --------------------------------------------- */

static enum zd_status put_flat(struct nccl *nccl, int i, cudaStream_t stream)
{
    const struct nccl_functions *f = nccl->functions;
    const struct comm_op *op = nccl->pending[i];
    ncclComm_t world = nccl->comms[NCCL_WORLD];
    if (op->kind == OP_ALL_GATHER)
        ZD_NCCL(f, world, AllGather, op->from, op->to, op->count,
                type_of(op->type), world, stream);
    else
        ZD_NCCL(f, world, ReduceScatter, op->from, sum_of(nccl, i), op->count,
                type_of(op->type), ncclSum, world, stream);
    return ZD_OK;
}

/* Within the node, once for each node's ranks. */
static enum zd_status put_node(struct nccl *nccl, int i, cudaStream_t stream)
{
    const struct nccl_functions *f = nccl->functions;
    const struct comm_op *op = nccl->pending[i];
    ncclComm_t node = nccl->comms[NCCL_NODE];
    size_t bytes = op->count * dtype_bytes(op->type);
    size_t per_node = bytes * (size_t)nccl->device.base.node_size;
    for (size_t d = 0; d < (size_t)nccl->nodes; d++) {
        char *part = levels_of(nccl, i) + d * bytes;
        if (op->kind == OP_ALL_GATHER)
            ZD_NCCL(f, node, AllGather, part, (char *)op->to + d * per_node,
                    op->count, type_of(op->type), node, stream);
        else
            ZD_NCCL(f, node, ReduceScatter,
                    (const char *)op->from + d * per_node, part, op->count,
                    type_of(op->type), ncclSum, node, stream);
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
                type_of(op->type), rail, stream);
    else
        ZD_NCCL(f, rail, ReduceScatter, levels_of(nccl, i), sum_of(nccl, i),
                op->count, type_of(op->type), ncclSum, rail, stream);
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

/* One group of the pending operations of these kinds, on one communicator; when
 * it returns they are queued. */
static enum zd_status queue_group(
        struct nccl *nccl, int which, put_fn *put, bool gathers, bool reduces)
{
    int count;
    pthread_mutex_lock(&nccl->calls);
    enum zd_status status =
            put_group(nccl, which, put, gathers, reduces, &count);
    pthread_mutex_unlock(&nccl->calls);
    if (status != ZD_OK || count == 0)
        return status;
    /* one that does not block has queued them when it says so */
    return nccl_settle(
            nccl, nccl->comms[which], nccl->device.base.options.timeout);
}

static enum zd_status queue_pending(struct nccl *nccl)
{
    if (!in_levels(nccl))
        return queue_group(nccl, NCCL_WORLD, put_flat, true, true);
    ZD_TRY(queue_group(nccl, NCCL_RAIL, put_rail, true, false));
    ZD_TRY(queue_group(nccl, NCCL_NODE, put_node, true, true));
    return queue_group(nccl, NCCL_RAIL, put_rail, false, true);
}

/* NCCL has no sum that is added to what is there. */
static enum zd_status add_sums(struct nccl *nccl)
{
    for (int i = 0; i < nccl->pending_count; i++) {
        const struct comm_op *op = nccl->pending[i];
        if (op->accumulate)
            ZD_TRY(comm_add_cuda(
                    nccl->stream, op->to, sum_of(nccl, i), op->count));
    }
    return ZD_OK;
}

static enum zd_status queue_all(struct nccl *nccl)
{
    const struct comm_op *last = nccl->pending[nccl->pending_count - 1];
    ZD_TRY(stream_wait(nccl->stream, nccl->ready[last->slot]));
    ZD_TRY(queue_pending(nccl));
    ZD_TRY(add_sums(nccl));
    for (int i = 0; i < nccl->pending_count; i++) {
        ZD_TRY(stream_record(nccl->stream, done_of(nccl, nccl->pending[i])));
        nccl_note_queued(nccl, nccl->pending[i]);
    }
    return ZD_OK;
}

static enum zd_status flush(struct nccl *nccl)
{
    if (nccl->pending_count == 0)
        return ZD_OK;
    ZD_TRY(check_alive(nccl));
    enum zd_status status = queue_all(nccl);
    nccl->pending_count = 0;
    nccl->scratch_used = 0; /* what is queued later comes later */
    if (status == ZD_OK)
        return ZD_OK;
    nccl_fail(nccl);
    zd_error_clear(); /* has been told */
    return check_alive(nccl);
}

/* --- the back end --------------------------------------------------------- */

static enum zd_status nccl_begin(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    size_t need = scratch_need(nccl, op);
    comm_device_count(comm, op);
    op->rounds = op->count > 0;
    if (op->rounds == 0)
        return ZD_OK;
    if (need > nccl->scratch_bytes)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "a collective needs %zu bytes of comm.device, which has %zu",
                need, nccl->scratch_bytes);
    ZD_TRY(check_alive(nccl));
    if (need > nccl->scratch_bytes - nccl->scratch_used)
        ZD_TRY(flush(nccl));
    ZD_TRY(stream_record(NULL, nccl->ready[op->slot]));
    nccl_note_begun(nccl, op);
    nccl->pending[nccl->pending_count] = op;
    nccl->pending_scratch[nccl->pending_count++] = nccl->scratch_used;
    nccl->scratch_used += need;
    return ZD_OK;
}

static enum zd_status nccl_wait(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    if (op->rounds == 0)
        return ZD_OK;
    ZD_TRY(flush(nccl));
    ZD_TRY(check_alive(nccl));
    return stream_wait(NULL, done_of(nccl, op));
}

static enum zd_status nccl_progress(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    ZD_TRY(flush(nccl));
    return check_alive(nccl);
}

static void nccl_abort(struct comm *comm, int exit_code)
{
    struct nccl *nccl = nccl_of(comm);
    nccl_abort_all(nccl);
    comm_device_abort(comm, exit_code);
}

/* --- memory --------------------------------------------------------------- */

static void deregister(struct nccl *nccl)
{
    for (int c = 0; c < NCCL_COMMS; c++) {
        if (nccl->registered[c] && !atomic_load(&nccl->has_failed))
            nccl->functions->CommDeregister(
                    nccl->comms[c], nccl->registered[c]);
        nccl->registered[c] = NULL;
    }
}

/* All ranks or none. Not having it costs a copy within NCCL, so it is told and
 * not an error. */
static void register_memory(struct nccl *nccl, void *base, size_t bytes)
{
    struct comm *comm = &nccl->device.base;
    int64_t is_registered = bytes > 0;
    ncclResult_t result = ncclSuccess;
    for (int c = 0; c < NCCL_COMMS && is_registered; c++) {
        if (!nccl->comms[c])
            continue;
        result = nccl->functions->CommRegister(
                nccl->comms[c], base, bytes, &nccl->registered[c]);
        is_registered = result == ncclSuccess && nccl->registered[c];
    }
    if (comm_all_reduce_i64(
                nccl->device.control, &is_registered, 1, COMM_MIN) != ZD_OK)
        return; /* the next collective says so */
    if (is_registered)
        return;
    deregister(nccl);
    if (comm->rank == 0 && bytes > 0)
        zd_log_info(
                "nccl: the device's memory is not registered (%s); messages "
                "pass through buffers",
                nccl->functions->GetErrorString(result));
}

void nccl_set_memory(struct comm *comm, const struct arena *arena)
{
    struct nccl *nccl = nccl_of(comm);
    deregister(nccl);
    nccl->scratch = NULL;
    nccl->scratch_bytes = 0;
    if (!arena)
        return;
    const struct arena_span *span = arena_plan_find(arena->plan, "comm.device");
    if (span) {
        nccl->scratch = arena_span(arena, "comm.device");
        nccl->scratch_bytes = span->bytes;
    }
    register_memory(
            nccl, arena->base[ARENA_DEVICE], arena->taken_bytes[ARENA_DEVICE]);
}

const struct comm_functions nccl_backend = {
        .begin = nccl_begin,
        .wait = nccl_wait,
        .progress = nccl_progress,
        .barrier = comm_device_barrier,
        .broadcast = comm_device_broadcast,
        .gather = comm_device_gather,
        .set_memory = nccl_set_memory,
        .transport = COMM_TRANSPORT_NCCL,
        .name = "nccl",
        .abort = nccl_abort,
        .destroy = nccl_destroy,
};
