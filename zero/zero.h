/* zero.h - sharded parameters, gradients and optimizer states of one rank.
 *
 *   zero_step_begin
 *   zero_step_expect      offload.clipping = "undo"
 *   for each micro-batch: zero_micro_begin, model_forward, model_backward
 *                         (zero_hooks gathers, releases and reduces)
 *   zero_reduce_finish    every reduction has arrived; the norm is begun
 *   zero_grad_norm        agreed by all ranks, exact (base/number/exact_sum.h)
 *   zero_update           this rank's states; with Adam-mini the block sums are
 *                         added up over ranks before
 *   zero_gather_params    begins to gather the new parameters: all of them at
 *                         stages 1 and 2, at stage 3 this rank's shards from
 *                         its replicas; who acquires a unit waits for its own
 *
 * With several micro-batches by layer (zero_request.by_layer) there is one such
 * turn, of all of them.
 *
 * The same calls are made at every stage and world; what a stage does not need
 * does nothing. A step whose norm is not finite calls zero_skip instead of the
 * last two. With the optimizer offloaded (offload/offload.h) zero_update begins
 * the update and returns; what needs a parameter later waits for it. Every
 * call but zero_hooks and the ranges is collective when there are several
 * ranks.
 *
 * Replicas: gradients are summed over the ranks that shard, in every
 * micro-batch where they are cut, and those sums over replicas, once a step (in
 * every micro-batch where the host adds them up). Each sum is rounded to the
 * type that is sent, as in two levels (comm/comm.h).
 *
 * Bits: with one micro-batch the stages agree to the bit, because gradients are
 * rounded, summed over ranks in rank order and used in the same types at each.
 * Errors: those of comm pass up; ZD_ERR_BUG when the model leaves the order of
 * model_unit_events. Nothing on the step path allocates.
 *
 * Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5. */
#pragma once

#include "model/weights.h"
#include "zero/plan.h"

struct zero;

/* plan, comm, arena and the streams of `place` are borrowed and must outlive
 * it. `place`: of the offload engine; NULL when the plan has none. */
enum zd_status zero_create(
        const struct zero_plan *plan, struct comm *comm,
        const struct arena *arena, const struct offload_place *place,
        struct zero **zero_out);
void zero_destroy(struct zero *zero);

/* Fill parameters and master weights from `source`, which gives whole tensors
 * also where tp cuts them; moments are cleared. Each rank reads its shard or
 * part only, by several threads, then parameters are gathered as the stage
 * asks. `digests` (may be NULL): of each tensor as it was read, or of its
 * codes, whatever the world (model/base_digest.h). */
enum zd_status zero_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests);

struct model_hooks zero_hooks(struct zero *zero);
/* Before forwards that are no training (evaluate, decode), any number of them;
 * zero_step_begin ends it. */
enum zd_status zero_eval_begin(struct zero *zero);

enum zd_status zero_step_begin(struct zero *zero);
/* Before the first backward: the step as it is when nothing is clipped, for
 * offload.clipping = "undo". */
void zero_step_expect(struct zero *zero, const struct optim_step *unclipped);
enum zd_status zero_micro_begin(struct zero *zero, int micro);
enum zd_status zero_reduce_finish(struct zero *zero);
/* Norm of the whole model's gradient: the root of an exact sum over pieces of
 * 256 elements counted from each tensor's start. A piece is summed in fp64 in
 * eight lanes, so the value does not depend on how shards are cut. NaN when an
 * element is not finite. Equal on all ranks to the bit. `extra` (may be NULL),
 * of the host, is merged over ranks in the same exchange: the loss. Waits for
 * the device; who reads the loss from it does so between zero_reduce_finish,
 * which has queued the norm, and this call, and the two are one wait. */
enum zd_status zero_grad_norm(
        struct zero *zero, double *norm_out, struct exact_sum *extra);
/* After zero_grad_norm, whose norm Adam-mini's block sums are scaled by. */
enum zd_status zero_update(struct zero *zero, const struct optim_step *step);
enum zd_status zero_gather_params(struct zero *zero);
/* Instead of the last two: the gradients are dropped. */
enum zd_status zero_skip(struct zero *zero);
/* What this rank has handed to others, with what gathers of the last update
 * will that have not begun: what a step sends is counted with it. */
struct zero_wire zero_wire(const struct zero *zero);
/* What was sent between `before` and `now`. */
struct zero_wire zero_wire_since(
        const struct zero_wire *before, const struct zero_wire *now);
/* Until updates, gathers and copies under way are done. */
enum zd_status zero_settle(struct zero *zero);
/* All 0 without an engine. */
struct offload_facts zero_offload_facts(const struct zero *zero);
/* From now on record spans of its threads; NULL: stop, once zero_settle has
 * returned. */
struct spans;
void zero_set_spans(struct zero *zero, struct spans *spans);
/* The engine's counters since the last call; all 0 without an engine. */
struct offload_report zero_offload_report(struct zero *zero);

/* --- weights and states from outside (checkpoints) -------------------------
 */

/* What a rank saves: together the ranks' ranges cover every tensor that trains
 * once, and no padding; what tp does not cut is its place 0's. What it holds:
 * what it must be given to go on (at stage 0 all that trains, and its part of
 * what does not). */
enum zero_ranges_of { ZERO_SAVES, ZERO_HOLDS, ZERO_RANGES };

/* An extent of elements of one tensor, or of this rank's slice of it; what is
 * saved follows each other in the whole tensor too, unless columns are cut.
 * From a multiple of 256; what is saved of rows where it has 8-bit lanes. */
struct zero_range {
    int id;              /* tensor */
    size_t begin, count; /* elements of the tensor, or slice */
    bool trains;         /* it has states; else layout is all NONE */
    enum dtype weight_type;
    struct optim_layout layout;

    /* private */
    int segment, extent; /* extent: of states; -1: frozen */
    size_t offset;       /* elements from the segment's first */
};
int zero_range_count(const struct zero *zero, enum zero_ranges_of which);
struct zero_range zero_range_at(
        const struct zero *zero, enum zero_ranges_of which, int i);

/* Elements begin..begin+count-1 of a range, from a multiple of 256 of it, from
 * and to the caller's memory, which ZERO_IN only reads. AWAY: it is not read
 * soon. lane: OPTIM_M or OPTIM_V, as the lane's format has its values; `scales`
 * (one per 256) are of 8-bit lanes. ZERO_WEIGHTS: of weight_type, no scales.
 * But for IN, either pointer may be NULL: not wanted. Lanes without elements
 * (NONE, BLOCKS) are not read. Not collective; between steps only. */
enum { ZERO_WEIGHTS = OPTIM_LANES };
enum zero_way { ZERO_OUT, ZERO_AWAY, ZERO_IN };
enum zd_status zero_range_move(
        const struct zero *zero, const struct zero_range *range, int lane,
        size_t begin, size_t count, void *values, float *scales,
        enum zero_way way);
/* Adam-mini's v of every block of tensor `id`, held whole by every rank:
 * params[id].blocks.count values, 0 for other formats. */
size_t zero_block_count(const struct zero *zero, int id);
enum zd_status zero_blocks_move(
        const struct zero *zero, int id, float *values, enum zero_way way);

/* The applied steps of the run before tensor `id` began to train
 * (optim_span); every rank has those of all tensors. Between steps only. */
int64_t zero_began(const struct zero *zero, int id);
void zero_set_began(struct zero *zero, int id, int64_t applied_steps);

/* States (m and v) as at the start of training, with that of the run. */
enum zd_status zero_states_clear(struct zero *zero);
/* All that a rank holds was written from outside: bring every copy of the
 * parameters in line with the masters. Collective. */
enum zd_status zero_ranges_loaded(struct zero *zero);
