#include "zero/plan_parts.h"

#include "base/device/lease.h"
#include "base/must.h"
#include "base/number/sizes.h"
#include "model/slice.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Sizes default to 0 (automatic): with DeepSpeed's defaults, made for billions
 * of parameters, a small model would stay gathered, with whole gradients, at
 * every stage. */
struct zero_options zero_options_default(void)
{
    return (struct zero_options){
            .stage = 3,
            .overlap_comm = true,
    };
}

/* --- segments ------------------------------------------------------------- */

/* With tensor parallelism every place has WHOLE tensors, and the end of a MIXED
 * one. */
enum kind { SHARDED, WHOLE, MIXED, FROZEN, CODES, SCALES, KINDS };
/* A unit has at most one segment of each kind, gathered into its slot with a
 * token of the slot's lease. */
_Static_assert((int)KINDS <= (int)LEASE_TOKENS, "a token for each");

static enum kind kind_of(const struct zero_plan *plan, int id)
{
    if (param_is_quantized(plan->request.table, id))
        return CODES;
    const struct param *param = &plan->request.table->params[id];
    size_t own =
            plan->request.mesh.tp > 1 ? param_own_count(param) : param->count;
    return !param->trainable     ? FROZEN
           : own == param->count ? SHARDED
           : own                 ? MIXED
                                 : WHOLE;
}

/* The format in which the model reads a segment's parameters. */
static struct array_format format_of(
        const struct zero_plan *plan, enum kind kind)
{
    enum dtype type = plan->request.dtype;
    return kind == CODES
                   ? array_format_codes(
                             type, param_codes_packed(plan->request.table))
           : kind == SCALES ? array_format_codes(type, 1)
                            : array_format_plain(type);
}

/* Place tensor `id`, or its scales, in a segment of this kind. */
static void place_tensor(
        struct zero_plan *plan, enum kind kind, int id, size_t align,
        size_t *used)
{
    const struct param_table *table = plan->request.table;
    struct zero_place *place = &plan->places[id];
    size_t offset = size_round_up(*used, align);
    if (kind == SCALES) {
        place->scales_segment = plan->segment_count;
        place->scales = offset;
        *used = offset + param_scale_bytes(table, id);
        return;
    }
    *place = (struct zero_place){
            .segment = plan->segment_count,
            .offset = offset,
            .scales_segment = -1};
    *used = offset + table->params[id].count;
}

/* The tensors of one kind in one unit, one after the other. */
static void add_segment(struct zero_plan *plan, int unit, enum kind kind)
{
    static const enum zero_array array_of[KINDS] = {
            [FROZEN] = ZERO_FROZEN,
            [CODES] = ZERO_CODES,
            [SCALES] = ZERO_SCALES};
    const struct param_table *table = plan->request.table;
    struct zero_segment segment = {
            .unit = unit,
            .trainable = kind <= MIXED,
            .array = array_of[kind],
            .format = format_of(plan, kind)};
    size_t shards = (size_t)plan->shards, replicas = (size_t)plan->replicas;
    size_t parts = shards * replicas;
    /* a multiple of ZERO_ALIGN bytes of codes, aligned like other values */
    size_t align = ZERO_ALIGN *
                   (size_t)(segment.format.packed ? segment.format.packed : 1);
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (kind_of(plan, id) == (kind == SCALES ? CODES : kind)) {
            assert(kind != MIXED || !segment.used);
            place_tensor(plan, kind, id, align, &segment.used);
            segment.own = kind == WHOLE   ? 0
                          : kind == MIXED ? param_own_count(&table->params[id])
                                          : segment.used;
        }
    if (!segment.used)
        return;
    if (zero_is_shared(&segment)) /* each place sums a share of the part */
        align *= (size_t)plan->request.mesh.tp;
    segment.part_count = size_round_up(segment.used, parts * align) / parts;
    segment.shard_count = replicas * segment.part_count;
    segment.count = shards * segment.shard_count;
    plan->segments[plan->segment_count++] = segment;
}

static void place_segments(struct zero_plan *plan)
{
    ZD_EACH(segment, plan->segments, plan->segment_count) {
        size_t *full = &plan->full_bytes[segment->array];
        size_t *shard = &plan->shard_bytes[segment->array];
        segment->full_offset = *full;
        segment->shard_offset = *shard;
        *full += zero_segment_bytes(segment, segment->count);
        *shard += zero_segment_bytes(segment, segment->shard_count);
        if (!segment->trainable)
            continue;
        segment->state_full_offset = plan->trainable_count;
        segment->state_shard_offset = plan->trainable_shard;
        plan->trainable_count += segment->count;
        plan->trainable_shard += segment->shard_count;
    }
}

static void plan_segments(struct zero_plan *plan)
{
    const struct param_table *table = plan->request.table;
    size_t units = (size_t)table->unit_count;
    plan->segments = zd_array(units * KINDS, sizeof *plan->segments);
    plan->places = zd_array((size_t)table->count, sizeof *plan->places);
    plan->unit_segments = zd_array(units + 1, sizeof *plan->unit_segments);
    for (int unit = 0; unit < table->unit_count; unit++) {
        for (int kind = 0; kind < KINDS; kind++)
            add_segment(plan, unit, (enum kind)kind);
        plan->unit_segments[unit + 1] = plan->segment_count;
    }
    place_segments(plan);
}

struct plan_unit plan_unit_of(const struct zero_plan *plan, int unit)
{
    struct plan_unit sum = {0};
    for (ZERO_EACH(s, plan, unit)) {
        const struct zero_segment *segment = &plan->segments[s];
        sum.bytes += zero_segment_bytes(segment, segment->count);
        sum.count += segment->array == ZERO_SCALES ? 0 : segment->count;
        sum.grads += segment->trainable ? segment->count : 0;
    }
    return sum;
}

unsigned zero_joined(const struct zero_plan *plan)
{
    const struct param_table *table = plan->request.table;
    size_t most = param_most_in_codes(table);
    unsigned joined = 0, apart = 0;
    for (int id = 1; id < table->count; id++) {
        const struct zero_place *place = &plan->places[id];
        const struct zero_place *before = place - 1;
        joined |= table->params[id].joins;
        if (param_is_quantized(table, id)) {
            if (param_joined_count(table, id) > most)
                apart |= table->params[id].joins;
            continue;
        }
        if (place->segment != before->segment ||
            place->offset != before->offset + table->params[id - 1].count)
            apart |= table->params[id].joins;
    }
    return joined & ~apart;
}

bool zero_extent_next(
        const struct zero_plan *plan, int segment, size_t begin, size_t end,
        struct zero_extent *extent)
{
    const struct param_table *table = plan->request.table;
    int unit = plan->segments[segment].unit;
    int id = extent->id < 0 ? table->unit_first[unit] : extent->id + 1;
    for (; id < table->unit_first[unit + 1]; id++) {
        if (plan->places[id].segment != segment)
            continue;
        size_t first = plan->places[id].offset;
        size_t last = first + table->params[id].count;
        size_t from = first > begin ? first : begin;
        size_t to = last < end ? last : end;
        if (from >= to)
            continue;
        *extent = (struct zero_extent){
                .id = id,
                .begin = from - first,
                .offset = from,
                .count = to - from};
        return true;
    }
    return false;
}

/* --- the wire ------------------------------------------------------------- */

uint64_t zero_scalar_bytes(int world)
{
    return (uint64_t)(world - 1) * (ZERO_STEP_COUNTS + ZERO_NORM_WORDS) *
           sizeof(int64_t);
}

struct comm_counters zero_wire_sum(const struct zero_wire *wire)
{
    struct comm_counters sum = {{0}};
    for (int g = 0; g < ZERO_GROUPS; g++)
        for (int i = 0; i < COMM_COUNTERS; i++)
            sum.bytes[i] += wire->group[g].bytes[i];
    return sum;
}

/* Bytes sent by one collective of a group over this many bytes (padded) of a
 * whole segment, or of a shard of it between replicas. */
static uint64_t sent(
        const struct zero_plan *plan, enum zero_group group, size_t bytes)
{
    uint64_t shards = (uint64_t)plan->shards;
    uint64_t replicas = (uint64_t)plan->replicas;
    return group == ZERO_SHARD ? bytes / shards * (shards - 1)
                               : bytes / shards / replicas * (replicas - 1);
}

/* All-gathers of the units as the program has them. */
static uint64_t moves_sent(const struct zero_plan *plan, enum zero_group group)
{
    uint64_t bytes = 0;
    ZD_EACH(move, plan->train_moves, plan->train_move_count)
        if (move->gather)
            bytes += sent(plan, group, plan_unit_of(plan, move->unit).bytes);
    return bytes;
}

uint64_t plan_shared_bytes(const struct zero_plan *plan)
{
    uint64_t bytes = 0;
    for (int s = 0; s < plan->segment_count; s++)
        if (zero_is_shared(&plan->segments[s]))
            bytes += plan->segments[s].part_count *
                     dtype_bytes(plan->grad_dtype);
    return bytes;
}

/* Bytes of tokens and scores of all micro-batches, and of the shared parts'
 * sums, which are made as often as sums over replicas. */
static void plan_tp_wire(struct zero_plan *plan)
{
    const struct zero_request *request = &plan->request;
    const struct model_exchange *moved = &request->exchange;
    uint64_t *wire = plan->wire.group[ZERO_TP].bytes;
    uint64_t others = (uint64_t)request->mesh.tp - 1;
    uint64_t turns = (uint64_t)request->accumulation, micros = turns;
    uint64_t sums = plan_shared_bytes(plan) / (others + 1) * others *
                    (plan->grads_pass ? turns : 1);
    if (request->by_layer)
        micros *= (uint64_t)request->by_layer;
    wire[COMM_REDUCE_SCATTER] = micros * others * moved->scattered + sums;
    wire[COMM_ALL_GATHER] =
            micros * others * (moved->gathered + moved->scores) + sums;
}

static void plan_cp_wire(struct zero_plan *plan)
{
    const struct zero_request *request = &plan->request;
    uint64_t *wire = plan->wire.group[ZERO_CP].bytes;
    uint64_t sent =
            (uint64_t)request->accumulation * ((uint64_t)request->mesh.cp - 1);
    if (request->by_layer)
        sent *= (uint64_t)request->by_layer;
    wire[COMM_REDUCE_SCATTER] = sent * request->exchange.kv_scattered;
    wire[COMM_ALL_GATHER] = sent * request->exchange.kv_gathered;
    wire[COMM_ALL_TO_ALL] = sent * request->exchange.heads;
}

static void plan_wire(struct zero_plan *plan)
{
    const struct zero_request *request = &plan->request;
    size_t all = plan->trainable_count * dtype_bytes(plan->grad_dtype);
    const bool in_every_micro[] = {
            [ZERO_SHARD] = plan->grads_cut,
            [ZERO_REPLICATE] = plan->grads_pass};
    const bool follow_program[] = {
            [ZERO_SHARD] = plan->params_cut,
            [ZERO_REPLICATE] = plan->params_on_host};
    if (!request->train)
        return;
    plan->wire.group[ZERO_WORLD].bytes[COMM_ALL_REDUCE] =
            zero_scalar_bytes(request->mesh.world) + plan_block_wire(plan);
    plan_tp_wire(plan);
    plan_cp_wire(plan);
    for (enum zero_group g = ZERO_SHARD; g < ZERO_CUTS; g++) {
        uint64_t *wire = plan->wire.group[g].bytes;
        uint64_t grads = sent(plan, g, all);
        wire[COMM_REDUCE_SCATTER] =
                in_every_micro[g] ? grads * (uint64_t)request->accumulation
                                  : grads;
        wire[COMM_ALL_GATHER] =
                !plan->states_cut ? grads
                : follow_program[g]
                        ? moves_sent(plan, g)
                        : sent(plan, g, plan->full_bytes[ZERO_TRAINED]);
    }
}

/* The largest share of a rank in any collective, in those that sum, and in
 * those that accumulate. */
static void note_tokens(const struct zero_plan *plan, struct comm_needs *needs)
{
    const struct model_exchange *moved = &plan->request.exchange;
    size_t tp = (size_t)plan->request.mesh.tp, reduced = 0;
    for (int s = 0; s < plan->segment_count; s++)
        if (zero_is_shared(&plan->segments[s]))
            reduced = size_max(
                    reduced, plan->segments[s].part_count / tp *
                                     dtype_bytes(plan->grad_dtype));
    needs->reduce_bytes = size_max(reduced, moved->largest_share);
    needs->shard_bytes = size_max(needs->reduce_bytes, moved->largest_scores);
}

static void note_keys(const struct zero_plan *plan, struct comm_needs *needs)
{
    needs->shard_bytes = plan->request.exchange.largest_kv;
    needs->reduce_bytes = needs->shard_bytes;
    needs->exchange_bytes = plan->request.exchange.largest_heads;
}

static void note_collectives(
        const struct zero_plan *plan, enum zero_group group,
        struct comm_needs *needs)
{
    bool is_shard = group == ZERO_SHARD;
    size_t grad = dtype_bytes(plan->grad_dtype);
    bool adds = is_shard && plan->grads_cut && !plan->grads_pass &&
                plan->grad_dtype == DTYPE_FP32;
    ZD_EACH(segment, plan->segments, plan->segment_count) {
        size_t count = is_shard ? segment->shard_count : segment->part_count;
        size_t reduced = segment->trainable ? count * grad : 0;
        size_t sent = size_max(zero_segment_bytes(segment, count), reduced);
        needs->shard_bytes = size_max(needs->shard_bytes, sent);
        needs->reduce_bytes = size_max(needs->reduce_bytes, reduced);
        if (adds)
            needs->accumulate_bytes =
                    size_max(needs->accumulate_bytes, reduced);
    }
}

bool zero_comm_needs(
        const struct zero_plan *plan, enum zero_group group,
        struct comm_needs *needs)
{
    struct mesh mesh = plan->request.mesh;
    int size = zero_group_size(mesh, group);
    bool is_world = group == ZERO_WORLD;
    if (!is_world && (size == 1 || zero_group_is_world(mesh, group)))
        return false;
    needs->name = is_world ? NULL : zero_group_name(group);
    needs->world = size;
    needs->shard_bytes = needs->reduce_bytes = needs->accumulate_bytes = 0;
    needs->exchange_bytes = 0;
    for (enum zero_group g = ZERO_SHARD; g < ZERO_WORLD; g++) {
        if (is_world ? !zero_group_is_world(mesh, g) : g != group)
            continue;
        if (g < ZERO_CUTS)
            note_collectives(plan, g, needs);
        else if (g == ZERO_TP)
            note_tokens(plan, needs);
        else
            note_keys(plan, needs);
    }
    return true;
}

/* --- building ------------------------------------------------------------- */

static enum zd_status build(struct zero_plan *plan)
{
    const struct zero_request *request = &plan->request;
    int stage = request->options.stage;
    bool many = mesh_parts(request->mesh) > 1, cuts = plan->shards > 1;
    ZD_TRY(plan_offload(plan));
    plan->params_cut = (stage >= 3 && cuts) || plan->params_on_host;
    plan->grads_cut = cuts && (stage >= 2 || (stage == 1 && plan->grads_pass));
    plan->states_cut = stage >= 1 && many;
    bool in_fp32 = request->accumulation > 1 || request->by_layer ||
                   (many && request->reduce_fp32);
    plan->grad_dtype = in_fp32 ? DTYPE_FP32 : request->dtype;
    plan->grads_direct = plan->grad_dtype != DTYPE_FP32;
    plan_segments(plan);
    plan->undo_first = plan->segment_count;
    if (request->train) {
        plan_blocks(plan);
        plan_grads(plan);
    }
    if (plan->params_cut)
        ZD_TRY(plan_program(plan));
    plan_wire(plan);
    if (request->train)
        plan_measure(plan);
    return ZD_OK;
}

enum zd_status zero_plan_build(
        const struct zero_request *request, struct zero_plan *plan_out)
{
    ZD_SCOPED(zero_plan_fini)
    struct zero_plan plan = {
            .request = *request,
            .shards = mesh_group(request->mesh, MESH_SHARD, 0).size,
            .replicas = mesh_group(request->mesh, MESH_REPLICATE, 0).size};
    ZD_TRY(build(&plan));
    plan.request.measures = NULL;
    *plan_out = ZD_TAKE(plan);
    return ZD_OK;
}

void zero_plan_fini(struct zero_plan *plan)
{
    if (!plan)
        return;
    free(plan->segments);
    free(plan->places);
    free(plan->unit_segments);
    free(plan->slots);
    free(plan->train_moves);
    free(plan->eval_moves);
    free(plan->grad_units);
    free(plan->work_offsets);
    free(plan->passing_offsets);
    memset(plan, 0, sizeof *plan);
}

/* --- spans ---------------------------------------------------------------- */

enum zd_status plan_span(
        struct arena_plan *arena, const char *name, enum arena_memory memory,
        enum span_kind kind, size_t count, size_t element_bytes)
{
    size_t bytes;
    if (!count)
        return ZD_OK;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        return ZD_FAIL(ZD_ERR_UNFIT, "E0603", "span %s is too large", name);
    return arena_plan_add(arena, name, memory, kind, bytes);
}

static enum zd_status add(
        struct arena_plan *arena, const char *name, enum span_kind kind,
        size_t count, size_t element_bytes)
{
    return plan_span(arena, name, ARENA_DEVICE, kind, count, element_bytes);
}

/* Parameters that are copied to the device need pinned memory; the offload
 * engine then owns the trainable ones. */
static enum zd_status add_params(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    const size_t *held =
            plan->params_cut ? plan->shard_bytes : plan->full_bytes;
    bool on_host = plan->params_on_host;
    size_t slots = 0;
    for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++)
        slots += plan->slots[s].bytes;
    for (enum zero_array a = ZERO_TRAINED; a < ZERO_ARRAYS; a++)
        if (a != ZERO_TRAINED || !on_host)
            ZD_TRY(plan_span(
                    arena, plan_array_name(a),
                    on_host ? ARENA_PINNED : ARENA_DEVICE, SPAN_PARAMS, held[a],
                    1));
    return add(arena, "zero.params.slots", SPAN_BUFFERS, slots, 1);
}

/* Elements of a MIXED segment's part that a place saves while the rest is
 * summed. */
static size_t own_count(const struct zero_plan *plan)
{
    size_t most = 0;
    for (int s = 0; s < plan->segment_count; s++)
        if (zero_is_shared(&plan->segments[s]))
            most = size_max(
                    most, zero_own(
                                  &plan->segments[s], 0,
                                  plan->segments[s].part_count));
    return most;
}

static enum zd_status add_grads(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    size_t grads =
            plan->grads_cut ? plan->trainable_shard : plan->trainable_count;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    if (!plan->grads_pass)
        ZD_TRY(add(arena, "zero.grads", SPAN_GRADS, grads, bytes));
    ZD_TRY(
            add(arena, "zero.grads.work", SPAN_BUFFERS, plan->work_count,
                sizeof(float)));
    ZD_TRY(add(arena, "zero.grads.own", SPAN_BUFFERS, own_count(plan), bytes));
    return add(
            arena, "zero.grads.passing", SPAN_BUFFERS, plan->passing_count,
            bytes);
}

enum zd_status zero_plan_spans(
        const struct zero_plan *plan, struct arena_plan *arena)
{
    ZD_TRY(add_params(plan, arena));
    if (!plan->request.train)
        return ZD_OK;
    ZD_TRY(add_grads(plan, arena));
    ZD_TRY(plan_state_spans(plan, arena));
    return plan->states_on_host ? offload_plan_spans(plan->needs.offload, arena)
                                : ZD_OK;
}
