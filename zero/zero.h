/* zero.h - sharded parameters, gradients and optimizer states of one rank.
 *
 *   zero_step_begin
 *   for each micro-batch: zero_micro_begin, model_forward, model_backward
 *                         (zero_hooks gathers, releases, buckets and reduces)
 *   zero_reduce_finish    every reduction has arrived
 *   zero_grad_norm        agreed by all ranks, exact (base/exact_sum.h)
 *   zero_update           this rank's shard
 *   zero_gather_params    the new parameters: all of them at stages 1 and 2,
 *                         the persistent ones at stage 3
 *
 * The same calls are made at every stage and world; what a stage does not need
 * does nothing. A step whose norm is not finite leaves out the last two. Every
 * call but zero_hooks and the ranges is collective when there are several
 * ranks.
 *
 * Bits: with one micro-batch the stages agree to the bit, because gradients are
 * rounded, summed over ranks in rank order and used in the same types at each.
 * Errors: those of comm pass up; ZD_ERR_BUG when the model leaves the order of
 * model_unit_events. Nothing on the step path allocates.
 *
 * Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5. */
#ifndef ZD_ZERO_ZERO_H
#define ZD_ZERO_ZERO_H

#include "model/weights.h"
#include "zero/plan.h"

struct zero;

/* plan, comm, kernels, arena are borrowed and must outlive it. */
enum zd_status zero_create(
        const struct zero_plan *plan, struct comm *comm,
        const struct arena *arena, struct zero **zero_out);
void zero_destroy(struct zero *zero);

/* Fill parameters and master weights from `source`; moments are cleared. Each
 * rank reads its shard only, then parameters are gathered as the stage asks. */
enum zd_status zero_load(struct zero *zero, const struct weight_source *source);

struct model_hooks zero_hooks(struct zero *zero);
/* Before forwards that are no training (evaluate, decode), any number of them;
 * zero_step_begin ends it. */
enum zd_status zero_eval_begin(struct zero *zero);

enum zd_status zero_step_begin(struct zero *zero);
enum zd_status zero_micro_begin(struct zero *zero, int micro);
enum zd_status zero_reduce_finish(struct zero *zero);
/* Norm of the whole model's gradient: the root of an exact sum over pieces of
 * 256 elements counted from each tensor's start. A piece is summed in fp64 in
 * eight lanes, so the value does not depend on how shards are cut. NaN when an
 * element is not finite. Equal on all ranks to the bit. `extra` (may be NULL)
 * is merged over ranks in the same exchange: the loss. */
enum zd_status zero_grad_norm(
        struct zero *zero, double *norm_out, struct exact_sum *extra);
enum zd_status zero_update(struct zero *zero, const struct adamw_step *step);
enum zd_status zero_gather_params(struct zero *zero);

/* A run of elements of one tensor that this rank is to save (or gets back):
 * together the ranks' ranges cover every tensor once. */
struct zero_range {
    int id;              /* tensor */
    size_t begin, count; /* elements of the tensor */
    float *master;       /* (count) fp32 weights; NULL for frozen tensors that
                            are kept in the compute type */
    const void *frozen;  /* (count) of frozen_type, when master is NULL */
    enum dtype frozen_type;
    float *m, *v; /* (count) moments; NULL for frozen tensors */
};
int zero_range_count(const struct zero *zero);
struct zero_range zero_range_at(const struct zero *zero, int i);
/* Ranges were written from outside (resume): bring every copy of the parameters
 * in line with the masters. Collective. */
enum zd_status zero_ranges_loaded(struct zero *zero);
/* Frozen ranges: set from fp32 (rounded to frozen_type). */
void zero_range_set_frozen(struct zero *zero, int i, const float *values);

#endif
