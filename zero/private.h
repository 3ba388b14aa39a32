/* private.h - what one rank holds while it runs. Private to zero.
 *
 * Memory that passes between streams or threads has a lease
 * (base/device/lease.h), which says what to wait for. Memory that only the
 * compute stream and collectives use, in order, needs none.
 *
 *   params.c      params hooks: the stage-3 program; the update's gather
 *   grads.c       grads hooks: work buffers, reduction
 *   grads_down.c  what becomes of a reduced gradient, in stages; to the host
 *   tokens.c      hooks of tokens and whole tensors' gradients, between places
 *                 of tensor parallelism
 *   norm.c        the norm
 *   states.c      the update of this rank's states
 *   paged.c       the update of those that are spilled to the host
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

/* The stages of a reduced gradient, in order: summed over replicas; summed over
 * the places of tp that share it; copied to the host. */
enum grad_stage { GRADS_MERGED, GRADS_SHARED, GRADS_SENT, GRAD_STAGES };

/* A segment in this rank's memory. States (master, m and v) cover the whole
 * segment, or this rank's part (plan->states_cut). */
struct segment_memory {
    void *full;       /* (count) compute type; NULL: only gathered (stage 3) */
    void *shard;      /* (held_count) within full if that is there */
    void *part;       /* (part_count) within shard */
    void *master;     /* weights in plan_master_type. Trainable: of the states'
                         part, in zero.master or the parameters themselves. Frozen:
                         fp32, of the shard. NULL: only the parameters */
    void *grad_full;  /* (count) NULL: cut */
    void *grad_shard; /* (shard_count) */
    void *grad_part;  /* (part_count) within it */
    /* elements of the segment whose states are here */
    size_t state_begin, state_count;
    size_t held_begin, held_count; /* elements of the segment whose parameters
                                      this rank stores itself: the shard, or the
                                      part if they are on the host */
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
    uint64_t *waited; /* by segment: the last update that the compute stream has
                         waited for */
    struct timeline *ready; /* by segment: source of the next copy down */
    uint64_t updates;       /* updates so far; the device waits for the last one
                               before using parameters */
    int64_t **extent_sums;  /* by extent: Adam-mini's sums of its tensor */
    const float **extent_blocks; /* by extent: v of the blocks of its tensor */
    struct timeline *arrived;    /* by slot: copies up */
    struct timeline *left;       /* by slot: the model has released it */
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
    struct event *all_left;        /* all copies down are done */
    uint64_t down_bytes, up_bytes; /* since the last report */
    double wait_seconds;
    double down_seconds, up_seconds; /* of the streams, at the last report */
};

struct zero {
    const struct zero_plan *plan;
    struct comm *comm;
    struct comm *groups[ZERO_GROUPS]; /* `comm` for a group of all ranks; NULL:
                                         one rank */
    const struct arena *arena;
    struct mesh_group shards;   /* this rank among those that shard segments, */
    struct mesh_group replicas; /* .. among those that hold the same shard */
    struct mesh_group places;   /* .. of tensor parallelism */
    int part;                   /* mesh_part */
    struct segment_memory *memory; /* by segment */

    /* params.c: the running program and the position in it */
    const struct zero_move *moves;
    int move_count;
    int at;          /* the next move */
    int next_gather; /* the next gathering move that has not begun */
    int next_collect[ZERO_CUTS]; /* parameters on the host: the next gathering
                                    move whose collective in the group has not
                                    begun */
    struct lease *slot_leases;
    int *unit_slots; /* by unit that is acquired: its slot */
    /* gathers after an update, in the order of segments: for each group the
     * next that has not begun; by segment its token, {0}: none under way */
    int next_gathered[ZERO_CUTS];
    struct token *gathers[ZERO_CUTS];
    char *slots; /* zero.params.slots */

    /* grads.c */
    int micro;
    int grads_done;          /* units complete in this micro-batch */
    int *grads_held;         /* by unit: nested acquires */
    int *grad_positions;     /* by unit: in plan->grad_units; -1: no gradient */
    struct lease *grad_work; /* by unit: its part of zero.grads.work */
    /* by unit: its reduced gradient, kept or passing */
    struct lease *grad_parts;
    float *work; /* zero.grads.work */
    char *own;   /* zero.grads.own */

    /* grads_down.c: how many of the step's gradients, in their order, have
     * passed each stage */
    int passed[GRAD_STAGES];
    char *passing; /* zero.grads.passing */

    struct zero_offload offload;
    struct zero_paged paged;

    /* states.c */
    struct extent_memory *extents; /* in the order of state_walk_next */
    int extent_count;
    int64_t *began; /* by tensor: optim_span.began */
    /* Adam-mini; on the host if the states are */
    float *block_v;       /* (block_count) whole on every rank */
    int64_t *block_sums;  /* (block_count, 2) */
    int64_t *block_words; /* on the host: the sums between ranks */

    /* norm.c */
    /* on the device; NULL: gradients are on the host */
    struct exact_sum *squares;
    double norm; /* of the current gradients, by zero_grad_norm */

    /* ranges.c */
    struct zero_range *ranges[ZERO_RANGES];
    int range_count[ZERO_RANGES];
};

/* --- zero.c --------------------------------------------------------------- */

/* A span of the arena; NULL: it is empty and was not planned. */
void *zero_span(const struct zero *zero, const char *name);
/* Do its collectives send anything? */
static inline bool zero_has(const struct zero *zero, enum zero_group group)
{
    return zero->groups[group] != NULL;
}
/* Does this rank count elements that its replicas hold too? Parts of parameters
 * in host memory have one holder. */
static inline bool zero_counts_held(const struct zero *zero)
{
    return zero->plan->params_on_host || zero->replicas.place == 0;
}

/* --- params.c ------------------------------------------------------------- */

enum zd_status params_acquire(void *ctx, int unit, const void **params);
enum zd_status params_release(void *ctx, int unit);
/* All-gather the parameters of every segment that has a full copy. */
enum zd_status params_gather(struct zero *zero);
/* Waits until the gathers of zero_gather_params are done. */
enum zd_status params_gather_finish(struct zero *zero);
/* Bytes that a group's gathers will send that have not begun. */
uint64_t params_gather_owed(const struct zero *zero, enum zero_group group);

/* --- grads.c -------------------------------------------------------------- */

enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out);
enum zd_status grads_release(void *ctx, int unit);

/* --- grads_down.c --------------------------------------------------------- */

/* Buffer of a unit's gradients on their way to the host: reduced shards, or
 * what the model wrote. */
char *grads_passing(const struct zero *zero, int unit);
/* Puts gradients through a stage: those of micro-batches before `micro`, and of
 * `micro` those before position `end`. Gradients that are kept over all
 * micro-batches pass it once a step. */
enum zd_status grads_pass(
        struct zero *zero, enum grad_stage stage, int micro, int end);

/* --- tokens.c ------------------------------------------------------------- */

enum zd_status places_exchange(
        void *ctx, enum places_call call, void *to, const void *from,
        size_t count);
/* GRADS_SHARED for a segment: sums the places' parts of whole tensors'
 * gradients. */
enum zd_status places_share(
        struct zero *zero, int s, int micro, char *part, struct lease *lease);

/* --- norm.c --------------------------------------------------------------- */

/* Queues the squares of this rank's reduced part. */
enum zd_status norm_begin(struct zero *zero);

/* --- offload.c ------------------------------------------------------------ */

/* Create and destroy the engine, if the plan has one. */
enum zd_status host_begin(struct zero *zero, const struct offload_place *place);
void host_end(struct zero *zero);
enum zd_status host_update(struct zero *zero, const struct optim_step *step);
/* Waits until the copies of segment `s` after its last update are queued; later
 * work of the compute stream waits for them. */
enum zd_status host_segment_wait(struct zero *zero, int s);
/* Parameters on the host: queue the copies of this rank's part of a unit into
 * the slot, after the model has released it. */
enum zd_status host_unit_up(struct zero *zero, int unit, int slot, char *out);
/* Waits until the unit's update is done; measured apart from the copies. */
enum zd_status host_unit_made(struct zero *zero, int unit);

/* --- states.c ------------------------------------------------------------- */

/* Does this rank count its gradients? At stage 0 all ranks of a tp place have
 * them whole: if places are summed, only the first of them counts. */
bool states_count(const struct zero *zero);

void states_create(struct zero *zero);
void states_destroy(struct zero *zero);
/* States as at the start of training. */
enum zd_status states_clear(struct zero *zero);

/* A lane's memory from element `begin` of the extent: the contiguous part, at
 * most `count` elements. */
struct lane_memory {
    char *values;
    float *scales; /* NULL: none */
    size_t count;
    bool on_host; /* else on the device */
};
struct lane_memory states_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count);
/* The optimizer's arguments for elements of an extent, without states. */
struct optim_span states_span(
        const struct zero *zero, const struct extent_memory *extent,
        size_t begin, size_t count);
/* Updates the elements of an extent whose states are on the device. */
enum zd_status states_update_resident(
        const struct zero *zero, const struct extent_memory *extent,
        const struct optim_step *step);

/* --- paged.c -------------------------------------------------------------- */

/* Does nothing when the plan spills nothing. */
enum zd_status paged_begin(
        struct zero *zero, const struct offload_place *place);
void paged_end(struct zero *zero);
/* The whole update, including resident states. */
enum zd_status paged_update(struct zero *zero, const struct optim_step *step);
/* Waits until all copies down are done. */
enum zd_status paged_finish(const struct zero *zero);
/* Bytes copied and time waited since the last call. */
struct offload_report paged_report_take(struct zero *zero);
/* states_lane within at.spilled. */
struct lane_memory paged_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count);

/* --- base.c --------------------------------------------------------------- */

/* Makes this rank's codes and scales of quantized weights from `source`, and
 * adds them to `digests` (may be NULL). Collective: call it also after a
 * failure, with that as `so_far`, which it returns. */
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
/* Elements of the extent's states before a trainable range. */
static inline size_t range_skip(
        const struct zero *zero, const struct zero_range *range)
{
    return range->offset - zero->extents[range->extent].at.extent.offset;
}
