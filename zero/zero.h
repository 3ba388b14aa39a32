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
 * stages 1 and 2, at stage 3 this rank's shards from its replicas; acquiring a
 * unit waits for that unit
 *
 * With several micro-batches by layer (zero_request.by_layer) the loop has one
 * turn for all of them.
 *
 * The same calls are made at every stage and world; those that a stage does not
 * need do nothing. A step whose norm is not finite calls zero_skip instead of
 * the last two. With the optimizer offloaded (offload/offload.h) zero_update
 * begins the update and returns; what needs a parameter later waits for it.
 * Every call but zero_hooks and the ranges is collective when there are several
 * ranks.
 *
 * Replicas: gradients are summed over the ranks that shard (in every
 * micro-batch if gradients are cut), then over replicas, once a step (in every
 * micro-batch if the host adds them up). Each sum is rounded to the type that
 * is sent, as in two levels (comm/comm.h).
 *
 * Bits: with one micro-batch the stages agree to the bit, because gradients are
 * rounded, summed over ranks in rank order and used in the same types at each.
 * Errors: comm's errors are passed on; ZD_ERR_BUG when the model deviates from
 * the order of model_unit_events. Nothing on the step path allocates.
 *
 * Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5. */
#pragma once

#include "model/weights.h"
#include "zero/plan.h"

struct zero;

/* plan, comm, arena and the streams of `place` are borrowed and must outlive
 * it. `place`: for the offload engine; NULL when the plan has none. */
enum zd_status zero_create(
        const struct zero_plan *plan, struct comm *comm,
        const struct arena *arena, const struct offload_place *place,
        struct zero **zero_out);
void zero_destroy(struct zero *zero);

/* Fill parameters and master weights from `source`, which provides whole
 * tensors even if tp cuts them; moments are cleared. Each rank reads only its
 * shard or part, with several threads, then parameters are gathered as the
 * stage requires. `digests` (may be NULL): of each tensor as read, or of its
 * codes; the same in every world (model/base_digest.h). */
enum zd_status zero_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests);

struct model_hooks zero_hooks(struct zero *zero);
/* Call before any number of forwards without training (evaluate, decode);
 * zero_step_begin ends it. */
enum zd_status zero_eval_begin(struct zero *zero);

enum zd_status zero_step_begin(struct zero *zero);
/* Call before the first backward, with the step as it would be without
 * clipping; for offload.clipping = "undo". */
void zero_step_expect(struct zero *zero, const struct optim_step *unclipped);
enum zd_status zero_micro_begin(struct zero *zero, int micro);
enum zd_status zero_reduce_finish(struct zero *zero);
/* Norm of the whole model's gradient: the root of an exact sum over pieces of
 * 256 elements counted from each tensor's start. A piece is summed in fp64 in
 * eight lanes, so the value does not depend on how shards are cut. NaN when an
 * element is not finite. Equal on all ranks to the bit. `extra` (may be NULL;
 * host memory; the loss) is merged over ranks in the same exchange. Waits for
 * the device. Read the loss from the device between zero_reduce_finish, which
 * queues the norm, and this call: then there is only one wait. */
enum zd_status zero_grad_norm(
        struct zero *zero, double *norm_out, struct exact_sum *extra);
/* After zero_grad_norm: its norm scales Adam-mini's block sums. */
enum zd_status zero_update(struct zero *zero, const struct optim_step *step);
enum zd_status zero_gather_params(struct zero *zero);
/* Instead of zero_update and zero_gather_params: drops the gradients. */
enum zd_status zero_skip(struct zero *zero);
/* Bytes that this rank has sent, including gathers of the last update that have
 * not begun, so that they count for the step that causes them. */
struct zero_wire zero_wire(const struct zero *zero);
/* What was sent between `before` and `now`. */
struct zero_wire zero_wire_since(
        const struct zero_wire *before, const struct zero_wire *now);
/* Waits until updates, gathers and copies under way are done. */
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

/* ZERO_SAVES: what a rank saves. Together the ranks' ranges cover every
 * trainable tensor once, without padding; tensors that tp does not cut are
 * saved by its place 0. ZERO_HOLDS: what a rank must be given to resume (at
 * stage 0 all that trains, and its part of what does not). */
enum zero_ranges_of { ZERO_SAVES, ZERO_HOLDS, ZERO_RANGES };

/* An extent of elements of one tensor, or of this rank's slice of it. Saved
 * extents are contiguous in the whole tensor too, unless columns are cut. It
 * begins at a multiple of 256; in a saved slice with 8-bit lanes, a multiple of
 * 256 within its rows. */
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

/* Copies elements begin..begin+count-1 of a range (`begin`: a multiple of 256)
 * from or to the caller's memory; ZERO_IN reads that memory. AWAY: copied out
 * and not read soon (bypass the caches). lane: OPTIM_M or OPTIM_V, in the
 * lane's format, with `scales` (one per 256) if it has 8 bits; ZERO_WEIGHTS: in
 * weight_type, without scales. Except for IN, either pointer may be NULL if it
 * is not wanted. Lanes without elements (NONE, BLOCKS) are not read. Not
 * collective; between steps only. */
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

/* How many applied steps the run had when tensor `id` began to train
 * (optim_span); every rank knows it for all tensors. Between steps only. */
int64_t zero_began(const struct zero *zero, int id);
void zero_set_began(struct zero *zero, int id, int64_t applied_steps);

/* Resets m and v, and when each tensor began to train, as at the start. */
enum zd_status zero_states_clear(struct zero *zero);
/* Call after all that a rank holds (ZERO_HOLDS) has been written: updates every
 * copy of the parameters from the masters. Collective. */
enum zd_status zero_ranges_loaded(struct zero *zero);
