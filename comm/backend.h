/* backend.h - what a back end provides to comm.c; for this folder only.
 *
 * comm.c owns what all back ends share: the pool of operations, a world of one,
 * scalar reductions, agreement on failures. A back end moves bytes. */
#pragma once

#include "comm/comm.h"

/* How an exchange of small messages is counted. */
enum comm_traffic { TRAFFIC_CONTROL, TRAFFIC_STEP };

/* One message from every rank to every rank. This rank sends `bytes` at from +
 * r * from_stride to rank r (stride 0: the same to all), and finds those of
 * rank r at to + r * to_stride. Its message to itself may already be in place;
 * nothing else may overlap. */
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
    /* Makes the group of a row; with a `control`, its messages go through that.
     * Every rank calls it. */
    enum zd_status (*group)(
            struct comm *parent, struct comm *control,
            const struct comm_row *row, struct comm **group_out);
    enum zd_status (*begin)(struct comm *comm, struct comm_op *op);
    enum zd_status (*wait)(struct comm *comm, struct comm_op *op);
    enum zd_status (*progress)(struct comm *comm); /* NULL: by itself */
    /* NULL when there is a control: */
    enum zd_status (*broadcast)(
            struct comm *comm, void *data, size_t bytes, int root);
    enum zd_status (*exchange)(
            struct comm *comm, const struct exchange *exchange);
    /* Whether this operation is done, so that a wait for it would not wait for
     * a peer. NULL: unknown. */
    enum zd_status (*test)(
            struct comm *comm, const struct comm_op *op, bool *done_out);
    void (*give_up)(struct comm *comm); /* NULL: nothing to end */
    /* Seconds waited in addition to those in the seat; NULL: none. */
    double (*waited)(const struct comm *comm);
    /* Uses the arena's spans; without an arena only the host transport's
     * staging stays. Optional. */
    void (*set_memory)(struct comm *comm, const struct arena *arena);
    enum comm_transport transport;
    void (*destroy)(struct comm *comm);
};

/* The first member of every back end's own struct. */
struct comm {
    const struct comm_functions *functions;
    struct comm *control; /* a device's comm: the comm for all but collectives
                             on device memory, borrowed; else NULL */
    struct comm *root;    /* keeps the numbering and heads the list of groups;
                             itself if it is not a group */
    struct comm *next;    /* list of the rank's groups */
    struct comm *rounds;  /* of the root: the comm whose rounds use these comms'
                             transport and advance while one of these waits; or
                             NULL */
    struct comm_row row;
    int rank, size;
    int local_rank, local_size;
    /* its nodes: their sums are rounded before they are added */
    struct mesh mesh;
    int node_ranks; /* ranks per node, if sums were in two levels; 0: nodes
                       differ */

    char host[COMM_HOST_MAX];
    struct topology *topology; /* borrowed in a device's comm */
    struct comm_options options;
    struct comm_counters counters;
    /* borrowed, as is seat, in a device's comm and a group */
    struct watch *watch;
    struct seat *seat; /* NULL: not joined yet */
    void *staging;
    void *reduce_scratch; /* comm_scratch_values(size) 8-byte values; likewise
                             borrowed */
    struct comm_op ops[COMM_OPS_MAX];
    uint64_t begun;           /* operations */
    struct timeline timeline; /* of operations: their order + 1 */
    /* of the root, in all groups: */
    uint64_t next_sequence, messages;
};

/* Begins a message and notes it for the watch. Returns the comm whose transport
 * it uses. All ranks number it, also those that are alone in their group. */
struct comm *comm_message_begin(struct comm *comm, enum seat_kind kind);
void comm_message_end(struct comm *by);
/* comm_gather_all as a part of the message before it. */
enum zd_status comm_gather_again(
        struct comm *comm, const void *mine, size_t bytes, void *all);

/* A part of an operation of a device's comm: not numbered, not counted, and not
 * noted for the watch. */
enum zd_status comm_part_begin(
        struct comm *comm, const struct comm_op *part, struct comm_op **op_out);
enum zd_status comm_part_wait(struct comm *comm, struct comm_op *op);

/* Up to COMM_REDUCE_SCALARS values of one all_reduce are exchanged at once. A
 * longer array is divided into a part for each rank: the parts are sent in
 * pieces as large as the scratch allows, the sums in pieces of
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
/* The place of a rank of the first comm in a row that contains it. */
int comm_row_place(const struct comm_row *row, int rank);
/* "comm.staging"; of a group "comm.NAME.staging". */
enum { COMM_SPAN_MAX = 64 };
const char *comm_span_name(
        const char *group, const char *what, char out[COMM_SPAN_MAX]);
/* What the watch of a process needs to know. */
struct watch_facts comm_watch_facts(const struct comm_options *options);
/* The host name that other ranks are given; in tests it includes the node. */
void comm_watch_host(const struct comm *comm, char host[COMM_HOST_MAX]);

/* Staging of one rank: ring slots of `size - 1` chunks each. */
enum { STAGING_SLOTS = 4 };
size_t staging_chunk_bytes(int size);
size_t comm_staging_bytes(int size);

/* Pinned memory of staged collectives: slots of a piece from every rank and one
 * of this rank's own. */
enum { STAGED_SLOTS = 4 };
size_t staged_pinned_bytes(int size, size_t shard_bytes);

/* Sets comm->mesh (one level or two) from the options and the ranks' nodes.
 * node_ranks: ranks of every node, numbered consecutively; 0: nodes differ.
 * ZD_ERR_CONFIG when two levels are wanted and not possible. */
enum zd_status comm_levels_settle(struct comm *comm, int node_ranks);

/* to[i] = [to[i] +] parts[0][i] + parts[1][i] + .., in that order, in fp32,
 * rounded once. With node_size < part_count: each node_size parts are added and
 * rounded to `type`, and the sums are added in order. `to` may be one of the
 * parts. parts: (part_count). */
void sum_parts(
        void *to, enum dtype type, bool accumulate, const void *const *parts,
        int part_count, int node_size, size_t count);
