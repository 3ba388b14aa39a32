#include "zero/private.h"

#include <assert.h>
#include <string.h>

/* --- shards from replicas, full segments from shards ---------------------- */

/* A segment's parameters: `full` from all ranks' shards, or a shard from its
 * parts. */
static enum zd_status gather_segment(
        struct zero *zero, int s, enum zero_group group, const void *mine,
        void *all, struct token *begun_out)
{
    const struct zero_segment *segment = &zero->plan->segments[s];
    struct comm_op gather = {
            .kind = COMM_ALL_GATHER,
            .from = mine,
            .to = all,
            .count = zero_count_of(segment, group),
            .type = segment->format.type};
    if (segment->array >= ZERO_CODES) { /* bytes, sent as 4-byte elements */
        gather.count =
                zero_segment_bytes(segment, gather.count) / sizeof(float);
        gather.type = DTYPE_FP32;
    }
    return comm_queue(zero->groups[group], &gather, begun_out);
}

/* Is the segment gathered after each update? Not at stage 0, where every rank
 * updates all of it; at stage 3 units are gathered from shards when they are
 * used, and parameters on the host from parts. */
static bool is_gathered(const struct zero *zero, int s, enum zero_group group)
{
    const struct zero_plan *plan = zero->plan;
    const struct segment_memory *memory = &zero->memory[s];
    return zero_has(zero, group) && plan->states_cut &&
           plan->segments[s].trainable && plan->request.train &&
           (group == ZERO_SHARD ? memory->full : memory->part);
}

static enum zd_status gather_wait(
        struct zero *zero, int s, enum zero_group group)
{
    struct token gather = zero->gathers[group][s];
    if (!gather.number)
        return ZD_OK;
    zero->gathers[group][s] = (struct token){0};
    return token_wait(NULL, gather);
}

static enum zd_status gather_begin(
        struct zero *zero, int s, enum zero_group group)
{
    const struct segment_memory *memory = &zero->memory[s];
    bool is_shard = group == ZERO_SHARD;
    ZD_TRY(host_segment_wait(zero, s));
    ZD_TRY(gather_segment(
            zero, s, group, is_shard ? memory->shard : memory->part,
            is_shard ? memory->full : memory->shard, &zero->gathers[group][s]));
    return zero->plan->request.options.overlap_comm
                   ? ZD_OK
                   : gather_wait(zero, s, group);
}

/* This rank's shard of a segment is complete and includes the last update. */
static enum zd_status shard_ready(struct zero *zero, int s)
{
    int *next = &zero->next_gathered[ZERO_REPLICATE];
    for (; *next <= s; ++*next)
        if (is_gathered(zero, *next, ZERO_REPLICATE))
            ZD_TRY(gather_begin(zero, *next, ZERO_REPLICATE));
    ZD_TRY(gather_wait(zero, s, ZERO_REPLICATE));
    return host_segment_wait(zero, s);
}

/* --- gathering a unit (stage 3) ------------------------------------------- */

static char *slot_at(const struct zero *zero, int slot)
{
    return zero->slots + zero->plan->slots[slot].offset;
}

/* The unit's segments are contiguous in its slot. With parameters on the host,
 * this rank's part is already there; after the first collective its shard
 * is. */
static enum zd_status gather_unit(
        struct zero *zero, const struct zero_move *move, enum zero_group group)
{
    const struct zero_plan *plan = zero->plan;
    char *out = slot_at(zero, move->slot);
    for (ZERO_EACH(s, plan, move->unit)) {
        const struct zero_segment *segment = &plan->segments[s];
        char *shard = out + zero_segment_bytes(
                                    segment, (size_t)zero->shards.place *
                                                     segment->shard_count);
        char *part = shard + zero_segment_bytes(
                                     segment, (size_t)zero->replicas.place *
                                                      segment->part_count);
        struct token gathered = {0};
        if (group == ZERO_REPLICATE) {
            ZD_TRY(gather_segment(zero, s, group, part, shard, &gathered));
        } else {
            ZD_TRY(shard_ready(zero, s));
            ZD_TRY(gather_segment(
                    zero, s, group,
                    plan->params_on_host ? shard : zero->memory[s].shard, out,
                    &gathered));
        }
        lease_note(&zero->slot_leases[move->slot], gathered);
        out += zero_segment_bytes(segment, segment->count);
    }
    lease_release(&zero->slot_leases[move->slot], (struct token){0});
    return ZD_OK;
}

/* The host's copies up wait until the model has released the slot; collectives
 * begin after the queued work of the compute stream. */
static enum zd_status begin_gather(
        struct zero *zero, const struct zero_move *move)
{
    struct lease *slot = &zero->slot_leases[move->slot];
    bool copies = zero->plan->params_on_host;
    const char *who = copies ? "copies up" : "all_gather";
    if (lease_is(slot, LEASE_READY))
        lease_drop(slot, who);
    if (copies)
        return host_unit_up(
                zero, move->unit, move->slot, slot_at(zero, move->slot));
    ZD_TRY(lease_take(slot, LEASE_FILL, who, NULL));
    return gather_unit(zero, move, ZERO_SHARD);
}

/* Begin the collectives of a group for the moves before `end`. */
static enum zd_status collect(struct zero *zero, enum zero_group group, int end)
{
    int *next = &zero->next_collect[group];
    for (; *next < end; ++*next) {
        const struct zero_move *move = &zero->moves[*next];
        if (!move->gather || !zero_has(zero, group))
            continue;
        ZD_TRY(host_unit_made(zero, move->unit));
        ZD_TRY(lease_take(
                &zero->slot_leases[move->slot], LEASE_CHANGE, "all_gather",
                NULL));
        ZD_TRY(gather_unit(zero, move, group));
    }
    return ZD_OK;
}

/* Parameters on the host, several ranks: begin the collectives over replicas of
 * moves whose copies were queued before this hook call, and those over shards
 * of moves whose replicas were. The position in the program decides, not time,
 * so all ranks have the same order. `urgent`: begin all collectives of the move
 * at `zero->at`, if it gathers. */
static enum zd_status begin_collectives(struct zero *zero, bool urgent)
{
    int whole = zero->next_gather;
    if (!zero->plan->params_on_host)
        return ZD_OK;
    if (zero_has(zero, ZERO_REPLICATE))
        whole = zero->next_collect[ZERO_REPLICATE];
    ZD_TRY(collect(zero, ZERO_SHARD, whole));
    ZD_TRY(collect(zero, ZERO_REPLICATE, zero->next_gather));
    return urgent && zero->next_gather > zero->at
                   ? collect(zero, ZERO_SHARD, zero->at + 1)
                   : ZD_OK;
}

/* Begin gathers, in the order of their use, while they are due after move `i`.
 */
static enum zd_status begin_gathers(struct zero *zero, int i)
{
    while (zero->next_gather < zero->move_count) {
        const struct zero_move *move = &zero->moves[zero->next_gather];
        if (move->gather && move->start > i)
            break;
        if (move->gather)
            ZD_TRY(begin_gather(zero, move));
        zero->next_gather++;
    }
    return ZD_OK;
}

/* The model gets the slot that `move` acquires. */
static enum zd_status lend_slot(struct zero *zero, const struct zero_move *move)
{
    struct lease *slot = &zero->slot_leases[move->slot];
    if (move->gather && zero->plan->params_on_host)
        ZD_TRY(host_unit_made(zero, move->unit));
    ZD_TRY(lease_take(slot, LEASE_READ, "model", NULL));
    lease_settle(slot); /* later users follow the compute stream */
    zero->unit_slots[move->unit] = move->slot;
    return ZD_OK;
}

/* Only copies into the slot must know when the model has released it: they are
 * not on the compute stream. */
static enum zd_status return_slot(struct zero *zero, int unit)
{
    int slot = zero->unit_slots[unit];
    struct token left = {0};
    if (zero->plan->params_on_host)
        ZD_TRY(timeline_record(NULL, &zero->offload.left[slot], &left));
    lease_release(&zero->slot_leases[slot], left);
    return ZD_OK;
}

/* Begin a program: everything gathered so far is stale. */
static enum zd_status start(struct zero *zero, enum model_pass pass)
{
    const struct zero_plan *plan = zero->plan;
    if (!plan->params_cut)
        return ZD_OK;
    bool train = pass == MODEL_TRAIN;
    zero->moves = train ? plan->train_moves : plan->eval_moves;
    zero->move_count = train ? plan->train_move_count : plan->eval_move_count;
    zero->at = 0;
    zero->next_gather = 0;
    memset(zero->next_collect, 0, sizeof zero->next_collect);
    return begin_gathers(zero, -1);
}

enum zd_status zero_step_begin(struct zero *zero)
{
    return start(zero, MODEL_TRAIN);
}

enum zd_status zero_eval_begin(struct zero *zero)
{
    return start(zero, MODEL_EVAL);
}

/* The move that this call of the hooks must be. An evaluation's program
 * restarts by itself: parameters do not change in between. */
static enum zd_status next_move(
        struct zero *zero, int unit, bool acquire,
        const struct zero_move **move_out)
{
    if (zero->at == zero->move_count && zero->moves == zero->plan->eval_moves)
        ZD_TRY(start(zero, MODEL_EVAL));
    const struct zero_move *move = &zero->moves[zero->at];
    assert(zero->at < zero->move_count && "the model follows the plan");
    assert(move->unit == unit && move->acquire == acquire);
    *move_out = move;
    return ZD_OK;
}

/* --- the gather after the update ------------------------------------------ */

/* Begin the gathers of a group before segment `must`, and as far as there is
 * room those before `may`. A shard is complete before it is sent. */
static enum zd_status gather_group(
        struct zero *zero, enum zero_group group, int must, int may)
{
    int *next = &zero->next_gathered[group];
    for (; *next < may; ++*next) {
        if (!is_gathered(zero, *next, group))
            continue;
        if (*next >= must && comm_is_full(zero->groups[group]))
            return ZD_OK;
        if (group == ZERO_SHARD)
            ZD_TRY(shard_ready(zero, *next));
        ZD_TRY(gather_begin(zero, *next, group));
    }
    return ZD_OK;
}

static enum zd_status gather_ahead(struct zero *zero, int must, int may)
{
    ZD_TRY(gather_group(zero, ZERO_REPLICATE, must, may));
    return gather_group(zero, ZERO_SHARD, must, may);
}

static enum zd_status gather_finish(struct zero *zero, int first, int end)
{
    ZD_TRY(gather_ahead(zero, end, end));
    for (int s = first; s < end; s++) {
        ZD_TRY(shard_ready(zero, s));
        ZD_TRY(gather_wait(zero, s, ZERO_SHARD));
    }
    return ZD_OK;
}

/* Gathers begin as far ahead as there is room. Offloaded updates are made in
 * the order of use: beginning the next unit's gather waits for its update, as
 * the compute stream does for a shard gathered from replicas. */
static enum zd_status gather_ready(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    const int *first = &plan->unit_segments[unit], all = plan->segment_count;
    bool is_last = unit + 1 == plan->request.table->unit_count;
    bool is_near = plan->states_on_host || zero_has(zero, ZERO_REPLICATE);
    ZD_TRY(gather_finish(zero, first[0], first[1]));
    if (!plan->states_on_host)
        ZD_TRY(gather_group(zero, ZERO_REPLICATE, 0, all));
    return gather_ahead(zero, 0, !is_near ? all : first[is_last ? 1 : 2]);
}

/* Begins gathers as far as there is room. Acquiring a unit waits for its
 * gathers and begins the following ones. */
enum zd_status zero_gather_params(struct zero *zero)
{
    int end = zero->plan->segment_count;
    memset(zero->next_gathered, 0, sizeof zero->next_gathered);
    if (zero->plan->states_on_host)
        return ZD_OK;
    return zero_has(zero, ZERO_REPLICATE)
                   ? gather_group(zero, ZERO_REPLICATE, 0, end)
                   : gather_group(zero, ZERO_SHARD, 0, end);
}

enum zd_status params_gather_finish(struct zero *zero)
{
    return gather_finish(zero, 0, zero->plan->segment_count);
}

uint64_t params_gather_owed(const struct zero *zero, enum zero_group group)
{
    const struct zero_plan *plan = zero->plan;
    int others = (group == ZERO_SHARD ? plan->shards : plan->replicas) - 1;
    uint64_t bytes = 0;
    for (int s = zero->next_gathered[group]; s < plan->segment_count; s++) {
        const struct zero_segment *segment = &plan->segments[s];
        size_t mine = zero_count_of(segment, group);
        if (is_gathered(zero, s, group))
            bytes += (uint64_t)others * zero_segment_bytes(segment, mine);
    }
    return bytes;
}

/* Frozen segments are gathered once, after loading. */
static enum zd_status gather_frozen(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    struct token begun;
    for (int s = 0; s < plan->segment_count; s++) {
        const struct segment_memory *memory = &zero->memory[s];
        bool trains = plan->segments[s].trainable && plan->request.train;
        if (!memory->full || !zero_has(zero, ZERO_SHARD) || trains)
            continue;
        ZD_TRY(gather_segment(
                zero, s, ZERO_SHARD, memory->shard, memory->full, &begun));
    }
    return comm_finish(zero->groups[ZERO_SHARD]);
}

enum zd_status params_gather(struct zero *zero)
{
    ZD_TRY(gather_frozen(zero));
    ZD_TRY(zero_gather_params(zero));
    return params_gather_finish(zero);
}

/* --- hooks ---------------------------------------------------------------- */

static void point(
        const struct zero *zero, int segment, const char *full,
        const void **params)
{
    const struct zero_plan *plan = zero->plan;
    const struct param_table *table = plan->request.table;
    const struct zero_segment *at = &plan->segments[segment];
    for (int id = table->unit_first[at->unit];
         id < table->unit_first[at->unit + 1]; id++) {
        const struct zero_place *place = &plan->places[id];
        if (place->segment == segment)
            params[id] = full + zero_segment_bytes(at, place->offset);
        if (place->scales_segment == segment)
            params[param_scales(table, id)] =
                    full + zero_segment_bytes(at, place->scales);
    }
}

static void point_unit(
        const struct zero *zero, int unit, const char *gathered,
        const void **params)
{
    const struct zero_plan *plan = zero->plan;
    for (ZERO_EACH(s, plan, unit)) {
        const char *full = zero->memory[s].full;
        if (!full) {
            full = gathered;
            gathered += zero_segment_bytes(
                    &plan->segments[s], plan->segments[s].count);
        }
        point(zero, s, full, params);
    }
}

/* Makes sure that the slot of the next acquired unit holds it. */
static enum zd_status acquire_slot(
        struct zero *zero, int unit, const char **gathered_out)
{
    const struct zero_move *move = NULL;
    ZD_TRY(next_move(zero, unit, true, &move));
    ZD_TRY(begin_collectives(zero, true));
    if (move->gather && zero->next_gather <= zero->at) { /* not prefetched */
        ZD_TRY(begin_gathers(zero, zero->at));
        ZD_TRY(begin_collectives(zero, true));
    }
    if (move->slot >= 0) {
        ZD_TRY(lend_slot(zero, move));
        *gathered_out = slot_at(zero, move->slot);
    }
    return begin_gathers(zero, zero->at++);
}

enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct zero *zero = ctx;
    const struct zero_plan *plan = zero->plan;
    const char *gathered = NULL;
    ZD_TRY(comm_progress(zero->comm));
    ZD_TRY(gather_ready(zero, unit));
    if (plan->params_cut)
        ZD_TRY(acquire_slot(zero, unit, &gathered));
    for (ZERO_EACH(s, plan, unit))
        if (zero->memory[s].full)
            ZD_TRY(host_segment_wait(zero, s));
    point_unit(zero, unit, gathered, params);
    return ZD_OK;
}

enum zd_status params_release(void *ctx, int unit)
{
    struct zero *zero = ctx;
    const struct zero_move *move;
    ZD_TRY(comm_progress(zero->comm));
    if (!zero->plan->params_cut)
        return ZD_OK;
    ZD_TRY(next_move(zero, unit, false, &move));
    if (plan_unit_of(zero->plan, unit).count)
        ZD_TRY(return_slot(zero, unit));
    ZD_TRY(begin_collectives(zero, false));
    return begin_gathers(zero, zero->at++);
}
