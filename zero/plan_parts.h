/* plan_parts.h - the parts of zero_plan_build, in the order in which it calls
 * them. Private to zero. */
#pragma once

#include "zero/plan.h"

/* How much of a unit's segments, padded, is gathered at stage 3, and trains. */
struct plan_unit {
    size_t count; /* elements, without scales; 0: nothing to gather */
    size_t bytes;
    size_t grads; /* elements that train */
};
struct plan_unit plan_unit_of(const struct zero_plan *plan, int unit);
/* The span of an array. */
static inline const char *plan_array_name(enum zero_array array)
{
    static const char *const names[ZERO_ARRAYS] = {
            [ZERO_TRAINED] = "zero.params",
            [ZERO_FROZEN] = "zero.params.frozen",
            [ZERO_CODES] = "zero.base.codes",
            [ZERO_SCALES] = "zero.base.scales"};
    return names[array];
}
/* Does its matmul write the gradient directly as it is kept or sent? For a
 * unit: for any of its tensors? */
bool plan_grad_is_direct(const struct zero_plan *plan, int id);
bool plan_unit_is_direct(const struct zero_plan *plan, int unit);
/* A unit's part of zero.grads.work, in fp32 elements. A direct unit has all of
 * its gradient in grad_dtype (unless that is kept whole), then its tensors that
 * are not direct in fp32. */
size_t plan_work_count(const struct zero_plan *plan, int unit);
/* fp32 elements before those tensors; fp32 elements of one of them. */
size_t plan_work_sums(const struct zero_plan *plan, int unit);
size_t plan_sum_count(const struct zero_plan *plan, int id);

/* --- states (plan_states.c) ----------------------------------------------- */

/* Are masters separate from the parameters? With 16-bit compute and
 * optim.master fp32. */
bool plan_has_master(const struct zero_plan *plan);
/* The masters' span; "zero.adapters" if only adapters train. */
const char *plan_master_name(const struct zero_plan *plan);
/* Type of the weights that the optimizer updates. */
enum dtype plan_master_type(const struct zero_plan *plan);

/* An extent of a tensor whose states are on one rank. */
struct state_extent {
    int segment;
    struct zero_extent extent;
    struct optim_layout layout;
    /* Paged states: the extent's first elements are on the host, chunk by
     * chunk, and the rest on the device. */
    size_t spilled, spill_offset; /* elements; bytes in "zero.paged" */
    size_t record; /* of the rest: byte offset in "zero.states" */
};
/* Iterates over state extents, by segment, then offset:
 *     struct state_walk walk = state_walk_begin(plan, part);
 *     while (state_walk_next(&walk))
 *         .. walk.at ..
 * walk.bytes: bytes of "zero.states" that the extents so far take. */
struct state_walk {
    const struct zero_plan *plan;
    int part;
    struct state_extent at;
    size_t bytes;
    size_t spilled;       /* bytes, on the host */
    size_t largest_chunk; /* bytes, of those that could be spilled */
};
struct state_walk state_walk_begin(const struct zero_plan *plan, int part);
bool state_walk_next(struct state_walk *walk);

/* The elements [begin, end) of a segment whose states belong to a part
 * (mesh_part). */
void plan_state_part(
        const struct zero_plan *plan, int segment, int part, size_t *begin_out,
        size_t *end_out);

/* Paged states: the record of a spilled chunk of an extent (offload/cut.h). */
static inline struct optim_record state_record_of(
        const struct optim_layout *layout, size_t count)
{
    return optim_record_of(layout, count, ARENA_ALIGN);
}
size_t state_record_bytes(const struct optim_layout *layout, size_t count);
/* Device buffers for spilled chunks: one is copied up, one updated, one copied
 * down. */
enum { PAGED_BUFFERS = 3 };

/* Marks the parts whose needs may differ from those of the part before.
 * *parts_out: number of parts (1 if each rank holds all). The caller owns the
 * result. */
bool *plan_parts_apart(const struct zero_plan *plan, int *parts_out);
/* Calls `visit` for each of those. */
typedef void plan_part_fn(
        const struct zero_plan *plan, int part, void *context);
void plan_parts_visit(
        const struct zero_plan *plan, plan_part_fn *visit, void *context);

/* Computes plan->needs and undo_first, or takes them from request.measures. */
void plan_measure(struct zero_plan *plan);

/* Elements of an extent that this rank counts for the norm: elements that all
 * places of tp have are counted by the first place. */
static inline size_t plan_counted(
        const struct zero_plan *plan, int segment,
        const struct zero_extent *extent)
{
    return plan->request.config->tp.place == 0
                   ? extent->count
                   : zero_own(
                             &plan->segments[segment], extent->offset,
                             extent->count);
}

/* Bytes of the shared parts of segments, whose gradients are summed over places
 * of tp. */
uint64_t plan_shared_bytes(const struct zero_plan *plan);

/* plan->block_count and the tensors' first blocks. */
void plan_blocks(struct zero_plan *plan);
/* Does a rank have only a part of the gradient, so that block sums are added
 * over ranks? Else each rank sums all of it. */
bool plan_sums_blocks(const struct zero_plan *plan);
/* Bytes that a rank sends to add up block sums in a step. */
uint64_t plan_block_wire(const struct zero_plan *plan);
/* plan->needs of states on the device. */
void plan_state_bytes(struct zero_plan *plan);
/* The optimizer's spans. */
enum zd_status plan_state_spans(
        const struct zero_plan *plan, struct arena_plan *arena);

/* A span of `count` elements of `bytes`; none when it would be empty. */
enum zd_status plan_span(
        struct arena_plan *arena, const char *name, enum arena_memory memory,
        enum span_kind kind, size_t count, size_t bytes);

/* --- offload (plan_offload.c) --------------------------------------------- */

/* plan_offload decides what is on the host; ZD_ERR_CONFIG for options that
 * contradict each other. When the segments are known, the next call computes
 * plan->needs.offload. */
enum zd_status plan_offload(struct zero_plan *plan);
void plan_offload_bytes(struct zero_plan *plan);
/* The engine's request for the rank of a part; release it with
 * plan_request_free. `began`: by tensor, for offload_extent; NULL to measure
 * only. */
struct offload_request plan_request_of(
        const struct zero_plan *plan, int part, const int64_t *began);
void plan_request_free(struct offload_request *request);

/* plan->grad_*, plan->work_* (plan_grads.c). */
void plan_grads(struct zero_plan *plan);
/* Units that are reduced while the next one fills. */
int plan_reductions_under_way(const struct zero_plan *plan);

/* Neither embedding nor head. */
static inline bool plan_is_layer(const struct zero_plan *plan, int unit)
{
    return unit > 0 && unit < plan->request.table->unit_count - 1;
}

/* plan->slots, plan->*_moves (program.c). */
enum zd_status plan_program(struct zero_plan *plan);
