/* Operations: what is called is checked, collected until the group ends, and
 * queued on its stream. */
#include "tests/cuda/nccl/internal.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <cstdio>

/* What is collected between ncclGroupStart and its end, by thread. */
struct group {
    int depth;
    std::vector<struct operation *> operations;
};
static thread_local struct group group;
thread_local char thread_message[MESSAGE_BYTES];

ncclResult_t refuse(const char *what)
{
    snprintf(thread_message, sizeof thread_message, "%s", what);
    return ncclInvalidArgument;
}

static ncclResult_t queue(struct ncclComm *comm, struct operation *op)
{
    uint64_t number = ++comm->operations; /* op goes when it has run */
    op->number = number;
    op->is_hung = failure_wanted("hang", number, comm->world_rank);
    op->is_stuck = failure_wanted("stick", number, comm->world_rank);
    comm->under_way.fetch_add(1, std::memory_order_relaxed);
    cudaError_t error = zd_standin_enqueue(op->stream, operation_run, op);
    if (error != cudaSuccess)
        return ncclUnhandledCudaError;
    if (failure_wanted("async", number, comm->world_rank))
        comm_fail(
                comm, ncclRemoteError, "operation %llu: injected failure",
                (unsigned long long)number);
    return ncclSuccess;
}

ncclResult_t queue_all(
        struct ncclComm *comm, const std::vector<struct operation *> &all)
{
    for (struct operation *op : all) {
        ncclResult_t result = queue(comm, op);
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

static bool has_transfer(const struct operation *op, const struct transfer &t)
{
    for (const struct transfer &own : op->transfers)
        if (own.is_send == t.is_send && own.peer == t.peer)
            return true;
    return false;
}

/* The sends and receives of a communicator become operations that have at most
 * one to and from each peer; every rank must come to as many. */
static void merge_points(std::vector<struct operation *> *operations)
{
    std::vector<struct operation *> merged;
    for (struct operation *op : *operations) {
        struct operation *home = nullptr;
        for (size_t i = 0; i < merged.size() && op->kind == POINTS; i++)
            if (!home && merged[i]->kind == POINTS &&
                !has_transfer(merged[i], op->transfers[0]))
                home = merged[i];
        if (home) {
            home->transfers.push_back(op->transfers[0]);
            delete op;
        } else {
            merged.push_back(op);
        }
    }
    *operations = merged;
}

static void hand_over(
        struct ncclComm *comm, std::vector<struct operation *> operations)
{
    merge_points(&operations);
    std::lock_guard<std::mutex> hold(comm->lock);
    comm->pending.insert(
            comm->pending.end(), operations.begin(), operations.end());
    comm->is_pending = true;
    comm->polls_left = 1;
}

static ncclResult_t end_group(void)
{
    std::vector<struct operation *> all;
    all.swap(group.operations);
    ncclResult_t result = all.empty() ? ncclSuccess : ncclInProgress;
    while (!all.empty()) {
        struct ncclComm *comm = all[0]->comm;
        std::vector<struct operation *> own, rest;
        for (struct operation *op : all)
            (op->comm == comm ? own : rest).push_back(op);
        hand_over(comm, own);
        all.swap(rest);
    }
    return result;
}

static ncclResult_t add(struct operation *op)
{
    struct ncclComm *comm = op->comm;
    {
        std::lock_guard<std::mutex> hold(comm->lock);
        if (!comm->is_ready.load() || comm->is_pending) {
            delete op;
            snprintf(
                    thread_message, sizeof thread_message,
                    "the communicator is still in progress");
            return ncclInvalidUsage;
        }
    }
    if (comm->is_aborted.load()) {
        delete op;
        return ncclInvalidUsage;
    }
    group.operations.push_back(op);
    return group.depth > 0 ? ncclSuccess : end_group();
}

static struct operation *operation(
        enum op_kind kind, const void *from, size_t from_bytes, void *to,
        size_t to_bytes, ncclComm_t comm, cudaStream_t stream)
{
    if ((from_bytes && !zd_standin_is_reachable(from, from_bytes)) ||
        (to_bytes && !zd_standin_is_reachable(to, to_bytes))) {
        refuse("a buffer is not memory of the device");
        fprintf(stderr, "nccl stand-in: %s\n", thread_message);
        return nullptr;
    }
    struct operation *op = new struct operation();
    op->kind = kind;
    op->from = zd_standin_host(from);
    op->to = zd_standin_host(to);
    op->comm = comm;
    op->stream = stream;
    return op;
}

static ncclResult_t collective(
        enum op_kind kind, const void *from, void *to, size_t count,
        ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t comm,
        cudaStream_t stream)
{
    size_t bytes = count * type_bytes(type), all = bytes * (size_t)comm->size;
    bool gathers = kind == ALL_GATHER;
    if (type_bytes(type) == 0 || reduction != ncclSum)
        return refuse("no such type or reduction here");
    struct operation *op = operation(
            kind, from, gathers ? bytes : all, to, gathers ? all : bytes, comm,
            stream);
    if (!op)
        return ncclInvalidArgument;
    op->count = count;
    op->type = type;
    return add(op);
}

static ncclResult_t point(
        bool is_send, void *data, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * type_bytes(type);
    if (peer < 0 || peer >= comm->size)
        return refuse("no such peer");
    struct operation *op =
            operation(POINTS, data, bytes, data, 0, comm, stream);
    if (!op)
        return ncclInvalidArgument;
    op->transfers.push_back({is_send, peer, op->to, bytes});
    return add(op);
}

/* --- the library's own ---------------------------------------------------- */

extern "C" {

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return ncclInvalidUsage;
    return --group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllGather(
        const void *from, void *to, size_t count, ncclDataType_t type,
        ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALL_GATHER, from, to, count, type, ncclSum, comm, stream);
}

ncclResult_t ncclReduceScatter(
        const void *from, void *to, size_t count, ncclDataType_t type,
        ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream)
{
    return collective(
            REDUCE_SCATTER, from, to, count, type, reduction, comm, stream);
}

ncclResult_t ncclSend(
        const void *data, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    return point(true, (void *)data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(
        void *data, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    return point(false, data, count, type, peer, comm, stream);
}

} /* extern "C" */
