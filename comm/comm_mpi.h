/* comm_mpi.h - what the files of the MPI back end share. */
#pragma once

#include "comm/backend.h"

#include <mpi.h>

/* Turn an MPI error into ours. The communicators return errors. */
enum zd_status mpi_check(int code, const char *call);
#define ZD_MPI(function, ...)                                                  \
    ZD_TRY(mpi_check(function(__VA_ARGS__), #function))

/* Messages between two ranks keep their order within a tag, so one tag for each
 * kind of traffic is enough. */
enum {
    TAG_OPERATIONS = 1,
    TAG_STEP = TAG_OPERATIONS + COMM_OP_KINDS,
    TAG_CONTROL
};

/* Operations of one kind, cut into rounds of one message to and from every
 * peer:
 *
 *   op 0           op 1           op 2
 *   | 0 | 1 | 2 |  | 3 | 4 | 5 |  | 6 | 7 |       rounds, oldest first
 *       ^------------------^                      window of receives
 *           ^----------------------------^        window of sends
 *       done              begun
 *
 * Both windows move on in order. The window of receives is small: a
 * reduce_scatter receives into staging, one slot per round, and sums a round
 * when all of it has arrived; other operations receive in place. The window of
 * sends is large, so that the peers can go on while this rank computes. */
enum direction { SEND, RECEIVE };

struct mpi_window {
    uint64_t begun, done;       /* rounds, over all operations */
    uint64_t begin_op, done_op; /* their positions in the queue */
    int depth;                  /* rounds under way at most */
    MPI_Request *requests;      /* (depth, size - 1) */
};

struct mpi_stream {
    struct mpi *mpi; /* borrowed: the owner */
    enum comm_op_kind kind;
    int tag; /* TAG_OPERATIONS + kind */
    size_t chunk_bytes;
    struct comm_op *queue[COMM_OPS_MAX]; /* a ring; only those with rounds */
    uint64_t queued;
    struct mpi_window windows[2]; /* by direction */
    const void **parts;           /* (size) scratch for sums */
};

struct mpi {
    struct comm base;
    MPI_Comm world;
    bool finalises;
    long spin_ns; /* before a wait begins to sleep */
    struct mpi_stream streams[COMM_OP_KINDS];
    MPI_Request *requests; /* (2 * (size - 1)) of an exchange */
};

void stream_init(
        struct mpi_stream *stream, struct mpi *mpi, enum comm_op_kind kind);
/* Cancels what is under way. */
void stream_fini(struct mpi_stream *stream);
enum zd_status stream_begin(struct mpi_stream *stream, struct comm_op *op);
/* Begin and finish rounds without waiting; sets *moved_out if any did. */
enum zd_status stream_progress(struct mpi_stream *stream, bool *moved_out);
bool stream_op_is_done(const struct comm_op *op);

/* The i-th peer of this rank, i in 0 .. size - 2. */
int mpi_peer(const struct comm *comm, int i);

/* Called before MPI is initialized, by one rank of a host: removes shared
 * memory left by ranks that were killed together with their mpirun. Best
 * effort: leaves what it is not sure of. */
void leftovers_sweep(void);
