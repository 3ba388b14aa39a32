/* plan_states.c - where the optimizer's states lie, format by format.
 *
 *   zero.m             | run 0 | run 1 | .. runs whose m is fp32
 *   zero.states.8bit   | run 2: m | run 2: v | run 3: m | ..
 *   zero.states.scales | run 2: m | run 2: v | .. one fp32 per 256 elements
 *   zero.blocks        | every block of tensor 0 | of tensor 1 | .. (Adam-mini)
 *
 * Runs of a rank begin at multiples of 256 in their tensors, so each has whole
 * qblocks but at its tensor's end. Ranks own different tensors, and formats
 * differ between tensors: a span has the bytes of the rank that needs most. */
#include "zero/plan_parts.h"

static size_t align(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

struct optim_layout zero_layout_of(const struct zero_plan *plan, int id)
{
    const struct param *param = &plan->request.table->params[id];
    if (!plan->request.train || !param->trainable)
        return (struct optim_layout){{OPTIM_NONE, OPTIM_NONE}};
    return optim_layout_of(
            &plan->request.optim, param->count, param->is_embedding,
            &param->blocks);
}

bool plan_has_master(const struct zero_plan *plan)
{
    return plan->request.dtype != DTYPE_FP32 &&
           plan->request.optim.master == OPTIM_MASTER_FP32;
}

enum dtype plan_master_type(const struct zero_plan *plan)
{
    return plan_has_master(plan) ? DTYPE_FP32 : plan->request.dtype;
}

const char *state_array_name(enum state_array array)
{
    static const char *const names[] = {
            "zero.m", "zero.v", "zero.states.8bit", "zero.states.scales",
            "zero.states.bf16"};
    return names[array];
}

enum state_array state_array_of(enum optim_lane lane, enum optim_format format)
{
    switch (format) {
    case OPTIM_FP32:
        return lane == OPTIM_M ? STATE_M : STATE_V;
    case OPTIM_BF16:
        return STATE_BF16;
    case OPTIM_8BIT:
        return STATE_8BIT;
    case OPTIM_NONE:
    case OPTIM_BLOCKS:
        break;
    }
    return STATE_ARRAYS;
}

/* --- walking -------------------------------------------------------------- */

void plan_state_part(
        const struct zero_plan *plan, int segment, int rank, size_t *begin_out,
        size_t *end_out)
{
    const struct zero_segment *s = &plan->segments[segment];
    size_t begin = plan->states_cut ? (size_t)rank * s->shard_count : 0;
    *begin_out = begin;
    *end_out = begin + (plan->states_cut ? s->shard_count : s->count);
}

struct state_walk state_walk_begin(const struct zero_plan *plan, int rank)
{
    return (struct state_walk){
            .plan = plan, .rank = rank, .at = {.run = {.id = -1}}};
}

static void place_run(struct state_walk *walk)
{
    struct state_run *at = &walk->at;
    at->layout = zero_layout_of(walk->plan, at->run.id);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = at->layout.lane[lane];
        enum state_array array = state_array_of((enum optim_lane)lane, format);
        if (array == STATE_ARRAYS)
            continue;
        at->value_offset[lane] = walk->bytes[array];
        at->scale_offset[lane] = walk->bytes[STATE_SCALES];
        walk->bytes[array] += align(optim_lane_bytes(format, at->run.count));
        walk->bytes[STATE_SCALES] +=
                align(optim_scale_count(format, at->run.count) * sizeof(float));
    }
}

bool state_walk_next(struct state_walk *walk)
{
    const struct zero_plan *plan = walk->plan;
    struct state_run *at = &walk->at;
    for (; at->segment < plan->segment_count; at->segment++) {
        size_t begin, end;
        plan_state_part(plan, at->segment, walk->rank, &begin, &end);
        if (plan->segments[at->segment].trainable &&
            zero_run_next(plan, at->segment, begin, end, &at->run)) {
            place_run(walk);
            return true;
        }
        at->run = (struct zero_run){.id = -1};
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

/* Where every rank has the whole gradient each adds up all of it. */
uint64_t plan_block_wire(const struct zero_plan *plan)
{
    if (!plan->states_cut)
        return 0;
    return (uint64_t)(plan->request.world - 1) * 2 * plan->block_count *
           sizeof(int64_t);
}

/* --- spans ---------------------------------------------------------------- */

static void largest(const struct zero_plan *plan, size_t bytes[STATE_ARRAYS])
{
    int ranks = plan->states_cut ? plan->request.world : 1;
    for (int rank = 0; rank < ranks; rank++) {
        struct state_walk walk = state_walk_begin(plan, rank);
        while (state_walk_next(&walk))
            ;
        for (int i = 0; i < STATE_ARRAYS; i++)
            if (walk.bytes[i] > bytes[i])
                bytes[i] = walk.bytes[i];
    }
}

/* Padded elements of the trainable segments with masters here. */
static size_t master_count(const struct zero_plan *plan)
{
    size_t count = plan->trainable_count;
    return plan->states_cut ? count / (size_t)plan->request.world : count;
}

static enum zd_status add_states(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    size_t bytes[STATE_ARRAYS] = {0};
    largest(plan, bytes);
    if (plan_has_master(plan))
        ZD_TRY(plan_span(
                arena, "zero.master", ARENA_DEVICE, SPAN_OPTIMIZER,
                master_count(plan), sizeof(float)));
    for (int i = 0; i < STATE_ARRAYS; i++)
        ZD_TRY(plan_span(
                arena, state_array_name((enum state_array)i), ARENA_DEVICE,
                SPAN_OPTIMIZER, bytes[i], 1));
    return ZD_OK;
}

enum zd_status plan_state_spans(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    enum arena_memory memory = plan->states_on_host ? ARENA_HOST : ARENA_DEVICE;
    if (!plan->states_on_host)
        ZD_TRY(add_states(plan, arena));
    ZD_TRY(plan_span(
            arena, "zero.blocks", memory, SPAN_OPTIMIZER, plan->block_count,
            sizeof(float)));
    return plan_span(
            arena, "zero.blocks.sums", memory, SPAN_BUFFERS,
            2 * plan->block_count, sizeof(int64_t));
}
