/* private.h - what the files of the NCCL back end share.
 *
 *   compute --begin a-begin b------------------ wait a --------- wait b --
 *               ready     '--ready                ^ done           ^ done
 *   comm                       '-[ a, b in one group ]-------------'
 *
 * begin notes the operation; the next progress or wait queues all that were
 * noted, those of one comm that follow each other in one ncclGroup, on a stream
 * of higher priority, behind an event of the compute stream. The same calls on
 * all ranks, so the same ncclGroups. Groups of ranks have communicators of
 * their own, split off; all have one stream, so that a rank queues operations
 * of all groups in the order of their numbers, which is that of every other
 * rank.
 *
 * In two levels an ncclGroup is two: within the node and along the rail (the
 * ranks with the same place in their nodes), with `scratch` between them:
 *
 *   all_gather:      rail: shard -> scratch (nodes, count)
 *                    node: scratch[d] -> the ranks of node d in full
 *   reduce_scatter:  node: the ranks of node d in full -> scratch[d]
 *                    rail: scratch -> shard
 *
 * Sums in rank order are exchanges and kernels of ours instead
 * (queue.c). An all_to_all is one ncclGroup of sends and receives, in one
 * level.
 *
 * Threads: the trainer's; and one (watch.c) that looks at events and
 * asynchronous errors. That an operation takes too long is found by the watch
 * of all back ends (comm/watch/watch.h), from what is begun and done; that
 * thread does not look itself, for it may not stand still, and a call of the
 * GPU's driver may for as long as the GPU does.
 */
#pragma once

#include "base/device/device.h"
#include "comm/backend.h"
#include "comm/nccl/door.h"
#include "comm/nccl/nccl.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NCCL_EVENTS = 64, NCCL_COMMS = 3, NCCL_ALL = 8 * NCCL_COMMS };

/* The comm of all ranks, or of a group of them. */
struct nccl_group {
    struct comm base;
    struct nccl *nccl;
    ncclComm_t comms[NCCL_COMMS]; /* world, node, rail; NULL: one level, or one
                                     rank */
    struct mesh_group node, rail;
    char *scratch;
    size_t scratch_bytes, scratch_used;
};

struct nccl_pending {
    struct nccl_group *group;
    struct comm_op *op;
    size_t scratch; /* where it has its part of the group's */
    size_t round;   /* that is being queued: sums in rank order may need more
                       than one */
};

/* What a rank's groups share. */
struct nccl {
    struct nccl_group *whole; /* all ranks; owns this */
    const struct nccl_functions *functions;
    struct device *gpu;
    pthread_mutex_t calls;    /* of the library, on the communicators; see
                                 nccl_calls_begin */
    ncclComm_t all[NCCL_ALL]; /* of all groups, under `calls`; NULL: free */
    atomic_bool aborts;       /* someone has begun to abort them; in turn: */
    atomic_bool is_ended, is_aborted; /* no call begins any more; it is done */
    struct stream *stream;
    struct event *ready[NCCL_EVENTS], *done[NCCL_EVENTS]; /* by sequence */
    struct nccl_pending pending[NCCL_EVENTS];
    int pending_count;

    /* the thread that looks */
    pthread_t watch;
    bool is_watched;
    int stop;                /* an eventfd */
    uint64_t done_count;     /* operations known to be done; its own */
    _Atomic uint64_t queued; /* sequence + 1 of the last one */
    atomic_bool has_failed;
    atomic_bool gave_up; /* by nccl_give_up: the watch has nothing to add */
};

enum { NCCL_WORLD, NCCL_NODE, NCCL_RAIL };

/* Communicator of a node's ranks; with one level, of all ranks. */
static inline int nccl_node_comm(const struct nccl_group *group)
{
    return group->rail.size > 1 ? NCCL_NODE : NCCL_WORLD;
}

/* --- state.c -------------------------------------------------------------- */

ncclDataType_t nccl_type_of(enum dtype type);
/* Every thread calls the library on communicators between these two. False: the
 * communicators are being aborted, which frees them, and nothing is entered. */
bool nccl_calls_begin(struct nccl *nccl);
void nccl_calls_end(struct nccl *nccl);
/* After a failure: ZD_ERR_PEER with no record, for the watch tells it; or what
 * is wrong with this rank's GPU. */
enum zd_status nccl_check_alive(struct nccl *nccl);
/* Until `comm` is not in progress. ZD_ERR_PEER: it failed, or it took longer
 * than `seconds` (0: no limit). */
enum zd_status nccl_settle(struct nccl *nccl, ncclComm_t comm, double seconds);

/* --- queue.c -------------------------------------------------------------- */

struct event *nccl_done_of(struct nccl *nccl, const struct comm_op *op);
/* Bytes of scratch that an operation has to itself until it is done. */
size_t nccl_scratch_need(
        const struct nccl_group *group, const struct comm_op *op);
/* Queues what is pending. */
enum zd_status nccl_flush(struct nccl *nccl);

/* --- watch.c -------------------------------------------------------------- */

enum zd_status nccl_watch_start(struct nccl *nccl);
void nccl_watch_stop(struct nccl *nccl);
/* The thread's error record ends the job, as watch_fail has it. Once; later
 * calls do nothing. */
void nccl_fail(struct nccl *nccl);
/* Abort the communicators, once, on a separate thread; false: the abort hangs.
 * Waits a bounded time for library calls in progress. */
bool nccl_abort_all(struct nccl *nccl);
/* See comm_give_up. */
void nccl_give_up(struct nccl *nccl);
