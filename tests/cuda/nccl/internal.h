/* internal.h - what the files of the stand-in for NCCL share.
 *
 * A communicator is a file in memory that all its ranks map: who has come how
 * far, and a buffer of each rank. An operation is queued on its stream; there
 * it compares its description with the other ranks', and moves data in rounds
 * through the buffers. Ranks are processes or threads. */
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

enum { RANKS_MAX = 64, MESSAGE_BYTES = 512 };
static const size_t BUFFER_BYTES = 2 << 20, HALF_BYTES = BUFFER_BYTES / 2;

enum op_kind { ALL_GATHER, REDUCE_SCATTER, POINTS };

struct transfer { /* a send or a receive of a group */
    bool is_send;
    int peer;
    void *data;
    size_t bytes;
};

struct operation {
    enum op_kind kind;
    const void *from; /* the host's addresses */
    void *to;
    size_t count;
    ncclDataType_t type;
    std::vector<struct transfer> transfers;
    struct ncclComm *comm;
    uint64_t number; /* of the communicator's operations, from 1 */
    cudaStream_t stream;
    bool is_hung, is_stuck; /* before it begins; after it has done its part */
};

struct description { /* of the operation that a rank has entered */
    uint64_t number;
    int32_t kind, type;
    uint64_t count;
    uint64_t most; /* bytes of its largest send; may differ, as the next may */
    uint64_t sends[RANKS_MAX]; /* bytes for each rank */
};

struct place {
    std::atomic<uint64_t> phase;
    struct description descriptions[2]; /* by half */
    uint64_t words[4];                  /* of the joining and of splits */
};

struct board {
    std::atomic<uint32_t> tick; /* changes with every phase of any rank */
    struct place places[RANKS_MAX];
};

struct ncclComm {
    struct board *board;
    unsigned char *buffers; /* (size, BUFFER_BYTES) */
    int rank, size, world_rank;
    uint64_t phase, operations;
    std::atomic<bool> is_aborted, is_ready;
    std::mutex lock; /* of all below */
    ncclResult_t error;
    int polls_left; /* until what is pending gets queued */
    bool is_pending;
    std::vector<struct operation *> pending;
    char message[MESSAGE_BYTES];
    std::atomic<int> under_way;
};

/* --- board.cpp: meeting others -------------------------------------------- */

/* Maps the file of a group of `size`; false when it cannot be. */
bool board_map(struct ncclComm *comm, int pid, int fd);
int board_new_file(void);
/* Until every rank has come as far as this one; false: aborted meanwhile. */
bool board_meet(struct ncclComm *comm);

/* --- move.cpp: what an operation does on its stream ------------------------
 */

size_t type_bytes(ncclDataType_t type); /* 0: no such type */
void operation_run(void *operation);

/* Sets the communicator's asynchronous error and what is said about it. */
void comm_fail(
        struct ncclComm *comm, ncclResult_t error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* --- queue.cpp: from the call to the stream ------------------------------- */

/* Queues what was called while the communicator was in progress. */
ncclResult_t queue_all(
        struct ncclComm *comm, const std::vector<struct operation *> &all);

/* What ncclGetLastError says to this thread; says it: ncclInvalidArgument. */
extern thread_local char thread_message[MESSAGE_BYTES];
ncclResult_t refuse(const char *what);

/* --- failures: NCCL_STANDIN_FAIL, a list with commas ------------------------
 *     async:N[@R]   rank R's N-th operation fails after it was queued
 *     hang:N[@R]    it never ends
 *     stick:N[@R]   it ends for the others, but the rank's stream stands still
 *     init[@R]      a communicator is never ready
 *     abort[@R]     ncclCommAbort never returns
 *     unequal       ranks in different operations hang; otherwise they fail */
bool failure_wanted(const char *name, uint64_t number, int rank);
