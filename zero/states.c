/* states.c - the optimizer's states that this rank holds, and their update. */
#include "zero/private.h"

#include "base/must.h"
#include "base/number/rng.h"
#include "model/slice.h"

#include <stdlib.h>
#include <string.h>

/* --- layout --------------------------------------------------------------- */

static void place_extent(
        const struct zero *zero, char *states, const struct state_extent *at,
        struct extent_memory *extent)
{
    const struct param *params = zero->plan->request.table->params;
    *extent = (struct extent_memory){
            .at = *at, .tensor = rng_stream(params[at->extent.id].name)};
    struct optim_record record =
            state_record_of(&at->layout, at->extent.count - at->spilled);
    if (!zero->plan->states_on_host)
        extent->lanes = optim_lanes_in_record(
                &at->layout, &record, states + at->record);
}

void states_create(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    char *states = zero_span(zero, "zero.states");
    int count = 0;
    struct state_walk walk = state_walk_begin(plan, zero->part);
    while (plan->request.train && state_walk_next(&walk))
        count++;
    zero->extents = zd_array((size_t)count, sizeof *zero->extents);
    zero->began =
            zd_array((size_t)plan->request.table->count, sizeof *zero->began);
    zero->block_v = zero_span(zero, "zero.blocks");
    zero->block_sums = zero_span(zero, "zero.blocks.sums");
    zero->block_words = zero_span(zero, "zero.blocks.words");
    walk = state_walk_begin(plan, zero->part);
    while (zero->extent_count < count && state_walk_next(&walk))
        place_extent(
                zero, states, &walk.at, &zero->extents[zero->extent_count++]);
}

void states_destroy(struct zero *zero)
{
    free(zero->extents);
    free(zero->began);
}

struct lane_memory states_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count)
{
    if (begin < extent->at.spilled)
        return paged_lane(zero, extent, lane, begin, count);
    struct optim_lanes lanes = optim_lanes_from(
            &extent->at.layout, &extent->lanes, begin - extent->at.spilled);
    return (struct lane_memory){
            .values = lanes.state[lane],
            .scales = lanes.scale[lane],
            .count = count};
}

static enum zd_status clear_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane)
{
    enum optim_format format = extent->at.layout.lane[lane];
    size_t count = extent->at.extent.count;
    if (zero->plan->states_on_host || !optim_lane_bytes(format, count))
        return ZD_OK;
    for (size_t done = 0; done < count;) {
        struct lane_memory memory =
                states_lane(zero, extent, lane, done, count - done);
        if (memory.on_host)
            optim_lane_clear(
                    (enum optim_lane)lane, format, memory.values, memory.scales,
                    memory.count);
        else
            ZD_TRY(optim_device()->lane_clear(
                    (enum optim_lane)lane, format, memory.values, memory.scales,
                    memory.count));
        done += memory.count;
    }
    return ZD_OK;
}

enum zd_status states_clear(struct zero *zero)
{
    size_t bytes = zero->plan->block_count * sizeof *zero->block_v;
    for (int id = 0; id < zero->plan->request.table->count; id++)
        zero->began[id] = 0;
    for (int i = 0; i < zero->extent_count; i++)
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            ZD_TRY(clear_lane(zero, &zero->extents[i], lane));
    if (!bytes)
        return ZD_OK;
    if (!zero->plan->states_on_host)
        return device_clear(zero->block_v, bytes);
    memset(zero->block_v, 0, bytes);
    return ZD_OK;
}

/* Element `offset` of the segment in an array that begins where this rank's
 * states do. */
static char *state_element(
        const struct zero *zero, const struct extent_memory *extent, void *base,
        enum dtype type)
{
    size_t begin = zero->memory[extent->at.segment].state_begin;
    return (char *)base +
           (extent->at.extent.offset - begin) * dtype_bytes(type);
}

/* This rank's kept gradient of an extent, of plan->grad_dtype. */
static const void *states_grad(
        const struct zero *zero, const struct extent_memory *extent)
{
    const struct segment_memory *memory = &zero->memory[extent->at.segment];
    return state_element(
            zero, extent,
            zero->plan->states_cut ? memory->grad_part : memory->grad_full,
            zero->plan->grad_dtype);
}

int64_t zero_began(const struct zero *zero, int id)
{
    return zero->began[id];
}

void zero_set_began(struct zero *zero, int id, int64_t applied_steps)
{
    zero->began[id] = applied_steps;
}

/* --- Adam-mini's blocks --------------------------------------------------- */

static bool has_blocks(const struct extent_memory *extent)
{
    return extent->at.layout.lane[OPTIM_V] == OPTIM_BLOCKS;
}

static enum zd_status add_block_sums(
        struct zero *zero, const struct extent_memory *extent)
{
    const struct zero_plan *plan = zero->plan;
    const struct zero_extent *at = &extent->at.extent;
    return optim_device()->add_block_sums(
            zero->block_sums + 2 * plan->places[at->id].blocks,
            &plan->request.table->params[at->id].blocks,
            states_grad(zero, extent), plan->grad_dtype, at->begin,
            plan_counted(plan, extent->at.segment, at), zero->norm);
}

bool states_count(const struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    return plan->states_cut || plan->request.mesh.tp == 1 || zero->part == 0;
}

/* This rank's share of the sums: of its part where states are cut, else of the
 * whole gradient. */
static enum zd_status sum_blocks(struct zero *zero)
{
    size_t bytes = 2 * zero->plan->block_count * sizeof *zero->block_sums;
    if (zero->plan->states_on_host) {
        memset(zero->block_sums, 0, bytes);
        return offload_block_sums(
                zero->offload.engine, zero->offload.extent_sums, zero->norm);
    }
    ZD_TRY(device_clear(zero->block_sums, bytes));
    for (int i = 0; i < zero->extent_count; i++)
        if (has_blocks(&zero->extents[i]) && states_count(zero))
            ZD_TRY(add_block_sums(zero, &zero->extents[i]));
    return ZD_OK;
}

/* The host sums over ranks, so device sums are copied down and up: a second
 * wait per step for Adam-mini with several ranks. */
static enum zd_status reduce_blocks(struct zero *zero)
{
    size_t words = 2 * zero->plan->block_count;
    size_t bytes = words * sizeof *zero->block_words;
    if (!zero->block_words)
        return comm_all_reduce_i64(
                zero->comm, zero->block_sums, words, COMM_SUM);
    ZD_TRY(device_read(zero->block_words, zero->block_sums, bytes));
    ZD_TRY(comm_all_reduce_i64(zero->comm, zero->block_words, words, COMM_SUM));
    return device_write(zero->block_sums, zero->block_words, bytes);
}

/* The new v of every block, on every rank. */
static enum zd_status update_blocks(
        struct zero *zero, const struct optim_step *step)
{
    const struct zero_plan *plan = zero->plan;
    const struct param_table *table = plan->request.table;
    ZD_TRY(sum_blocks(zero));
    if (plan_sums_blocks(plan))
        ZD_TRY(reduce_blocks(zero));
    for (int id = 0; id < table->count; id++) {
        size_t first = plan->places[id].blocks;
        if (zero_layout_of(plan, id).lane[OPTIM_V] != OPTIM_BLOCKS)
            continue;
        float *v = zero->block_v + first;
        const int64_t *sums = zero->block_sums + 2 * first;
        const struct tensor_blocks *blocks =
                param_whole_blocks(&table->params[id]);
        if (plan->states_on_host)
            optim_update_blocks(v, sums, blocks, step, zero->norm);
        else
            ZD_TRY(optim_device()->update_blocks(
                    v, sums, blocks, step, zero->norm));
    }
    return ZD_OK;
}

/* --- the update ----------------------------------------------------------- */

struct optim_span states_span(
        const struct zero *zero, const struct extent_memory *extent,
        size_t begin, size_t count)
{
    const struct zero_plan *plan = zero->plan;
    const struct zero_extent *at = &extent->at.extent;
    const struct segment_memory *memory = &zero->memory[extent->at.segment];
    const struct param *param = &plan->request.table->params[at->id];
    void *params = plan->states_cut ? memory->part : memory->full;
    struct optim_span span = {
            .master_type = plan_master_type(plan),
            .grad_type = plan->grad_dtype,
            .param_type = plan->request.dtype,
            .layout = extent->at.layout,
            .begin = at->begin + begin,
            .count = count,
            .tensor = extent->tensor,
            .decays = param->decays,
            .rate = param->learning_rate,
            .began = zero->began[at->id]};
    span.master =
            state_element(zero, extent, memory->master, span.master_type) +
            begin * dtype_bytes(span.master_type);
    span.grad = (const char *)states_grad(zero, extent) +
                begin * dtype_bytes(span.grad_type);
    if (plan_has_master(plan))
        span.param = state_element(zero, extent, params, span.param_type) +
                     begin * dtype_bytes(span.param_type);
    if (has_blocks(extent)) {
        span.block_v = zero->block_v + plan->places[at->id].blocks;
        span.blocks = &param->blocks;
    }
    return span;
}

enum zd_status states_update_resident(
        const struct zero *zero, const struct extent_memory *extent,
        const struct optim_step *step)
{
    size_t spilled = extent->at.spilled;
    size_t count = extent->at.extent.count - spilled;
    struct optim_span span = states_span(zero, extent, spilled, count);
    span.lanes = extent->lanes;
    return count ? optim_device()->update(&span, step) : ZD_OK;
}

enum zd_status zero_update(struct zero *zero, const struct optim_step *step)
{
    if (zero->plan->block_count)
        ZD_TRY(update_blocks(zero, step));
    if (zero->plan->states_on_host)
        return host_update(zero, step);
    if (zero->paged.chunk_count)
        return paged_update(zero, step);
    for (int i = 0; i < zero->extent_count; i++)
        ZD_TRY(states_update_resident(zero, &zero->extents[i], step));
    return ZD_OK;
}
