/* comm.h - ranks and collectives behind one table: threads of one process
 * (comm_local), MPI (comm_mpi), and for memory of a GPU NCCL or copies through
 * the host (comm_device_create).
 *
 * Every rank calls the same collectives in the same order with the same counts.
 * The sum of a reduce_scatter has one definition: it adds the ranks'
 * contributions in rank order (0, 1, .. N-1) in fp32 and rounds once to the
 * type sent, so stages, bucket sizes and back ends give the same bits. In two
 * levels (comm_options.hierarchical) the ranks of a node are added in rank
 * order and rounded to the type sent, then the nodes' sums in order, and
 * rounded. Only NCCL adds in an order of its own, that of its rings and trees,
 * unless comm_options.reduce says otherwise.
 *
 * Wire bytes are counted as operations begin: what this rank sends to others,
 * payload only. For N ranks and a full array of E elements (N * count)
 * of size s, reduce_scatter, all_gather and all_to_all send (N-1)/N * E * s
 * each. The sends of scalars (all_reduce) go to every other rank; arrays of
 * integers are reduced in parts, as comm_all_reduce_bytes has it. Broadcasts
 * and gathers of control messages (set-up, saving) are not part of a step and
 * not counted.
 *
 * Threads: one thread per rank calls into a comm (MPI_THREAD_FUNNELED).
 * Waiting yields the core: idle ranks do not slow the busy ones when there are
 * more ranks than cores.
 * Errors: a failed transport is ZD_ERR_PEER; nothing after it can be relied on
 * and the caller ends its process (comm_give_up), which its launcher or the
 * others' watch sees. */
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

/* Sums over NCCL. FAST: as NCCL takes them. ORDERED: the definition's bits, by
 * an exchange of the parts and sums of our own. Elsewhere they are always so.
 */
enum comm_sums { COMM_REDUCE_FAST, COMM_REDUCE_ORDERED };

/* The type in which gradients of one micro-batch are sent and added. Back ends
 * add in fp32 and round once whatever is sent, but NCCL as it takes sums
 * (FAST) adds in that type, once for each rank. AUTO: fp32 there above 64
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
    int ranks_per_node; /* for tests: nodes of so many ranks; 0: as they are, or
                           as the variable ZEROD_TEST_RANKS_PER_NODE says */
    enum comm_sums reduce;
    enum comm_reduce_dtype reduce_dtype;
    double timeout;       /* seconds that a wait may take; 0: no limit;
                             COMM_TIMEOUT_AUTO: learned from the steps */
    double files_timeout; /* seconds without a read, write or fsync of files
                             (comm_files_begin), or for data; 0: no limit. The
                             key is checkpoint.timeout */
    int max_ctas;         /* multiprocessors that NCCL may take; 0: its choice;
                             COMM_CTAS_AUTO */
};

enum comm_op_kind {
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_OP_KINDS
};

/* Of each kind of operation, and of all_reduce. */
enum { COMM_ALL_REDUCE = COMM_OP_KINDS, COMM_COUNTERS };
struct comm_counters {
    uint64_t bytes[COMM_COUNTERS]; /* this rank handed to others */
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
/* Nodes where sums are taken in two levels. */
struct mesh comm_mesh(const struct comm *comm);

/* --- groups --------------------------------------------------------------- */

/* The ranks first, first + stride, .. (`count` of them) of `comm` as a comm in
 * which this rank has the place (rank - first) / stride. Collective over
 * `comm`: every rank calls it at the same time with the row it is in. A row may
 * be the whole comm, or one rank, which sends nothing.
 *
 * name: static, "shard", "replicate", "cp", "tp": of its staging spans, for the
 * watch. The group has its own counters, which are not in those of `comm`,
 * and no topology; it borrows what else `comm` has (transport, watch, seat) and
 * is destroyed before it.
 *
 * A rank calls the collectives of all its groups and of `comm` from one thread.
 * All of them share one numbering: the ranks begin collectives of the same
 * groups, by name, in the same order, and wait for them in the same order;
 * while a rank waits for one, the others go on. ZD_ERR_PEER or MEMORY, the same
 * on all ranks. */
enum zd_status comm_group_create(
        struct comm *comm, const char *name, int first, int stride, int count,
        struct comm **group_out);
/* Of how many of the row's ranks, neighbors in it, each host has one node,
 * where hosts have `per_node` neighboring ranks; 0: they differ, or per_node is
 * 0. A group adds in two levels where comm_node_size_expected does so of a
 * world of `count` ranks in such nodes. */
int comm_group_per_node(int first, int stride, int count, int per_node);

/* How collectives on the device's memory travel: HOST: the ranks' memory is the
 * host's; STAGED: through pinned memory and the host's transport; NCCL. */
enum comm_transport {
    COMM_TRANSPORT_HOST,
    COMM_TRANSPORT_STAGED,
    COMM_TRANSPORT_NCCL
};
enum comm_transport comm_transport(const struct comm *comm);
/* What comm_device_create will come to on ranks that each see `gpus` GPUs and
 * share their host with `local_size` ranks; for plans made elsewhere. */
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

/* What comm_mesh's nodes will be then, where nodes have `per_node` ranks (0:
 * all are on one). ZD_ERR_CONFIG as comm_device_create has it. */
enum zd_status comm_node_size_expected(
        const struct comm_options *options, enum comm_transport transport,
        int world, int per_node, int *node_size_out);

/* Bytes of staging a rank needs (a pure function, so the plan can price it):
 * "comm.staging" for the host's transport, "comm.pinned" for copies, and
 * "comm.device" for what NCCL needs beside the caller's memory; of a group
 * "comm.NAME.staging" and so on. Nothing for one rank. The spans are handed
 * over with comm_set_memory before the first collective, to each group its own;
 * NULL: the device's memory is about to go, and is handed over again when it is
 * back. */
struct comm_needs {
    const char *name; /* of a group; NULL: of the whole comm */
    enum comm_transport transport;
    int world;               /* ranks of the group */
    int node_size;           /* of comm_mesh; 0: `world`, one level */
    size_t shard_bytes;      /* largest shard of any operation */
    size_t reduce_bytes;     /* of a reduce_scatter */
    size_t accumulate_bytes; /* of one that accumulates; 0: none does */
    size_t exchange_bytes; /* largest part of an all_to_all; 0: there is none */
    bool is_ordered;       /* comm_options.reduce is ORDERED */
};
enum zd_status comm_plan_needs(
        struct arena_plan *plan, const struct comm_needs *needs);
void comm_set_memory(struct comm *comm, const struct arena *arena);

/* A collective on arrays.
 *   ALL_GATHER      `to` is the shards of all ranks, in rank order; `from`,
 * this rank's, may be its part of `to`. REDUCE_SCATTER  `to`, a shard, is [what
 * it holds, with `accumulate` (fp32 only), +] the sum over ranks of their part
 * of `from`. It may be this rank's part of `from`, which is left alone
 * elsewhere and may be reused after the wait. ALL_TO_ALL      part r of `to` is
 * what rank r has for this rank in its `from`, whose part d is for rank d. They
 * do not overlap. */
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
    uint64_t order;    /* among all of its comm */
    uint64_t sequence; /* among those of all groups; the same on all ranks.
                          Parts of an operation have none */
    /* progress of a back end that works in rounds, by its direction */
    size_t rounds, begun[2], done[2];
};
/* *op_out is the comm's, until the wait. On a GPU an operation begins when what
 * the compute stream has queued is done, and waiting holds what the compute
 * stream queues later, not the host. Operations may be waited for in any order
 * that is the same on all ranks; several that add to one shard, in the order in
 * which they were begun. At most COMM_OPS_MAX may be under way. */
enum { COMM_OPS_MAX = 16 };
enum zd_status comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out);
enum zd_status comm_wait(struct comm *comm, struct comm_op *op);

/* The same with a token, which may be waited for more than once. Where
 * COMM_OPS_MAX are under way the oldest is waited for first. */
enum zd_status comm_queue(
        struct comm *comm, const struct comm_op *request,
        struct token *begun_out);
bool comm_is_full(const struct comm *comm);
/* Waits for all that are under way. `comm` may be NULL. */
enum zd_status comm_finish(struct comm *comm);
/* Let transports that need it move, all groups of the rank (no-op elsewhere).
 */
enum zd_status comm_progress(struct comm *comm);

/* In place; sums are taken in rank order, and wrap as those of digests do. */
enum comm_reduction { COMM_SUM, COMM_MAX, COMM_MIN };
enum zd_status comm_all_reduce_i64(
        struct comm *comm, int64_t *values, size_t count,
        enum comm_reduction reduction);
/* Bytes that a rank sends in one. */
uint64_t comm_all_reduce_bytes(int world, size_t count);

/* Control messages: not counted, any size. */
enum zd_status comm_barrier(struct comm *comm);
enum zd_status comm_broadcast(
        struct comm *comm, void *data, size_t bytes, int root);
/* all: (size, bytes). */
enum zd_status comm_gather_all(
        struct comm *comm, const void *mine, size_t bytes, void *all);
/* The same into memory that is taken for it, on all ranks or on none; the
 * caller frees it. ZD_ERR_MEMORY on all ranks where one has none. */
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
/* Rank 0 makes the call, and all know what became of it. */
#define COMM_FIRST(comm, call)                                                 \
    comm_agree((comm), comm_rank(comm) == 0 ? (call) : ZD_OK)

/* This rank has failed and leaves alone, perhaps in the middle of collectives
 * on a device that its peers wait for: what is under way ends without them, in
 * bounded time, and nothing more is told. Then only comm_destroy. */
void comm_give_up(struct comm *comm);
void comm_destroy(struct comm *comm);

/* --- the watch ------------------------------------------------------------ */

/* A thread beside the ranks ends the job when a wait of any rank is a hang
 * (watch/watch.h): one rank of each host says which rank hangs, and all
 * processes end with 75; ranks that are threads have their waits fail. The
 * device's comm and that of its ranks have one watch. */

/* This rank's work may be long from here on, and those that wait for it wait:
 * it goes on as long as its process runs. WORK_EVALUATE and WORK_SAMPLE say so
 * themselves, by comm_goes_on. WORK_NONE: a step, which others do not wait for
 * longer than for any. Returns what it was before. `comm` may be NULL. */
enum comm_work comm_work(struct comm *comm, enum comm_work work);
void comm_goes_on(struct comm *comm);
/* A step was made, from which the limit is learned; the next one is `step`. */
void comm_step(struct comm *comm, int64_t step, double seconds);
/* Predicted seconds of a step: before two steps are done, no wait times out
 * earlier than ten predicted steps. */
void comm_predict(struct comm *comm, double seconds);
/* Seconds that this rank has waited for others, on the host or, over NCCL, on
 * its GPU. */
double comm_waited(const struct comm *comm);
/* Who hears of a hang, on one rank of all: rank 0 where its process runs. */
void comm_listen(struct comm *comm, const struct watch_listener *listener);

/* Between this and comm_files_end (watch/watch.h) a thread of this rank, any,
 * reads or writes files that the run depends on: "save", "load", static. When
 * none of that completes for comm_options.files_timeout the job ends with 74;
 * while the thread that trains waits for others, its own files wait too. */
struct comm_files *comm_files_begin(struct comm *comm, const char *what);

/* In between the thread that trains waits for its data, as others wait for it:
 * no hang, and after comm_options.files_timeout the job ends with 74. */
struct comm_data {
    enum comm_work before;
    struct comm_files *files;
};
struct comm_data comm_data_begin(struct comm *comm);
void comm_data_end(struct comm *comm, struct comm_data data);

/* --- the device's memory -------------------------------------------------- */

/* A comm whose collectives work on memory of the thread's current device, while
 * scalars, control messages and agreement go through `control`, which must
 * outlive it. On the CPU that is `control` itself. On a GPU NCCL when every
 * rank has one of its own (options->backend NCCL: always), else copies through
 * the host, which a notice says. Every rank calls it; the topology is made if
 * it is not there. Errors: ZD_ERR_UNFIT, CONFIG or PEER, the same on all ranks.
 */
enum zd_status comm_device_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out);
/* Copies through the host, on the CPU device too; `mode` is that of its
 * streams. As far as the host's transport allows, copies and messages run
 * beside the caller, moved on by comm_progress; comm_wait may hold the host. */
enum zd_status comm_staged_create(
        struct comm *control, enum stream_mode mode, struct comm **comm_out);

/* --- back ends ------------------------------------------------------------ */

/* A group of `size` ranks that are threads of this process; comms_out: (size).
 * Each thread uses its own and destroys it. */
enum zd_status comm_local_create(
        int size, const struct comm_options *options, struct comm **comms_out);
/* A rank leaves alone: every rank's waits fail with ZD_ERR_PEER. */
void comm_local_abort(struct comm *comm);

/* The library's name and version, "nccl 2.28.9"; static. ZD_ERR_UNFIT: none can
 * be opened, with what was tried. */
enum zd_status comm_nccl_library(const char **name_out);
/* What this MPI calls itself, one line; before and after it is initialized. */
void comm_mpi_library(char *out, size_t bytes);
/* Has a launcher started this process, as one of several or alone? */
bool comm_is_launched(void);
/* MPI_COMM_WORLD; initializes MPI when no one has (and then finalizes it in
 * comm_destroy). Without mpirun it is a world of 1. A failure is printed, once
 * if the ranks have met, and returned without a record. */
enum zd_status comm_mpi_create(
        int *argc, char ***argv, const struct comm_options *options,
        struct comm **comm_out);
