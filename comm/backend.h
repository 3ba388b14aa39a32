/* backend.h - what a back end is to comm.c; for this folder only.
 *
 * comm.c owns what all back ends share: the pool of operations, a world of one,
 * reductions of scalars, the settling of failures. A back end moves bytes. */
#pragma once

#include "comm/comm.h"

/* Who pays for an exchange of small messages. */
enum comm_traffic { TRAFFIC_CONTROL, TRAFFIC_STEP };

/* One message from every rank to every rank. This rank sends `bytes` at
 * from + r * from_stride to rank r (stride 0: the same to all), and finds those
 * of rank r at to + r * to_stride. What it sends to itself may lie where it
 * would be received; nothing else may overlap. */
struct exchange {
    const void *from;
    size_t from_stride;
    void *to;
    size_t to_stride;
    size_t bytes;
    enum comm_traffic traffic;
};

struct comm_row { /* of ranks of the first comm */
    const char *name;
    int first, stride, count;
};

struct comm_functions {
    /* The group of a row, whose messages go through `control`, if there is one.
     * Every rank calls it. */
    enum zd_status (*group)(
            struct comm *parent, struct comm *control,
            const struct comm_row *row, struct comm **group_out);
    enum zd_status (*begin)(struct comm *comm, struct comm_op *op);
    enum zd_status (*wait)(struct comm *comm, struct comm_op *op);
    enum zd_status (*progress)(struct comm *comm); /* NULL: by itself */
    /* NULL where there is a control: */
    enum zd_status (*broadcast)(
            struct comm *comm, void *data, size_t bytes, int root);
    enum zd_status (*exchange)(
            struct comm *comm, const struct exchange *exchange);
    /* Whether this operation is done, so that a wait for it would not wait for
     * a peer. NULL: unknown. */
    enum zd_status (*test)(
            struct comm *comm, const struct comm_op *op, bool *done_out);
    void (*give_up)(struct comm *comm); /* NULL: there is nothing to end */
    /* Seconds in addition to the seat's; NULL: none. */
    double (*waited)(const struct comm *comm);
    /* Spans of a taken plan; NULL: the staging of the host's transport only. */
    void (*set_memory)(struct comm *comm, const struct arena *arena);
    enum comm_transport transport;
    void (*destroy)(struct comm *comm);
};

/* The first member of every back end's own struct. */
struct comm {
    const struct comm_functions *functions;
    struct comm *control; /* collectives work on memory of the thread's device,
                             all else goes through this, borrowed; else NULL */
    struct comm *root;    /* that has the numbers, and heads the list; itself if
                             it is no group */
    struct comm *next;    /* of the rank's groups; NULL: the last one */
    struct comm *rounds;  /* of the root: whose rounds go through these comms,
                             and move on while one of these waits; or NULL */
    struct comm_row row;
    int rank, size;
    int local_rank, local_size;
    struct mesh mesh; /* its nodes: whose sums are rounded before they are
                         added */
    int node_ranks; /* ranks of a node, were sums taken in two levels; 0: nodes
                       differ */

    char host[COMM_HOST_MAX];
    struct topology *topology; /* a device's comm has it borrowed */
    struct comm_options options;
    struct comm_counters counters;
    struct watch *watch; /* a device's comm and a group have both borrowed */
    struct seat *seat;   /* NULL: not joined yet */
    void *staging;
    void *reduce_scratch; /* comm_scratch_values(size) 8-byte values; likewise
                             borrowed */
    struct comm_op ops[COMM_OPS_MAX];
    uint64_t begun;           /* operations */
    struct timeline timeline; /* of operations: their order + 1 */
    /* of the root, in all groups: */
    uint64_t next_sequence, messages;
};

/* A message, which may wait: for the watch. Returns the comm whose transport it
 * takes. All ranks number it, also those that are alone in their group. */
struct comm *comm_message_begin(struct comm *comm, enum seat_kind kind);
void comm_message_end(struct comm *by);
/* comm_gather_all as a part of the message before it. */
enum zd_status comm_gather_again(
        struct comm *comm, const void *mine, size_t bytes, void *all);

/* A part of an operation of a device's comm: it has no number, counts nothing,
 * and is not noted for the watch. */
enum zd_status comm_part_begin(
        struct comm *comm, const struct comm_op *part, struct comm_op **op_out);
enum zd_status comm_part_wait(struct comm *comm, struct comm_op *op);

/* Scalars of one all_reduce travel this many at a time. An array, which is
 * longer than COMM_REDUCE_SCALARS, is cut into a part for each rank; its parts
 * travel in as large pieces as the scratch has room for, and back in pieces of
 * COMM_REDUCE_ARRAY. */
enum {
    COMM_REDUCE_PIECE = 128,
    COMM_REDUCE_SCALARS = 512,
    COMM_REDUCE_ARRAY = 128 << 10
};
size_t comm_scratch_values(int size);

/* Fill in what all back ends share (the rest is clear memory). */
void comm_base_init(
        struct comm *comm, const struct comm_functions *functions, int rank,
        int size, const struct comm_options *options);
void comm_base_fini(struct comm *comm);
/* What a device's comm shares with `control`, and a group with its parent. */
void comm_device_init(
        struct comm *comm, struct comm *control,
        const struct comm_functions *functions);
void comm_group_init(
        struct comm *group, struct comm *parent, struct comm *control,
        const struct comm_row *row);
/* The place that a rank of the first comm has in a row, in which it is. */
int comm_row_place(const struct comm_row *row, int rank);
/* "comm.staging"; of a group "comm.NAME.staging". */
enum { COMM_SPAN_MAX = 64 };
const char *comm_span_name(
        const char *group, const char *what, char out[COMM_SPAN_MAX]);
/* The parts of a process's watch. */
struct watch_facts comm_watch_facts(const struct comm_options *options);
/* The host as others are told of it, with the nodes of tests. */
void comm_watch_host(const struct comm *comm, char host[COMM_HOST_MAX]);

/* Staging of one rank: ring slots of `size - 1` chunks each. */
enum { STAGING_SLOTS = 4 };
size_t staging_chunk_bytes(int size);
size_t comm_staging_bytes(int size);

/* Pinned memory of staged collectives: slots of a piece from every rank and one
 * of this rank's own. */
enum { STAGED_SLOTS = 4 };
size_t staged_pinned_bytes(int size, size_t shard_bytes);

/* How sums are taken: comm->mesh from the options and from where the ranks are.
 * node_ranks: of every node, whose ranks follow each other; 0: they differ.
 * ZD_ERR_CONFIG when two levels are wanted and do not fit. */
enum zd_status comm_levels_settle(struct comm *comm, int node_ranks);

/* to[i] = [to[i] +] parts[0][i] + parts[1][i] + .., in that order, in fp32,
 * rounded once. With node_size < part_count: each node_size parts are added and
 * rounded to `type`, and the sums are added in order. `to` may be one of the
 * parts. parts: (part_count). */
void sum_parts(
        void *to, enum dtype type, bool accumulate, const void *const *parts,
        int part_count, int node_size, size_t count);
