/* backend.h - what a back end is to comm.c; for this folder only.
 *
 * comm.c owns what all back ends share: the pool of operations, a world of one,
 * reductions of scalars, the settling of failures. A back end moves bytes. */
#ifndef ZD_COMM_BACKEND_H
#define ZD_COMM_BACKEND_H

#include "comm/comm.h"

enum { COMM_HOST_MAX = 256 };

enum comm_op_kind { OP_ALL_GATHER, OP_REDUCE_SCATTER };

struct comm_op {
    bool in_use;
    int slot; /* index in comm->ops: the same on all ranks, because all begin
                 and wait in the same order */
    uint64_t sequence; /* of this operation; the same on all ranks */
    enum comm_op_kind kind;
    const void *from; /* shard of an all_gather, full of a reduce_scatter */
    void *to;
    size_t count; /* elements of one shard */
    enum dtype type;
    bool accumulate;
    /* progress of a back end that works in rounds, by its direction */
    size_t rounds, begun[2], done[2];
};

/* Who pays for an exchange of small messages. */
enum comm_traffic { TRAFFIC_CONTROL, TRAFFIC_STEP };

struct comm_functions {
    enum zd_status (*begin)(struct comm *comm, struct comm_op *op);
    enum zd_status (*wait)(struct comm *comm, struct comm_op *op);
    enum zd_status (*progress)(struct comm *comm);
    enum zd_status (*barrier)(struct comm *comm);
    enum zd_status (*broadcast)(
            struct comm *comm, void *data, size_t bytes, int root);
    /* all: (size, bytes), in rank order. */
    enum zd_status (*gather)(
            struct comm *comm, const void *mine, size_t bytes, void *all,
            enum comm_traffic traffic);
    void (*abort)(struct comm *comm, int exit_code);
    void (*destroy)(struct comm *comm);
};

/* The first member of every back end's own struct. */
struct comm {
    const struct comm_functions *functions;
    int rank, size;
    int local_rank, local_size;
    char host[COMM_HOST_MAX];
    struct comm_options options;
    struct comm_counters counters;
    void *staging;
    void *reduce_scratch; /* (size, COMM_REDUCE_PIECE) 8-byte values */
    struct comm_op ops[COMM_OPS_MAX];
    uint64_t next_sequence;
};

/* Scalars of one all_reduce travel this many at a time. */
enum { COMM_REDUCE_PIECE = 128 };

/* Fill in what all back ends share (the rest is clear memory). */
enum zd_status comm_base_init(
        struct comm *comm, const struct comm_functions *functions, int rank,
        int size, const struct comm_options *options);
void comm_base_fini(struct comm *comm);

/* Staging of one rank: ring slots of `size - 1` chunks each. */
enum { STAGING_SLOTS = 4 };
size_t staging_chunk_bytes(int size);

/* to[i] = [to[i] +] parts[0][i] + parts[1][i] + .., in that order, in fp32,
 * rounded once. `to` may be one of the parts. parts: (part_count). */
void sum_parts(
        void *to, enum dtype type, bool accumulate, const void *const *parts,
        int part_count, size_t count);

#endif
