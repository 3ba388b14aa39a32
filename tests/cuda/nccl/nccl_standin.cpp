/* A stand-in for libnccl.so.2, for tests without a GPU: what this program uses
 * of NCCL, with its rules.
 *
 * - Ranks are added in rank order in fp32 and rounded once; with
 *   NCCL_STANDIN_SUMS=ring in other orders, and rounded at each hop.
 * - NCCL_STANDIN_VERSION is the version that it says it has.
 * - Communicators do not block. One is ready, and what is called on it is
 *   queued, only when ncclCommGetAsyncError says ncclSuccess, not earlier.
 * - Buffers are checked against the device's memory.
 * - Two ranks on one GPU are refused, as NCCL 2.28 does (NCCL_HOSTID makes
 * other hosts of them).
 * - ncclCommAbort ends what this rank has queued, and nothing elsewhere. It
 *   frees the communicator: a later call on it ends the process. */
#include "tests/cuda/nccl/internal.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <unistd.h>

struct unique { /* in ncclUniqueId */
    uint32_t magic;
    int32_t pid, fd;
};
static const uint32_t MAGIC = 0x7a6e6363;

/* In the library it is no memory any more. */
static void must_be_there(ncclComm_t comm, const char *call)
{
    if (!comm->is_aborted.load())
        return;
    fprintf(stderr, "nccl stand-in: %s behind ncclCommAbort\n", call);
    abort();
}

/* --- joining -------------------------------------------------------------- */

static uint64_t hash_text(const std::string &text)
{
    return std::hash<std::string>()(text) | 1;
}

static uint64_t host_hash(void)
{
    char name[256] = "";
    const char *id = getenv("NCCL_HOSTID");
    gethostname(name, sizeof name - 1);
    return hash_text(id && *id ? id : name);
}

/* Waits for the others and for who is on which GPU. */
static void join(struct ncclComm *comm, uint64_t bus)
{
    struct place *places = comm->board->places;
    while (failure_wanted("init", 0, comm->world_rank) &&
           !comm->is_aborted.load())
        usleep(1000);
    places[comm->rank].words[0] = host_hash();
    places[comm->rank].words[1] = bus;
    if (!board_meet(comm))
        return;
    for (int a = 0; a < comm->size; a++)
        for (int b = a + 1; b < comm->size; b++)
            if (places[a].words[0] == places[b].words[0] &&
                places[a].words[1] == places[b].words[1])
                comm_fail(
                        comm, ncclInvalidUsage,
                        "Duplicate GPU detected : rank %d and rank %d both on "
                        "CUDA device %llx",
                        a, b, (unsigned long long)places[a].words[1]);
    if (board_meet(comm))
        comm->is_ready.store(true);
}

static uint64_t own_bus(void)
{
    char bus[64] = "";
    int device = 0;
    cudaGetDevice(&device);
    cudaDeviceGetPCIBusId(bus, sizeof bus, device);
    return hash_text(bus);
}

static struct ncclComm *new_comm(int rank, int size, int world_rank)
{
    struct ncclComm *comm = new struct ncclComm();
    comm->rank = rank;
    comm->size = size;
    comm->world_rank = world_rank;
    return comm;
}

static bool is_sound(const ncclConfig_t *config)
{
    return config && config->magic == 0xcafebeef && config->blocking == 0;
}

static void split(
        struct ncclComm *parent, struct ncclComm *comm, int color, int key,
        uint64_t bus)
{
    struct place *places = parent->board->places;
    uint64_t *mine = places[parent->rank].words;
    mine[0] = (uint64_t)color;
    mine[1] = (uint64_t)key;
    int file = board_new_file();
    mine[2] = (uint64_t)getpid();
    mine[3] = (uint64_t)file;
    if (!board_meet(parent))
        return;
    int first = -1;
    for (int r = 0; r < parent->size; r++) {
        if (places[r].words[0] != (uint64_t)color)
            continue;
        if (first < 0)
            first = r;
        comm->size++;
        if (places[r].words[1] < (uint64_t)key ||
            (places[r].words[1] == (uint64_t)key && r < parent->rank))
            comm->rank++;
    }
    bool mapped = board_map(
            comm, (int)places[first].words[2], (int)places[first].words[3]);
    if (!board_meet(parent))
        return;
    close(file);
    if (mapped)
        join(comm, bus);
    else
        comm_fail(comm, ncclSystemError, "cannot map the group's file");
}

/* --- the library's own ---------------------------------------------------- */

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    const char *other = getenv("NCCL_STANDIN_VERSION");
    *version = other ? atoi(other) : 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct unique unique = {MAGIC, (int32_t)getpid(), board_new_file()};
    memset(id, 0, sizeof *id);
    memcpy(id, &unique, sizeof unique);
    return unique.fd < 0 ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
        ncclComm_t *out, int size, ncclUniqueId id, int rank,
        ncclConfig_t *config)
{
    struct unique unique;
    memcpy(&unique, &id, sizeof unique);
    if (unique.magic != MAGIC || size > RANKS_MAX || rank >= size)
        return refuse("no unique id, or too many ranks for the stand-in");
    if (!is_sound(config))
        return refuse("a configuration that blocks, or was not initialized");
    struct ncclComm *comm = new_comm(rank, size, rank);
    if (!board_map(comm, unique.pid, unique.fd))
        return ncclSystemError;
    *out = comm;
    uint64_t bus = own_bus();
    std::thread([=] { join(comm, bus); }).detach();
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(
        ncclComm_t parent, int color, int key, ncclComm_t *out,
        ncclConfig_t *config)
{
    if (!parent->is_ready.load() || !is_sound(config))
        return ncclInvalidUsage;
    struct ncclComm *comm = new_comm(0, 0, parent->world_rank);
    *out = comm;
    uint64_t bus = own_bus();
    std::thread([=] { split(parent, comm, color, key, bus); }).detach();
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    must_be_there(comm, "ncclCommGetAsyncError");
    std::lock_guard<std::mutex> hold(comm->lock);
    *out = ncclSuccess;
    if (comm->error != ncclSuccess) {
        *out = comm->error;
    } else if (!comm->is_ready.load()) {
        *out = ncclInProgress;
    } else if (comm->is_pending && comm->polls_left-- > 0) {
        *out = ncclInProgress;
    } else if (comm->is_pending) {
        std::vector<struct operation *> pending;
        pending.swap(comm->pending);
        comm->is_pending = false;
        comm->lock.unlock(); /* queueing may fail, and says so */
        *out = queue_all(comm, pending);
        comm->lock.lock();
    }
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    while (failure_wanted("abort", 0, comm->world_rank))
        usleep(100 * 1000);
    must_be_there(comm, "ncclCommAbort");
    comm->is_aborted.store(true);
    while (comm->under_way.load() > 0)
        usleep(100);
    return ncclSuccess; /* the memory stays: threads may still look at it */
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    must_be_there(comm, "ncclCommFinalize");
    std::lock_guard<std::mutex> hold(comm->lock);
    comm->is_pending = true;
    comm->polls_left = 1;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    must_be_there(comm, "ncclCommDestroy");
    while (comm->under_way.load() > 0)
        usleep(100);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const struct {
        ncclResult_t result;
        const char *text;
    } texts[] = {
            {ncclSuccess, "no error"},
            {ncclUnhandledCudaError, "unhandled cuda error"},
            {ncclSystemError, "unhandled system error"},
            {ncclInvalidArgument, "invalid argument"},
            {ncclInvalidUsage, "invalid usage"},
            {ncclRemoteError,
             "remote process exited or there was a network error"},
            {ncclInProgress, "NCCL operation in progress"},
    };
    for (const auto &one : texts)
        if (one.result == result)
            return one.text;
    return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm && comm->message[0] ? comm->message : thread_message;
}
} /* extern "C" */
