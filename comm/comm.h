/* comm.h - ranks and collectives behind one interface: threads of one process
 * (comm_local), MPI (comm_mpi), and for GPU memory NCCL or copies through the
 * host (comm_device_create).
 *
 * Every rank calls the same collectives in the same order with the same counts.
 * The sum of a reduce_scatter has one definition: it adds the ranks'
 * contributions in rank order (0, 1, .. N-1) in fp32 and rounds once to the
 * type sent, so stages, bucket sizes and back ends give the same bits. In two
 * levels (comm_options.hierarchical) the ranks of a node are added in rank
 * order and rounded to the type sent, then the nodes' sums in order, and
 * rounded. Only NCCL adds in another order, that of its rings and trees, unless
 * comm_options.reduce is ORDERED.
 *
 * Wire bytes are counted as operations begin: what this rank sends to others,
 * payload only. For N ranks and a full array of E elements (N * count) of size
 * s, reduce_scatter, all_gather and all_to_all send (N-1)/N * E * s each. An
 * all_reduce of scalars sends them to every other rank; one of an array works
 * in parts (comm_all_reduce_bytes). Control messages (set-up, saving) are not
 * part of a step and not counted.
 *
 * Threads: one thread per rank calls into a comm (MPI_THREAD_FUNNELED). Waiting
 * yields the core: idle ranks do not slow the busy ones when there are more
 * ranks than cores. Errors: a failed transport is ZD_ERR_PEER. The comm is
 * unusable after it: the caller ends its process (comm_give_up), which its
 * launcher or the others' watch notices. */
#pragma once

#include "base/device/lease.h"
#include "base/memory/arena.h"
#include "base/number/dtype.h"
#include "base/progress.h"
#include "base/status.h"
#include "comm/mesh.h"
#include "comm/watch/watch.h"

#include <stdint.h>

enum comm_backend { COMM_AUTO, COMM_MPI, COMM_LOCAL, COMM_NCCL };

/* Collectives in two levels: within a node, and between the ranks that have the
 * same place in their nodes (a rail). AUTO: with NCCL on several nodes that
 * have the same number of ranks. */
enum comm_hierarchy { COMM_LEVELS_AUTO, COMM_LEVELS_ONE, COMM_LEVELS_TWO };

/* Sums over NCCL. FAST: NCCL's own, in its order. ORDERED: the bits of the
 * definition, by exchanging the parts and adding them with our own kernels.
 * Other back ends are always ordered. */
enum comm_sums { COMM_REDUCE_FAST, COMM_REDUCE_ORDERED };

/* The type in which gradients of one micro-batch are sent and added. Back ends
 * add in fp32 and round once, whatever type is sent; only NCCL's own sums
 * (FAST) are in that type, rounded for each rank. AUTO: fp32 for those above 64
 * ranks. */
enum comm_reduce_dtype {
    COMM_REDUCE_DTYPE_AUTO,
    COMM_REDUCE_DTYPE_FP32,
    COMM_REDUCE_DTYPE_COMPUTE
};

enum { COMM_CTAS_AUTO = -1, COMM_TIMEOUT_AUTO = -1 };

struct comm_options { /* [comm] */
    enum comm_backend backend;
    enum comm_hierarchy hierarchical;
    int ranks_per_node; /* for tests: pretend nodes of so many ranks; 0: the
                           real nodes, or ZEROD_TEST_RANKS_PER_NODE */
    enum comm_sums reduce;
    enum comm_reduce_dtype reduce_dtype;
    double timeout;       /* seconds that a wait may take; 0: no limit;
                             COMM_TIMEOUT_AUTO: learned from the steps */
    double files_timeout; /* seconds that file I/O (comm_files_begin) or the
                             wait for data may make no progress; 0: no limit.
                             The key is checkpoint.timeout */
    int max_ctas;         /* multiprocessors that NCCL may take; 0: its choice;
                             COMM_CTAS_AUTO */
};

enum comm_op_kind {
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_OP_KINDS
};

/* Counters of each kind of operation, and of all_reduce. */
enum { COMM_ALL_REDUCE = COMM_OP_KINDS, COMM_COUNTERS };
struct comm_counters {
    uint64_t bytes[COMM_COUNTERS]; /* sent by this rank */
};
const char *comm_counter_name(int i); /* as users see it */

struct comm;     /* a rank's membership in a group */
struct topology; /* topology.h: who is where */

enum { COMM_HOST_MAX = WATCH_HOST_MAX };

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
int comm_local_rank(const struct comm *comm); /* among ranks of this host */
int comm_local_size(const struct comm *comm);
const char *comm_host(const struct comm *comm);
/* Borrowed; NULL before topology_make. */
const struct topology *comm_topology(const struct comm *comm);
struct comm_counters comm_counters(const struct comm *comm);
/* The mesh of the ranks: its nodes are the first level of sums. */
struct mesh comm_mesh(const struct comm *comm);

/* --- groups --------------------------------------------------------------- */

/* The ranks first, first + stride, .. (`count` of them) of `comm` as a comm in
 * which this rank has the place (rank - first) / stride. Collective over
 * `comm`: every rank calls it at the same time with the row it is in. A row may
 * be the whole comm, or one rank, which sends nothing.
 *
 * name: static, "shard", "replicate", "cp", "tp"; for its staging spans and for
 * the watch. The group has its own counters, which `comm` does not include, and
 * no topology. It borrows the transport, watch and seat of `comm` and is
 * destroyed before it.
 *
 * A rank calls the collectives of all its groups and of `comm` from one thread.
 * All of them share one numbering: the ranks begin collectives of the same
 * groups, by name, in the same order, and wait for them in the same order;
 * while a rank waits for one, the others go on. ZD_ERR_PEER or MEMORY, the same
 * on all ranks. */
enum zd_status comm_group_create(
        struct comm *comm, const char *name, int first, int stride, int count,
        struct comm **group_out);
/* How many of the row's ranks each host has, consecutive in the row, when hosts
 * have `per_node` neighboring ranks; 0: hosts differ, or per_node is 0. A group
 * adds in two levels if comm_node_size_expected says so for a world of `count`
 * ranks in such nodes. */
int comm_group_per_node(int first, int stride, int count, int per_node);

/* The transport of collectives on device memory. HOST: device memory is host
 * memory; STAGED: through pinned memory and the host's transport; NCCL. */
enum comm_transport {
    COMM_TRANSPORT_HOST,
    COMM_TRANSPORT_STAGED,
    COMM_TRANSPORT_NCCL
};
enum comm_transport comm_transport(const struct comm *comm);
/* What comm_device_create will choose on ranks that each see `gpus` GPUs, on
 * hosts of `local_size` ranks; for plans made on another machine. */
enum comm_transport comm_transport_expected(
        const struct comm_options *options, bool on_gpu, int local_size,
        int gpus);

/* Resolve options->max_ctas for a GPU with this many multiprocessors; 0: NCCL
 * chooses. */
int comm_max_ctas(const struct comm_options *options, int multiprocessors);

/* Whether gradients of one micro-batch are sent in fp32. */
bool comm_reduces_fp32(
        const struct comm_options *options, enum comm_transport transport,
        int world);

/* The node size that comm_mesh will have, for nodes of `per_node` ranks (0: one
 * node). ZD_ERR_CONFIG as in comm_device_create. */
enum zd_status comm_node_size_expected(
        const struct comm_options *options, enum comm_transport transport,
        int world, int per_node, int *node_size_out);

/* Bytes of staging a rank needs (a pure function, so the plan can price it):
 * "comm.staging" for the host's transport, "comm.pinned" for copies, and
 * "comm.device" for what NCCL needs beside the caller's memory; of a group
 * "comm.NAME.staging" and so on. Nothing for one rank. Pass the arena to
 * comm_set_memory of each comm and group before the first collective; pass NULL
 * before device memory is released, and the arena again when it is back. */
struct comm_needs {
    const char *name; /* of a group; NULL: of the whole comm */
    enum comm_transport transport;
    int world;               /* ranks of the group */
    int node_size;           /* of comm_mesh; 0: `world`, one level */
    size_t shard_bytes;      /* largest shard of any operation */
    size_t reduce_bytes;     /* of a reduce_scatter */
    size_t accumulate_bytes; /* of one that accumulates; 0: none */
    size_t exchange_bytes;   /* largest part of an all_to_all; 0: none */
    bool is_ordered;         /* comm_options.reduce is ORDERED */
};
enum zd_status comm_plan_needs(
        struct arena_plan *plan, const struct comm_needs *needs);
void comm_set_memory(struct comm *comm, const struct arena *arena);

/* A collective on arrays.
 *
 * ALL_GATHER: `to` is the shards of all ranks, in rank order. `from`, this
 * rank's, may be its part of `to`.
 *
 * REDUCE_SCATTER: `to`, a shard, is the sum over ranks of their part of `from`;
 * with `accumulate` (fp32 only) added to what it holds. It may be this rank's
 * part of `from`, which is left alone elsewhere and may be reused after the
 * wait.
 *
 * ALL_TO_ALL: part r of `to` is what rank r has for this rank in its `from`,
 * whose part d is for rank d. They do not overlap. */
struct comm_op {
    enum comm_op_kind kind;
    const void *from;
    void *to;
    size_t count; /* elements of one shard, or part */
    enum dtype type;
    bool accumulate;

    /* private */
    bool in_use;
    int slot; /* index in comm->ops: the same on all its ranks, because all
                 begin and wait in the same order */
    uint64_t order;    /* number within its comm */
    uint64_t sequence; /* number over all groups; the same on all ranks. Parts
                          of an operation have none */
    /* for back ends that work in rounds; begun and done by direction */
    size_t rounds, begun[2], done[2];
};
/* *op_out belongs to the comm, and is valid until the wait. On a GPU an
 * operation begins after the work already queued on the compute stream, and
 * waiting delays later work of that stream, not the host. Operations may be
 * waited for in any order that is the same on all ranks; those that accumulate
 * into one shard, in the order in which they began. At most COMM_OPS_MAX may be
 * under way. */
enum { COMM_OPS_MAX = 16 };
enum zd_status comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out);
enum zd_status comm_wait(struct comm *comm, struct comm_op *op);

/* The same with a token, which may be waited for more than once. If
 * COMM_OPS_MAX are under way, first waits for the oldest. */
enum zd_status comm_queue(
        struct comm *comm, const struct comm_op *request,
        struct token *begun_out);
bool comm_is_full(const struct comm *comm);
/* Waits for all that are under way. `comm` may be NULL. */
enum zd_status comm_finish(struct comm *comm);
/* Advance transports that need the caller's thread, for all groups of the rank
 * (otherwise a no-op). */
enum zd_status comm_progress(struct comm *comm);

/* In place; sums are in rank order and wrap on overflow (digests use that). */
enum comm_reduction { COMM_SUM, COMM_MAX, COMM_MIN };
enum zd_status comm_all_reduce_i64(
        struct comm *comm, int64_t *values, size_t count,
        enum comm_reduction reduction);
/* Bytes that a rank sends in one all_reduce. */
uint64_t comm_all_reduce_bytes(int world, size_t count);

/* Control messages: not counted, any size. */
enum zd_status comm_barrier(struct comm *comm);
enum zd_status comm_broadcast(
        struct comm *comm, void *data, size_t bytes, int root);
/* all: (size, bytes). */
enum zd_status comm_gather_all(
        struct comm *comm, const void *mine, size_t bytes, void *all);
/* The same into new memory, which the caller frees. If one rank cannot
 * allocate, ZD_ERR_MEMORY on all. */
enum zd_status comm_gather_new(
        struct comm *comm, const void *mine, size_t bytes, void **all_out);

/* Settle a failure that can be survived or must be told once: every rank calls
 * with its own status (and its thread's error record). ZD_OK when all are. Else
 * all ranks return the same status, that of the lowest rank that knows a cause
 * (one that only lost a peer does not), so that all end with the same exit
 * code; that rank keeps its record, whose `where` now says which ranks had the
 * same one
 * ("ranks 0-7"), and the others have none. Settling again changes nothing. */
enum zd_status comm_agree(struct comm *comm, enum zd_status mine);
/* Only rank 0 makes the call; all ranks return its status. */
#define COMM_FIRST(comm, call)                                                 \
    comm_agree((comm), comm_rank(comm) == 0 ? (call) : ZD_OK)

/* This rank has failed and leaves on its own, perhaps during device collectives
 * that its peers wait for. Ends operations under way in bounded time, and
 * reports nothing more. Afterwards only comm_destroy may be called. */
void comm_give_up(struct comm *comm);
void comm_destroy(struct comm *comm);

/* --- the watch ------------------------------------------------------------ */

/* A thread beside the ranks ends the job when a wait of any rank is a hang
 * (watch/watch.h): one rank of each host says which rank hangs, and all
 * processes end with 75; ranks that are threads have their waits fail. The
 * device's comm and that of its ranks have one watch. */

/* From here on this rank does work that may take long; ranks that wait for it
 * do not count as hung while its process runs. WORK_EVALUATE and WORK_SAMPLE
 * must report progress with comm_goes_on. WORK_NONE: a step, with the usual
 * limit. Returns the previous work. `comm` may be NULL. */
enum comm_work comm_work(struct comm *comm, enum comm_work work);
void comm_goes_on(struct comm *comm);
/* A step took `seconds`, from which the limit is learned; the next one is
 * `step`. */
void comm_step(struct comm *comm, int64_t step, double seconds);
/* Predicted seconds of a step: before two steps are done, no wait times out
 * earlier than ten predicted steps. */
void comm_predict(struct comm *comm, double seconds);
/* Seconds that this rank has waited for others, on the host or, over NCCL, on
 * its GPU. */
double comm_waited(const struct comm *comm);
/* Sets who is told of a hang, on one rank only: rank 0 if its process runs. */
void comm_listen(struct comm *comm, const struct watch_listener *listener);

/* From here to comm_files_end (watch/watch.h) a thread of this rank (any) reads
 * or writes files that the run depends on; `what`: "save" or "load", static. If
 * no read or write completes for comm_options.files_timeout, the job ends with
 * 74. That clock stops for the main thread's own files while it waits for other
 * ranks. */
struct comm_files *comm_files_begin(struct comm *comm, const char *what);

/* In between the main thread waits for its data. Others that wait for it do not
 * report a hang; after comm_options.files_timeout the job ends with 74. */
struct comm_data {
    enum comm_work before;
    struct comm_files *files;
};
struct comm_data comm_data_begin(struct comm *comm);
void comm_data_end(struct comm *comm, struct comm_data data);

/* --- the device's memory -------------------------------------------------- */

/* A comm whose collectives work on memory of the thread's current device;
 * scalars, control messages and agreement go through `control`, which must
 * outlive it. On the CPU it is `control` itself. On a GPU it uses NCCL if every
 * rank has its own GPU (always with options->backend NCCL), else copies through
 * the host, with a notice. Every rank calls it; makes the topology if there is
 * none. Errors: ZD_ERR_UNFIT, CONFIG or PEER, the same on all ranks. */
enum zd_status comm_device_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out);
/* Copies through the host, also for the CPU device; `mode`: of its streams.
 * Copies and messages are asynchronous as far as the host's transport allows,
 * and advance in comm_progress; comm_wait may block the host. */
enum zd_status comm_staged_create(
        struct comm *control, enum stream_mode mode, struct comm **comm_out);

/* --- back ends ------------------------------------------------------------ */

/* A group of `size` ranks that are threads of this process; comms_out: (size).
 * Each thread uses its own and destroys it. */
enum zd_status comm_local_create(
        int size, const struct comm_options *options, struct comm **comms_out);
/* A rank leaves on its own: all ranks' waits fail with ZD_ERR_PEER. */
void comm_local_abort(struct comm *comm);

/* The library's name and version, "nccl 2.28.9"; static. ZD_ERR_UNFIT: none can
 * be opened, with what was tried. */
enum zd_status comm_nccl_library(const char **name_out);
/* This MPI's name and version, one line; works before MPI is initialized. */
void comm_mpi_library(char *out, size_t bytes);
/* Has a launcher started this process, as one of several or alone? */
bool comm_is_launched(void);
/* MPI_COMM_WORLD; initializes MPI if needed (comm_destroy then finalizes it).
 * Without mpirun it is a world of 1. A failure is printed (by one rank, if the
 * ranks are connected already) and returned without a record. */
enum zd_status comm_mpi_create(
        int *argc, char ***argv, const struct comm_options *options,
        struct comm **comm_out);
