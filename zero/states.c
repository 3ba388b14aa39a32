#include "zero/private.h"

#include <stdlib.h>
#include <string.h>

/* --- the update ----------------------------------------------------------- */

static void *at(void *base, size_t index, enum dtype type)
{
    return base ? (char *)base + index * dtype_bytes(type) : NULL;
}

static void update_run(
        struct zero *zero, int s, const struct zero_run *run,
        const struct adamw_step *step)
{
    const struct zero_plan *plan = zero->plan;
    struct segment_memory *memory = &zero->memory[s];
    enum dtype type = plan->request.dtype;
    int64_t tile = plan->request.options.sub_group_size;
    size_t limit = tile > 0 ? (size_t)tile : run->count;
    /* the state and the kept gradient begin where this rank's part does */
    size_t index = run->offset - memory->state_begin;
    void *params = plan->states_cut ? memory->shard : memory->full;
    void *grads = plan->states_cut ? memory->grad_shard : memory->grad_full;
    for (size_t done = 0; done < run->count; done += limit, index += limit) {
        struct adamw_span span = {
                .master = memory->master + index,
                .m = memory->m + index,
                .v = memory->v + index,
                .grad = at(grads, index, plan->grad_dtype),
                .grad_type = plan->grad_dtype,
                .param = type == DTYPE_FP32 ? NULL : at(params, index, type),
                .param_type = type,
                .count = run->count - done < limit ? run->count - done : limit,
                .decays = plan->request.table->params[run->id].decays};
        optim_adamw(&span, step);
    }
}

enum zd_status zero_update(struct zero *zero, const struct adamw_step *step)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        const struct segment_memory *memory = &zero->memory[s];
        struct zero_run run = {.id = -1};
        if (!plan->segments[s].trainable)
            continue;
        while (zero_run_next(
                plan, s, memory->state_begin,
                memory->state_begin + memory->state_count, &run))
            update_run(zero, s, &run, step);
    }
    return ZD_OK;
}

/* --- ranges --------------------------------------------------------------- */

static struct zero_range range_of(
        const struct zero *zero, int s, const struct zero_run *run)
{
    const struct zero_plan *plan = zero->plan;
    const struct zero_segment *segment = &plan->segments[s];
    const struct segment_memory *memory = &zero->memory[s];
    size_t in_shard = run->offset - (size_t)zero->rank * segment->shard_count;
    size_t in_state =
            segment->trainable ? run->offset - memory->state_begin : in_shard;
    struct zero_range range = {
            .id = run->id,
            .begin = run->begin,
            .count = run->count,
            .frozen_type = plan->request.dtype};
    if (memory->master)
        range.master = memory->master + in_state;
    else
        range.frozen = at(memory->shard, in_shard, plan->request.dtype);
    if (memory->m) {
        range.m = memory->m + in_state;
        range.v = memory->v + in_state;
    }
    return range;
}

/* Every tensor's part in this rank's shards; also at stage 0, where a rank has
 * all of it but saves its 1/N. */
static int list_ranges(const struct zero *zero, struct zero_range *ranges)
{
    const struct zero_plan *plan = zero->plan;
    int count = 0;
    for (int s = 0; s < plan->segment_count; s++) {
        size_t begin = (size_t)zero->rank * plan->segments[s].shard_count;
        size_t end = begin + plan->segments[s].shard_count;
        struct zero_run run = {.id = -1};
        while (zero_run_next(plan, s, begin, end, &run)) {
            if (ranges)
                ranges[count] = range_of(zero, s, &run);
            count++;
        }
    }
    return count;
}

enum zd_status ranges_create(struct zero *zero)
{
    zero->range_count = list_ranges(zero, NULL);
    zero->ranges = calloc((size_t)zero->range_count + 1, sizeof *zero->ranges);
    if (!zero->ranges)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory listing shards");
    list_ranges(zero, zero->ranges);
    return ZD_OK;
}

int zero_range_count(const struct zero *zero)
{
    return zero->range_count;
}

struct zero_range zero_range_at(const struct zero *zero, int i)
{
    return zero->ranges[i];
}

/* Round into the parameters of range i from `begin` on: `ranges[i].frozen`
 * points into this rank's own memory, and is const only for those who save. */
static void set_frozen(
        const struct zero *zero, int i, size_t begin, const float *values,
        size_t count)
{
    const struct zero_range *range = &zero->ranges[i];
    char *out = (char *)(uintptr_t)range->frozen;
    dtype_convert(
            out + begin * dtype_bytes(range->frozen_type), range->frozen_type,
            values, DTYPE_FP32, count);
}

void zero_range_set_frozen(struct zero *zero, int i, const float *values)
{
    set_frozen(zero, i, 0, values, zero->ranges[i].count);
}

/* --- parameters from masters ---------------------------------------------- */

/* This rank's shard of compute-type parameters, rounded from its masters. */
static void round_shard(struct zero *zero, int s)
{
    const struct zero_plan *plan = zero->plan;
    const struct zero_segment *segment = &plan->segments[s];
    const struct segment_memory *memory = &zero->memory[s];
    if (!memory->master || plan->request.dtype == DTYPE_FP32)
        return;
    size_t begin = segment->trainable && !plan->states_cut
                           ? (size_t)zero->rank * segment->shard_count
                           : 0;
    dtype_convert(
            memory->shard, plan->request.dtype, memory->master + begin,
            DTYPE_FP32, segment->shard_count);
}

/* Stage 0: every rank's part of an fp32 state, to all. */
static enum zd_status gather_state(
        struct zero *zero, float *state, size_t count)
{
    uint64_t ticket;
    ZD_TRY(ops_all_gather(
            &zero->ops, state + (size_t)zero->rank * count, state, count,
            DTYPE_FP32, &ticket));
    return ops_wait(&zero->ops, ticket);
}

static enum zd_status gather_states(struct zero *zero, bool moments)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        size_t count = plan->segments[s].shard_count;
        struct segment_memory *memory = &zero->memory[s];
        if (!memory->m) /* frozen, or not training */
            continue;
        if (plan->request.dtype != DTYPE_FP32)
            ZD_TRY(gather_state(zero, memory->master, count));
        if (moments) {
            ZD_TRY(gather_state(zero, memory->m, count));
            ZD_TRY(gather_state(zero, memory->v, count));
        }
    }
    return ZD_OK;
}

static enum zd_status spread(struct zero *zero, bool moments)
{
    const struct zero_plan *plan = zero->plan;
    ZD_TRY(ops_wait_all(&zero->ops));
    for (int s = 0; s < plan->segment_count; s++)
        round_shard(zero, s);
    if (!plan->states_cut && zero->world > 1)
        ZD_TRY(gather_states(zero, moments));
    return params_gather(zero, true);
}

enum zd_status zero_ranges_loaded(struct zero *zero)
{
    return spread(zero, true);
}

/* --- loading -------------------------------------------------------------- */

/* Through a buffer of fp32, for a range that has no master. */
static enum zd_status load_frozen(
        struct zero *zero, int i, const struct weight_source *source,
        float *buffer, size_t limit)
{
    const struct zero_range *range = &zero->ranges[i];
    for (size_t done = 0; done < range->count; done += limit) {
        size_t count =
                range->count - done < limit ? range->count - done : limit;
        ZD_TRY(source->read(
                source->ctx, range->id, range->begin + done, count, buffer));
        set_frozen(zero, i, done, buffer, count);
    }
    return ZD_OK;
}

static enum zd_status load_ranges(
        struct zero *zero, const struct weight_source *source)
{
    enum { LIMIT = 1 << 18 };
    float *buffer = malloc(LIMIT * sizeof *buffer);
    enum zd_status status = ZD_OK;
    if (!buffer)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory loading weights");
    for (int i = 0; i < zero->range_count && status == ZD_OK; i++) {
        const struct zero_range *range = &zero->ranges[i];
        if (range->master)
            status = source->read(
                    source->ctx, range->id, range->begin, range->count,
                    range->master);
        else
            status = load_frozen(zero, i, source, buffer, LIMIT);
    }
    free(buffer);
    return status;
}

enum zd_status zero_load(struct zero *zero, const struct weight_source *source)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        struct segment_memory *memory = &zero->memory[s];
        if (!memory->m)
            continue;
        memset(memory->m, 0, memory->state_count * sizeof(float));
        memset(memory->v, 0, memory->state_count * sizeof(float));
    }
    /* a file that one rank cannot read must not leave the others in a gather */
    enum zd_status status = load_ranges(zero, source);
    ZD_TRY(comm_agree(zero->comm, status));
    return spread(zero, false);
}
