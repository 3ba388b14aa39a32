/* private.h - what one rank holds while it runs. Private to zero.
 *
 * Memory that is handed over has a lease (base/device/lease.h), which knows
 * whom to wait for. What is used by the compute stream and collectives alone,
 * one after the other, needs none.
 *
 *   params.c      params hooks: the stage-3 program; the update's gather
 *   grads.c       grads hooks: work buffers, reduction
 *   grads_down.c  what becomes of a reduced gradient, in stages; to the host
 *   tokens.c      tokens' hooks, and whole tensors' gradients, between places
 * of tensor parallelism norm.c        the norm states.c      the update of this
 * rank's states paged.c       the update of those that are spilled to the host
 *   offload.c     the engine's part of the step, when it has all states
 *   ranges.c      states and weights from outside: loading, saving
 *   base.c        the base's codes and scales: made, loaded
 *   zero.c        create and destroy; the step
 *
 * What is planned before: plan_parts.h.
 *
 * Memory of the device is the device's: it is read and written by
 * optim/device.h, base/device/device_memory.h, streams and collectives, whose
 * order is the compute stream's. What lies on the host says so. */
#pragma once

#include "base/device/device_memory.h"
#include "base/device/lease.h"
#include "offload/guest.h"
#include "optim/device.h"
#include "zero/plan_parts.h"
#include "zero/zero.h"

/* What becomes of a reduced gradient, one after the other: it is summed over
 * replicas, then over the places of tp that share it; the host gets it. */
enum grad_stage { GRADS_MERGED, GRADS_SHARED, GRADS_SENT, GRAD_STAGES };

/* Where a segment lies in this rank's memory. States (master, m and v) are of
 * the whole segment, or of this rank's part (plan->states_cut). */
struct segment_memory {
    void *full;   /* (count) compute type; NULL: only gathered (stage 3) */
    void *shard;  /* (held_count) within full if there is */
    void *part;   /* (part_count) within shard */
    void *master; /* weights, of plan_master_type. In training, of the state's
                     part: zero.master, or the parameters themselves. Frozen:
                     fp32, of the shard. NULL: only the parameters */
    void *grad_full;                 /* (count) NULL: cut */
    void *grad_shard;                /* (shard_count) */
    void *grad_part;                 /* (part_count) within it */
    size_t state_begin, state_count; /* of the segment, with a state here */
    size_t held_begin, held_count;   /* of the segment, what is held of the
                                        parameters that others do not send:
                                        the shard; in host memory, the part */
};

/* The states of an extent in memory. */
struct extent_memory {
    struct state_extent at;
    struct optim_lanes lanes; /* from element at.spilled on */
    uint64_t tensor;          /* rng_stream of its name */
};

/* Offloaded optimizer. */
struct zero_offload {
    struct offload_request request; /* its arrays are owned */
    struct offload *engine;         /* NULL: states on the device */
    uint64_t *waited; /* by segment: the update whose parameters the compute
                         stream follows */
    struct timeline *ready; /* by segment: source of the next copy down */
    uint64_t updates; /* parameters were made so often: before their next use
                         the device waits */
    int64_t **extent_sums;       /* by extent: Adam-mini's sums of its tensor */
    const float **extent_blocks; /* by extent: v of the blocks of its tensor */
    struct timeline *arrived;    /* by slot: copies up */
    struct timeline *left;       /* by slot: the model */
};

/* A chunk of states on the host. */
struct paged_chunk {
    int extent;
    size_t begin, count;  /* elements of the extent */
    size_t offset, bytes; /* in zero.paged */
};

/* Spilled states. */
struct zero_paged {
    struct paged_chunk *chunks; /* owned */
    int chunk_count;            /* 0: nothing is spilled */
    char *host;
    struct stream *down, *up;
    struct guest buffers[PAGED_BUFFERS];
    struct event *all_left;        /* every chunk is on the host */
    uint64_t down_bytes, up_bytes; /* since the last report */
    double wait_seconds;
    double down_seconds, up_seconds; /* of the streams, at the last report */
};

struct zero {
    const struct zero_plan *plan;
    struct comm *comm;
    struct comm *groups[ZERO_GROUPS]; /* `comm`, where all are in it; NULL: of
                                         one rank */
    const struct arena *arena;
    struct mesh_group shards;   /* this rank among those that cut segments, */
    struct mesh_group replicas; /* .. among those that hold the same shard */
    struct mesh_group places;   /* .. of tensor parallelism */
    int part;                   /* mesh_part */
    struct segment_memory *memory; /* by segment */

    /* params.c: the program that runs, and how far it is */
    const struct zero_move *moves;
    int move_count;
    int at;          /* the next move */
    int next_gather; /* the next move that gathers and has not begun */
    int next_collect[ZERO_CUTS]; /* parameters on the host: the next move that
                                     gathers and whose collective in the group
                                     has not begun */
    struct lease *slot_leases;
    int *unit_slots; /* by unit that is acquired: its slot */
    /* gathers after an update, in the order of segments: of each group the next
     * that has not begun; by segment, {0}: none is under way */
    int next_gathered[ZERO_CUTS];
    struct token *gathers[ZERO_CUTS];
    char *slots; /* zero.params.slots */

    /* grads.c */
    int micro;
    int grads_done;          /* units complete in this micro-batch */
    int *grads_held;         /* by unit: nested acquires */
    int *grad_positions;     /* by unit: in plan->grad_units; -1: no gradient */
    struct lease *grad_work; /* by unit: its part of zero.grads.work */
    struct lease *grad_parts; /* by unit: what is reduced, kept or passing */
    float *work;              /* zero.grads.work */
    char *own;                /* zero.grads.own */

    /* grads_down.c: of the step's gradients in their order, how many are past
     * each stage */
    int passed[GRAD_STAGES];
    char *passing; /* zero.grads.passing */

    struct zero_offload offload;
    struct zero_paged paged;

    /* states.c */
    struct extent_memory *extents; /* in the order of state_walk_next */
    int extent_count;
    int64_t *began; /* by tensor: of optim_span */
    /* Adam-mini; on the host when the states are */
    float *block_v;       /* (block_count) whole on every rank */
    int64_t *block_sums;  /* (block_count, 2) */
    int64_t *block_words; /* on the host: the sums between ranks */

    /* norm.c */
    struct exact_sum *squares; /* on the device; NULL: gradients are not */
    double norm;               /* of the gradients at hand, by zero_grad_norm */

    /* ranges.c */
    struct zero_range *ranges[ZERO_RANGES];
    int range_count[ZERO_RANGES];
};

/* --- zero.c --------------------------------------------------------------- */

/* A span of the arena; NULL: there is none, because it would be empty. */
void *zero_span(const struct zero *zero, const char *name);
/* Do its collectives send anything? */
static inline bool zero_has(const struct zero *zero, enum zero_group group)
{
    return zero->groups[group] != NULL;
}
/* Is this rank the one that counts what its replicas hold too? Parts of
 * parameters in host memory are held once. */
static inline bool zero_counts_held(const struct zero *zero)
{
    return zero->plan->params_on_host || zero->replicas.place == 0;
}

/* --- params.c ------------------------------------------------------------- */

enum zd_status params_acquire(void *ctx, int unit, const void **params);
enum zd_status params_release(void *ctx, int unit);
/* All-gather the parameters of every segment that has a full copy. */
enum zd_status params_gather(struct zero *zero);
/* Until those of zero_gather_params are done. */
enum zd_status params_gather_finish(struct zero *zero);
/* Bytes that those of a group which have not begun will send. */
uint64_t params_gather_owed(const struct zero *zero, enum zero_group group);

/* --- grads.c -------------------------------------------------------------- */

enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out);
enum zd_status grads_release(void *ctx, int unit);

/* --- grads_down.c --------------------------------------------------------- */

/* Buffer of a unit's gradients on their way to the host: reduced shards, or
 * what the model wrote. */
char *grads_passing(const struct zero *zero, int unit);
/* A stage of the gradients of the micro-batches before `micro`, and of it of
 * those before position `end` of their order. Gradients that are kept whole for
 * all micro-batches pass it once a step. */
enum zd_status grads_pass(
        struct zero *zero, enum grad_stage stage, int micro, int end);

/* --- tokens.c ------------------------------------------------------------- */

enum zd_status places_exchange(
        void *ctx, enum places_call call, void *to, const void *from,
        size_t count);
/* GRADS_SHARED, of a segment: what each place has made of whole tensors'
 * gradients is added up. */
enum zd_status places_share(
        struct zero *zero, int s, int micro, char *part, struct lease *lease);

/* --- norm.c --------------------------------------------------------------- */

/* Queues the squares of this rank's reduced part. */
enum zd_status norm_begin(struct zero *zero);

/* --- offload.c ------------------------------------------------------------ */

/* Make and end the engine, when the plan has one. */
enum zd_status host_begin(struct zero *zero, const struct offload_place *place);
void host_end(struct zero *zero);
enum zd_status host_update(struct zero *zero, const struct optim_step *step);
/* Until the parameters of segment `s` after the last update are on their way;
 * what the compute stream does later follows their copies. */
enum zd_status host_segment_wait(struct zero *zero, int s);
/* Parameters on the host: queue the copies of this rank's part of a unit to its
 * place in the slot, once what was there has left it. */
enum zd_status host_unit_up(struct zero *zero, int unit, int slot, char *out);
/* Until its update is made: a report tells that from the copies. */
enum zd_status host_unit_made(struct zero *zero, int unit);

/* --- states.c ------------------------------------------------------------- */

/* Does this rank count its gradients? Of those that all ranks of a place of tp
 * have whole (stage 0) the first counts, where places are added up. */
bool states_count(const struct zero *zero);

void states_create(struct zero *zero);
void states_destroy(struct zero *zero);
/* States as at the start of training. */
enum zd_status states_clear(struct zero *zero);

/* A lane of the extent from element `begin` of it on, as far as it lies in one
 * place, at most `count` elements. */
struct lane_memory {
    char *values;
    float *scales; /* NULL: none */
    size_t count;
    bool on_host; /* else on the device */
};
struct lane_memory states_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count);
/* The optimizer's arguments for elements of an extent, except their states. */
struct optim_span states_span(
        const struct zero *zero, const struct extent_memory *extent,
        size_t begin, size_t count);
/* The update of what an extent has on the device. */
enum zd_status states_update_resident(
        const struct zero *zero, const struct extent_memory *extent,
        const struct optim_step *step);

/* --- paged.c -------------------------------------------------------------- */

/* Does nothing when the plan spills nothing. */
enum zd_status paged_begin(
        struct zero *zero, const struct offload_place *place);
void paged_end(struct zero *zero);
/* The whole update, of resident states too. */
enum zd_status paged_update(struct zero *zero, const struct optim_step *step);
/* Until the host has all of its states. */
enum zd_status paged_finish(const struct zero *zero);
/* Bytes copied and time waited since the last call. */
struct offload_report paged_report_take(struct zero *zero);
/* states_lane within at.spilled. */
struct lane_memory paged_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count);

/* --- base.c --------------------------------------------------------------- */

/* This rank's codes and scales of what lies in codes, of weights from `source`,
 * and what they add to `digests`, which may be NULL. Collective, also with
 * `so_far` a failure of this rank, which is passed on. */
enum zd_status base_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests, enum zd_status so_far);

/* --- ranges.c ------------------------------------------------------------- */

void ranges_create(struct zero *zero);
void ranges_destroy(struct zero *zero);
/* Bytes of `count` elements of a lane of a range. */
size_t range_value_bytes(
        const struct zero_range *range, int lane, size_t count);
size_t range_scale_count(
        const struct zero_range *range, int lane, size_t count);
/* Elements of the extent's states before a range that trains. */
static inline size_t range_skip(
        const struct zero *zero, const struct zero_range *range)
{
    return range->offset - zero->extents[range->extent].at.extent.offset;
}
