/* plan_parts.h - the parts of zero_plan_build, in the order in which it calls
 * them. Private to zero. */
#pragma once

#include "zero/plan.h"

/* What of a unit's segments, padded, is gathered when it is acquired at stage
 * 3, and trains. */
struct plan_unit {
    size_t count; /* elements, but of scales; 0: nothing to gather */
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
/* Its gradient leaves a product as it is kept or sent. Of a unit: is that so of
 * any? */
bool plan_grad_is_direct(const struct zero_plan *plan, int id);
bool plan_unit_is_direct(const struct zero_plan *plan, int unit);
/* A unit's part of zero.grads.work, in fp32 elements. Of one that is direct:
 * first all of its gradient in grad_dtype, where that is not kept whole; then
 * in fp32 the tensors that are not, one by one. */
size_t plan_work_count(const struct zero_plan *plan, int unit);
/* fp32 elements before those tensors, and of one of them. */
size_t plan_work_sums(const struct zero_plan *plan, int unit);
size_t plan_sum_count(const struct zero_plan *plan, int id);

/* --- states (plan_states.c) ----------------------------------------------- */

/* Masters apart from the parameters: compute in 16 bits, optim.master fp32. */
bool plan_has_master(const struct zero_plan *plan);
/* Their span: "zero.adapters" where adapters are what trains. */
const char *plan_master_name(const struct zero_plan *plan);
/* Type of the weights that the optimizer updates. */
enum dtype plan_master_type(const struct zero_plan *plan);

/* An extent of a tensor whose states one rank holds. */
struct state_extent {
    int segment;
    struct zero_extent extent;
    struct optim_layout layout;
    /* Paged: the extent's first elements lie on the host, chunk by chunk; the
     * rest is on the device. */
    size_t spilled, spill_offset; /* elements; bytes in "zero.paged" */
    size_t record;                /* of the rest: bytes in "zero.states" */
};
/* Walk them, by segment, then offset:
 *     struct state_walk walk = state_walk_begin(plan, part);
 *     while (state_walk_next(&walk))
 *         .. walk.at ..
 * walk.bytes: what the extents so far take of "zero.states". */
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

/* Elements [begin, end) of a segment whose states the rank of a part
 * (mesh_part) holds. */
void plan_state_part(
        const struct zero_plan *plan, int segment, int part, size_t *begin_out,
        size_t *end_out);

/* Paged states: a chunk of an extent (offload/cut.h) that is spilled is a
 * record.
 */
static inline struct optim_record state_record_of(
        const struct optim_layout *layout, size_t count)
{
    return optim_record_of(layout, count, ARENA_ALIGN);
}
size_t state_record_bytes(const struct optim_layout *layout, size_t count);
/* Buffers on the device that spilled chunks visit in turn: one comes up, one is
 * updated, one goes down. */
enum { PAGED_BUFFERS = 3 };

/* Of the parts of states (*parts_out: one, where each rank holds all) those
 * that differ in what they take from the part before; owned by the caller
 */
bool *plan_parts_apart(const struct zero_plan *plan, int *parts_out);
/* Calls `visit` for each of those. */
typedef void plan_part_fn(
        const struct zero_plan *plan, int part, void *context);
void plan_parts_visit(
        const struct zero_plan *plan, plan_part_fn *visit, void *context);

/* plan->needs and what is undone, or those of request.measures. */
void plan_measure(struct zero_plan *plan);

/* Elements of an extent whose gradient this rank counts: what each place of tp
 * has the first counts. */
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

/* Bytes of the parts of segments that places of tp share: they are added up. */
uint64_t plan_shared_bytes(const struct zero_plan *plan);

/* plan->block_count and the tensors' first blocks. */
void plan_blocks(struct zero_plan *plan);
/* Does a rank have a part of the gradient, so that its block sums are added to
 * the others'? Else each sums all of it. */
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

/* What of the plan is on the host; ZD_ERR_CONFIG when the options do not go
 * together. Then, the segments settled, plan->needs.offload. */
enum zd_status plan_offload(struct zero_plan *plan);
void plan_offload_bytes(struct zero_plan *plan);
/* What the engine of a part's rank is asked for. The arrays of the request are
 * the caller's, who ends with plan_request_free. `began`: by tensor, for
 * offload_extent; NULL to measure. */
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
