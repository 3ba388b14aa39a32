/* plan.h - who owns what: a pure function of (tensors, world, stage, options).
 * No MPI, no allocation of what it plans; tested at every world from 1 to 64.
 *
 *   unit                     gathered and released together (model/params.h)
 *   |- segment: sharded      trainable tensors that are cut over the ranks
 *   |- segment: persistent   trainable, below param_persistence_threshold:
 *   |                        cut for the optimizer, kept gathered for compute
 *   '- segment: frozen       no gradient, no state
 *
 *   segment   | tensor a    pad | tensor b  pad |  pad to N * shard |
 *             |<-- 256 k  ----->|<--- 256 k --->|
 *   shards    |--- rank 0 ----|---- rank 1 -----|---- rank 2 ----..|
 *
 * Every tensor begins at a multiple of 256 elements in its segment and shards are
 * multiples of 256, so a piece of 256 that shares one norm term (and later one
 * 8-bit scale) never lies on two ranks and is the same at every world size.
 *
 * Source: Rajbhandari et al. 2020, arXiv:1910.02054, sections 5 and 7. */
#ifndef ZD_ZERO_PLAN_H
#define ZD_ZERO_PLAN_H

#include "base/arena.h"
#include "comm/comm.h"
#include "model/model.h"
#include "optim/optim.h"
#include "zero/options.h"

enum { ZERO_ALIGN = 256 };

struct zero_segment {
    int unit;
    bool trainable, persistent;
    size_t count;       /* padded: world * shard_count */
    size_t shard_count; /* elements of one rank's shard */
    size_t used;        /* elements of its tensors, no padding */
};

/* Where tensor id lies. */
struct zero_place {
    int segment;
    size_t offset; /* in the segment, a multiple of ZERO_ALIGN */
};

/* One move of the stage-3 program of a micro-batch (see zero/program.c). */
struct zero_move {
    int unit;
    bool acquire;
    bool gather;   /* acquire: it is not resident and must be gathered */
    int slot;      /* acquire: where it is (outer slots first) */
};

struct zero_request {
    const struct model_config *config;
    const struct param_table *table;
    int world;
    struct zero_options options;
    enum dtype dtype;          /* compute type */
    enum dtype storage_dtype;  /* of the files: frozen tensors keep it when it
                                  is wider than the compute type */
    int accumulation;          /* micro-batches of a step */
    struct checkpointing checkpointing;
    bool train;
};

struct zero_plan {
    struct zero_request request; /* pointers borrowed */
    struct zero_segment *segments;
    int segment_count;
    struct zero_place *places;   /* by tensor id */
    enum dtype grad_dtype;       /* kept and sent: compute type with one
                                    micro-batch, fp32 with several */
    /* stage 3: slots of gathered units, and the program of a micro-batch */
    int layer_slots, outer_slots;
    size_t layer_slot_count, outer_slot_count; /* elements */
    struct zero_move *train_moves, *eval_moves;
    int train_move_count, eval_move_count;
    int grad_slots;              /* work buffers of gradients */
    struct comm_counters wire;   /* bytes per step and rank (all the same) */
};

enum zd_status zero_plan_build(const struct zero_request *request,
        struct zero_plan *plan_out);
void zero_plan_fini(struct zero_plan *plan);
/* Spans "zero.*" (params, grads, optimizer, buffers), the same for every rank. */
enum zd_status zero_plan_spans(const struct zero_plan *plan,
        struct arena_plan *arena);

#endif
