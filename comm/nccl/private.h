/* private.h - what the files of the NCCL back end share.
 *
 *   compute --begin a-begin b------------------ wait a --------- wait b --
 *               ready     '--ready                ^ done           ^ done
 *   comm                       '-[ a, b in one group ]-------------'
 *
 * begin notes the operation. The next progress or wait queues all noted
 * operations on a stream of higher priority, after an event of the compute
 * stream; consecutive operations of one comm share an ncclGroup. All ranks make
 * the same calls, so their ncclGroups are the same. Each group of ranks has its
 * own split communicator. All use one stream, so that a rank queues operations
 * of all groups in the order of their numbers, as every other rank does.
 *
 * In two levels an ncclGroup is two: within the node and along the rail (the
 * ranks with the same place in their nodes), with `scratch` between them:
 *
 *   all_gather:      rail: shard -> scratch (nodes, count)
 *                    node: scratch[d] -> the ranks of node d in full
 *   reduce_scatter:  node: the ranks of node d in full -> scratch[d]
 *                    rail: scratch -> shard
 *
 * With comm.reduce = "ordered" our own kernels add the parts after an exchange
 * (queue.c). An all_to_all is one ncclGroup of sends and receives, in one
 * level.
 *
 * Threads: the trainer's, and one (watch.c) that checks events and asynchronous
 * errors. The watch of all back ends (comm/watch/watch.h) finds operations that
 * take too long, from the numbers begun and done. It does not query the GPU
 * itself: it must never block, and a driver call may block while the GPU
 * hangs. */
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
    size_t scratch; /* offset of its part of the group's scratch */
    size_t round; /* the round being queued: sums in rank order may need several
                   */
};

/* What a rank's groups share. */
struct nccl {
    struct nccl_group *whole; /* all ranks; owns this */
    const struct nccl_functions *functions;
    struct device *gpu;
    pthread_mutex_t calls;    /* of the library, on the communicators; see
                                 nccl_calls_begin */
    ncclComm_t all[NCCL_ALL]; /* of all groups, under `calls`; NULL: free */
    atomic_bool aborts;       /* a thread has begun to abort them; then: */
    /* no new call may begin; the abort is done */
    atomic_bool is_ended, is_aborted;
    struct stream *stream;
    struct event *ready[NCCL_EVENTS], *done[NCCL_EVENTS]; /* by sequence */
    struct nccl_pending pending[NCCL_EVENTS];
    int pending_count;

    /* the thread of watch.c */
    pthread_t watch;
    bool is_watched;
    int stop;            /* an eventfd */
    uint64_t done_count; /* operations known to be done; only that thread uses
                            it */
    _Atomic uint64_t queued; /* sequence + 1 of the last one */
    atomic_bool has_failed;
    atomic_bool gave_up; /* set by nccl_give_up: report nothing more */
};

enum { NCCL_WORLD, NCCL_NODE, NCCL_RAIL };

/* Communicator of a node's ranks; with one level, of all ranks. */
static inline int nccl_node_comm(const struct nccl_group *group)
{
    return group->rail.size > 1 ? NCCL_NODE : NCCL_WORLD;
}

/* --- state.c -------------------------------------------------------------- */

ncclDataType_t nccl_type_of(enum dtype type);
/* Library calls on communicators must be between these two, in any thread.
 * False: the communicators are being aborted and freed; make no call and no
 * nccl_calls_end. */
bool nccl_calls_begin(struct nccl *nccl);
void nccl_calls_end(struct nccl *nccl);
/* Fails after a failure: ZD_ERR_PEER without a record, since the watch reports
 * it, or the failure of this rank's GPU. */
enum zd_status nccl_check_alive(struct nccl *nccl);
/* Waits until `comm` is no longer in progress. ZD_ERR_PEER: it failed, or took
 * longer than `seconds` (0: no limit). */
enum zd_status nccl_settle(struct nccl *nccl, ncclComm_t comm, double seconds);

/* --- queue.c -------------------------------------------------------------- */

struct event *nccl_done_of(struct nccl *nccl, const struct comm_op *op);
/* Bytes of scratch reserved for an operation until it is done. */
size_t nccl_scratch_need(
        const struct nccl_group *group, const struct comm_op *op);
/* Queues what is pending. */
enum zd_status nccl_flush(struct nccl *nccl);

/* --- watch.c -------------------------------------------------------------- */

enum zd_status nccl_watch_start(struct nccl *nccl);
void nccl_watch_stop(struct nccl *nccl);
/* Ends the job with the thread's error record (watch_fail). Later calls do
 * nothing. */
void nccl_fail(struct nccl *nccl);
/* Abort the communicators, once, on a separate thread; false: the abort hangs.
 * Waits a bounded time for library calls in progress. */
bool nccl_abort_all(struct nccl *nccl);
/* See comm_give_up. */
void nccl_give_up(struct nccl *nccl);
