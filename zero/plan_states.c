/* plan_states.c - where the optimizer's states lie, format by format.
 *
 *   zero.states        | extent 0: m, v | extent 1: m | .. (optim/lanes.h)
 *   zero.blocks        | every block of tensor 0 | of tensor 1 | .. (Adam-mini)
 *   zero.sums          | the squares of the gradients
 *
 * Paged states that do not fit are spilled: from the first extent on, chunks go
 * to zero.paged on the host until request.spill_bytes are there. zero.states
 * has the rest.
 *
 * Extents of a rank begin at multiples of 256 in their tensors, so qblocks are
 * whole except at a tensor's end. Ranks own different tensors, and formats
 * differ between tensors: a span is sized for the rank that needs most. */
#include "zero/plan_parts.h"

#include "base/must.h"
#include "base/number/sizes.h"
#include "model/slice.h"
#include "offload/cut.h"

#include <string.h>

struct optim_layout zero_layout_of(const struct zero_plan *plan, int id)
{
    const struct param *param = &plan->request.table->params[id];
    if (!plan->request.train || !param->trainable)
        return (struct optim_layout){{OPTIM_NONE, OPTIM_NONE}};
    return optim_layout_of(
            &plan->request.optim, param_whole_count(param), param->is_embedding,
            param_whole_blocks(param));
}

bool plan_has_master(const struct zero_plan *plan)
{
    return plan->request.dtype != DTYPE_FP32 &&
           plan->request.optim.master == OPTIM_MASTER_FP32;
}

const char *plan_master_name(const struct zero_plan *plan)
{
    return plan->request.table->adapters ? "zero.adapters" : "zero.master";
}

enum dtype plan_master_type(const struct zero_plan *plan)
{
    return plan_has_master(plan) ? DTYPE_FP32 : plan->request.dtype;
}

/* --- the parts that differ -------------------------------------------------
 */

/* The parts that a plan must measure to know the maximum.
 *
 *   tensors |  0      |       1              |   2     |
 *   parts   |0   |1   |2   |3   |4   |5   |6   |7   |8   |
 *
 * Part 4 has as much of the same tensor as part 3, so it needs the same: an
 * extent's needs do not depend on where in its tensor it begins. Measure the
 * parts that hold a tensor's end, and the one after each. */
static void mark(bool *apart, size_t part, int parts)
{
    apart[part] = true;
    if (part + 1 < (size_t)parts)
        apart[part + 1] = true;
}

static void mark_tensors(const struct zero_plan *plan, bool *apart)
{
    const struct param_table *table = plan->request.table;
    int parts = mesh_parts(plan->request.mesh);
    for (int id = 0; id < table->count; id++) {
        const struct zero_place *place = &plan->places[id];
        size_t each = plan->segments[place->segment].part_count;
        size_t count = table->params[id].count;
        if (!plan->segments[place->segment].trainable || !count)
            continue;
        mark(apart, place->offset / each, parts);
        mark(apart, (place->offset + count - 1) / each, parts);
    }
}

bool *plan_parts_apart(const struct zero_plan *plan, int *parts_out)
{
    int parts = plan->states_cut ? mesh_parts(plan->request.mesh) : 1;
    bool *apart = zd_array((size_t)parts, sizeof *apart);
    if (plan->states_cut)
        mark_tensors(plan, apart);
    apart[0] = true;
    *parts_out = parts;
    return apart;
}

void plan_parts_visit(
        const struct zero_plan *plan, plan_part_fn *visit, void *context)
{
    int parts;
    ZD_FREED bool *apart = plan_parts_apart(plan, &parts);
    for (int part = 0; part < parts; part++)
        if (apart[part])
            visit(plan, part, context);
}

/* --- walking -------------------------------------------------------------- */

void plan_state_part(
        const struct zero_plan *plan, int segment, int part, size_t *begin_out,
        size_t *end_out)
{
    const struct zero_segment *s = &plan->segments[segment];
    size_t begin = plan->states_cut ? (size_t)part * s->part_count : 0;
    *begin_out = begin;
    *end_out = begin + (plan->states_cut ? s->part_count : s->count);
}

struct state_walk state_walk_begin(const struct zero_plan *plan, int part)
{
    return (struct state_walk){
            .plan = plan, .part = part, .at = {.extent = {.id = -1}}};
}

size_t state_record_bytes(const struct optim_layout *layout, size_t count)
{
    return state_record_of(layout, count).lane[OPTIM_LANES];
}

/* Spills chunks from the first on, until enough is on the host. */
static void spill_extent(struct state_walk *walk)
{
    struct state_extent *at = &walk->at;
    size_t wanted = walk->plan->request.spill_bytes;
    at->spilled = 0;
    at->spill_offset = walk->spilled;
    if (!wanted)
        return;
    size_t most = cut_most(&walk->plan->request.offload);
    size_t total = at->extent.count, count = cut_count(total, most);
    size_t first = cut_at(total, most, 0).count;
    size_t largest = state_record_bytes(&at->layout, first);
    if (largest > walk->largest_chunk)
        walk->largest_chunk = largest;
    for (size_t i = 0; largest && i < count && walk->spilled < wanted; i++) {
        struct cut cut = cut_at(total, most, i);
        at->spilled += cut.count;
        walk->spilled += cut.count == first
                                 ? largest
                                 : state_record_bytes(&at->layout, cut.count);
    }
}

static void place_extent(struct state_walk *walk)
{
    struct state_extent *at = &walk->at;
    at->layout = zero_layout_of(walk->plan, at->extent.id);
    spill_extent(walk);
    at->record = walk->bytes;
    walk->bytes +=
            state_record_bytes(&at->layout, at->extent.count - at->spilled);
}

bool state_walk_next(struct state_walk *walk)
{
    const struct zero_plan *plan = walk->plan;
    struct state_extent *at = &walk->at;
    for (; at->segment < plan->segment_count; at->segment++) {
        size_t begin, end;
        plan_state_part(plan, at->segment, walk->part, &begin, &end);
        if (plan->segments[at->segment].trainable &&
            zero_extent_next(plan, at->segment, begin, end, &at->extent)) {
            place_extent(walk);
            return true;
        }
        at->extent = (struct zero_extent){.id = -1};
    }
    return false;
}

/* --- blocks --------------------------------------------------------------- */

void plan_blocks(struct zero_plan *plan)
{
    const struct param_table *table = plan->request.table;
    for (int id = 0; id < table->count; id++) {
        plan->places[id].blocks = plan->block_count;
        if (zero_layout_of(plan, id).lane[OPTIM_V] == OPTIM_BLOCKS)
            plan->block_count += (size_t)table->params[id].blocks.count;
    }
}

bool plan_sums_blocks(const struct zero_plan *plan)
{
    return plan->states_cut || plan->request.mesh.tp > 1;
}

uint64_t plan_block_wire(const struct zero_plan *plan)
{
    if (!plan_sums_blocks(plan))
        return 0;
    return comm_all_reduce_bytes(
            plan->request.mesh.world, 2 * plan->block_count);
}

/* --- spans ---------------------------------------------------------------- */

/* The maximum over parts. */
static void note_part(const struct zero_plan *plan, int part, void *context)
{
    struct zero_needs *most = context;
    struct state_walk walk = state_walk_begin(plan, part);
    while (state_walk_next(&walk))
        ;
    most->states = size_max(most->states, walk.bytes);
    most->spilled = size_max(most->spilled, walk.spilled);
    most->largest_chunk = size_max(most->largest_chunk, walk.largest_chunk);
}

void plan_state_bytes(struct zero_plan *plan)
{
    plan_parts_visit(plan, note_part, &plan->needs);
}

/* The request reduced to what parts' needs depend on: of the stage only whether
 * states are cut, of micro-batches only whether the host sums gradients. */
static struct zero_request measured_of(const struct zero_plan *plan)
{
    struct zero_request of = plan->request;
    memset(&of.exchange, 0, sizeof of.exchange);
    memset(&of.checkpointing, 0, sizeof of.checkpointing);
    memset(&of.options, 0, sizeof of.options);
    of.options.stage = plan->states_cut;
    of.accumulation = plan->grads_pass && of.accumulation > 1;
    of.offload.activations = OFFLOAD_NONE;
    of.accumulate_on_host = of.reduce_fp32 = false;
    of.by_layer = of.mlp_pieces = 0;
    of.measures = NULL;
    return of;
}

static void measure(struct zero_plan *plan)
{
    if (plan->states_on_host)
        plan_offload_bytes(plan);
    else
        plan_state_bytes(plan);
}

void plan_measure(struct zero_plan *plan)
{
    struct zero_measures *measures = plan->request.measures;
    if (!measures || plan->request.spill_bytes) { /* rarely the same twice */
        measure(plan);
        return;
    }
    const struct zero_request of = measured_of(plan);
    ZD_EACH(last, measures->last, ZERO_MEASURES) {
        if (memcmp(&last->of, &of, sizeof of) != 0)
            continue;
        plan->needs = last->needs;
        plan->undo_first = last->undo_first;
        return;
    }
    measure(plan);
    measures->last[measures->next++ % ZERO_MEASURES] =
            (struct zero_measured){of, plan->needs, plan->undo_first};
}

/* Padded elements of the trainable segments with masters here. */
static size_t master_count(const struct zero_plan *plan)
{
    size_t count = plan->trainable_count;
    return plan->states_cut ? count / (size_t)mesh_parts(plan->request.mesh)
                            : count;
}

static enum zd_status add_states(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    const struct zero_needs *most = &plan->needs;
    if (plan_has_master(plan))
        ZD_TRY(plan_span(
                arena, plan_master_name(plan), ARENA_DEVICE, SPAN_OPTIMIZER,
                master_count(plan), sizeof(float)));
    ZD_TRY(plan_span(
            arena, "zero.states", ARENA_DEVICE, SPAN_OPTIMIZER, most->states,
            1));
    if (!most->spilled)
        return ZD_OK;
    ZD_TRY(plan_span(
            arena, "zero.paged", ARENA_PINNED, SPAN_OPTIMIZER, most->spilled,
            1));
    return plan_span(
            arena, "zero.paged.staging", ARENA_DEVICE, SPAN_BUFFERS,
            PAGED_BUFFERS * most->largest_chunk, 1);
}

enum zd_status plan_state_spans(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    enum arena_memory memory = plan->states_on_host ? ARENA_HOST : ARENA_DEVICE;
    /* the sums, between ranks */
    bool visits = !plan->states_on_host && plan_sums_blocks(plan);
    if (!plan->states_on_host) {
        ZD_TRY(add_states(plan, arena));
        ZD_TRY(plan_span(
                arena, "zero.sums", ARENA_DEVICE, SPAN_BUFFERS, 1,
                sizeof(struct exact_sum)));
    }
    if (visits)
        ZD_TRY(plan_span(
                arena, "zero.blocks.words", ARENA_HOST, SPAN_BUFFERS,
                2 * plan->block_count, sizeof(int64_t)));
    ZD_TRY(plan_span(
            arena, "zero.blocks", memory, SPAN_OPTIMIZER, plan->block_count,
            sizeof(float)));
    return plan_span(
            arena, "zero.blocks.sums", memory, SPAN_BUFFERS,
            2 * plan->block_count, sizeof(int64_t));
}
