#include "base/must.h"
#include "zero/private.h"

#include <assert.h>
#include <stdlib.h>

/* --- layout of segments --------------------------------------------------- */

void *zero_span(const struct zero *zero, const char *name)
{
    return arena_plan_find(zero->arena->plan, name)
                   ? arena_span(zero->arena, name)
                   : NULL;
}

static void place_params(
        const struct zero *zero, const struct zero_segment *segment,
        struct segment_memory *memory)
{
    const struct zero_plan *plan = zero->plan;
    char *base = zero_span(zero, plan_array_name(segment->array));
    size_t shard = (size_t)zero->shards.place * segment->shard_count;
    size_t part = (size_t)zero->replicas.place * segment->part_count;
    memory->held_begin = shard + (plan->params_on_host ? part : 0);
    memory->held_count =
            plan->params_on_host ? segment->part_count : segment->shard_count;
    if (plan->params_on_host) {
        if (!segment->trainable) /* else the engine owns it */
            memory->shard =
                    base + segment->shard_offset / (size_t)plan->replicas;
        return;
    }
    if (!plan->params_cut)
        memory->full = base + segment->full_offset;
    memory->shard =
            plan->params_cut
                    ? base + segment->shard_offset
                    : (char *)memory->full + zero_segment_bytes(segment, shard);
    memory->part = (char *)memory->shard + zero_segment_bytes(segment, part);
}

/* Without separate masters the parameters are the masters; the engine has its
 * own. */
static void place_masters(
        const struct zero *zero, const struct zero_segment *segment,
        struct segment_memory *memory)
{
    const struct zero_plan *plan = zero->plan;
    bool cut = plan->states_cut;
    size_t offset = cut ? segment->state_shard_offset / (size_t)plan->replicas
                        : segment->state_full_offset;
    memory->state_begin = cut ? (size_t)zero->part * segment->part_count : 0;
    memory->state_count = cut ? segment->part_count : segment->count;
    if (plan->states_on_host)
        return;
    if (plan_has_master(plan))
        memory->master =
                (float *)zero_span(zero, plan_master_name(plan)) + offset;
    else
        memory->master = cut ? memory->part : memory->full;
}

static void place_grads(
        const struct zero *zero, const struct zero_segment *segment,
        struct segment_memory *memory)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    char *base = zero_span(zero, "zero.grads");
    size_t shard = (size_t)zero->shards.place * segment->shard_count;
    size_t part = (size_t)zero->replicas.place * segment->part_count;
    if (plan->grads_pass)
        return;
    if (!plan->grads_cut)
        memory->grad_full = base + segment->state_full_offset * bytes;
    memory->grad_shard = plan->grads_cut
                                 ? base + segment->state_shard_offset * bytes
                                 : (char *)memory->grad_full + shard * bytes;
    memory->grad_part = (char *)memory->grad_shard + part * bytes;
}

static void place_segments(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        const struct zero_segment *segment = &plan->segments[s];
        struct segment_memory *memory = &zero->memory[s];
        place_params(zero, segment, memory);
        if (!segment->trainable || !plan->request.train)
            continue;
        place_masters(zero, segment, memory);
        place_grads(zero, segment, memory);
    }
}

static void place_gradients_in_order(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    for (int u = 0; u < plan->request.table->unit_count; u++)
        zero->grad_positions[u] = -1;
    for (int i = 0; i < plan->grad_unit_count; i++)
        zero->grad_positions[plan->grad_units[i]] = i;
}

/* --- life ----------------------------------------------------------------- */

static void take_tables(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    size_t units = (size_t)plan->request.table->unit_count;
    size_t slots = (size_t)(plan->outer_slots + plan->layer_slots);
    size_t segments = (size_t)plan->segment_count;
    zero->memory = zd_array(segments, sizeof *zero->memory);
    zero->slot_leases = zd_array(slots, sizeof *zero->slot_leases);
    zero->unit_slots = zd_array(units, sizeof *zero->unit_slots);
    for (int g = 0; g < ZERO_CUTS; g++) {
        zero->gathers[g] = zd_array(segments, sizeof *zero->gathers[g]);
        zero->next_gathered[g] = plan->segment_count;
    }
    zero->grads_held = zd_array(units, sizeof *zero->grads_held);
    zero->grad_positions = zd_array(units, sizeof *zero->grad_positions);
    zero->grad_work = zd_array(units, sizeof *zero->grad_work);
    zero->grad_parts = zd_array(units, sizeof *zero->grad_parts);
    for (size_t s = 0; s < slots; s++)
        lease_init(&zero->slot_leases[s], "zero.params.slots", (int)s);
    for (size_t u = 0; u < units; u++) {
        lease_init(&zero->grad_work[u], "zero.grads.work", (int)u);
        lease_init(
                &zero->grad_parts[u],
                plan->grads_pass ? "zero.grads.passing" : "zero.grads", (int)u);
    }
}

/* A comm for each group of several ranks. */
static enum zd_status make_groups(struct zero *zero)
{
    struct mesh mesh = zero->plan->request.mesh;
    zero->groups[ZERO_WORLD] = zero->comm;
    for (enum zero_group g = ZERO_SHARD; g < ZERO_WORLD; g++) {
        struct mesh_group of =
                mesh_group(mesh, zero_group_role(g), comm_rank(zero->comm));
        if (of.size > 1 && zero_group_is_world(mesh, g))
            zero->groups[g] = zero->comm;
        else if (of.size > 1) {
            ZD_TRY(comm_group_create(
                    zero->comm, zero_group_name(g), of.first, of.stride,
                    of.size, &zero->groups[g]));
            comm_set_memory(zero->groups[g], zero->arena);
        }
    }
    return ZD_OK;
}

enum zd_status zero_create(
        const struct zero_plan *plan, struct comm *comm,
        const struct arena *arena, const struct offload_place *place,
        struct zero **zero_out)
{
    struct mesh mesh = plan->request.mesh;
    assert(comm_size(comm) == mesh.world);
    struct zero *zero = zd_array(1, sizeof *zero);
    zero->plan = plan;
    zero->comm = comm;
    zero->arena = arena;
    zero->shards = mesh_group(mesh, MESH_SHARD, comm_rank(comm));
    zero->replicas = mesh_group(mesh, MESH_REPLICATE, comm_rank(comm));
    zero->places = mesh_group(mesh, MESH_TP, comm_rank(comm));
    assert(zero->places.size == 1 ||
           zero->places.place == plan->request.config->tp.place);
    zero->part = mesh_part(mesh, comm_rank(comm));
    take_tables(zero);
    zero->work = zero_span(zero, "zero.grads.work");
    zero->own = zero_span(zero, "zero.grads.own");
    zero->passing = zero_span(zero, "zero.grads.passing");
    zero->slots = zero_span(zero, "zero.params.slots");
    zero->squares = zero_span(zero, "zero.sums");
    place_segments(zero);
    if (plan->request.train)
        place_gradients_in_order(zero);
    states_create(zero);
    ranges_create(zero);
    enum zd_status status = make_groups(zero);
    ZD_THEN(status, paged_begin(zero, place));
    ZD_THEN(status, host_begin(zero, place));
    if (status == ZD_OK)
        *zero_out = zero;
    else
        zero_destroy(zero);
    return status;
}

void zero_destroy(struct zero *zero)
{
    if (!zero)
        return;
    host_end(zero);
    paged_end(zero);
    for (int g = 0; g < ZERO_WORLD; g++) {
        if (zero->groups[g] != zero->comm)
            comm_destroy(zero->groups[g]);
    }
    for (int g = 0; g < ZERO_CUTS; g++)
        free(zero->gathers[g]);
    free(zero->memory);
    free(zero->slot_leases);
    free(zero->unit_slots);
    free(zero->grads_held);
    free(zero->grad_positions);
    free(zero->grad_work);
    free(zero->grad_parts);
    ranges_destroy(zero);
    states_destroy(zero);
    free(zero);
}

/* --- the step ------------------------------------------------------------- */

struct model_hooks zero_hooks(struct zero *zero)
{
    return (struct model_hooks){
            .ctx = zero,
            .params_acquire = params_acquire,
            .params_release = params_release,
            .grads_acquire = grads_acquire,
            .grads_release = grads_release,
            .product_grads = zero->plan->grads_direct ? zero->plan->grad_dtype
                                                      : DTYPE_FP32,
            .places = places_exchange};
}

struct zero_wire zero_wire(const struct zero *zero)
{
    struct comm_counters all = comm_counters(zero->comm);
    struct zero_wire wire = {{{{0}}}};
    wire.group[ZERO_WORLD].bytes[COMM_ALL_REDUCE] = all.bytes[COMM_ALL_REDUCE];
    for (enum zero_group g = ZERO_SHARD; g < ZERO_WORLD; g++) {
        if (!zero_has(zero, g))
            continue;
        struct comm_counters sent = comm_counters(zero->groups[g]);
        if (zero->groups[g] == zero->comm)
            sent.bytes[COMM_ALL_REDUCE] = 0; /* the world's */
        if (g < ZERO_CUTS)
            sent.bytes[COMM_ALL_GATHER] += params_gather_owed(zero, g);
        wire.group[g] = sent;
    }
    return wire;
}

struct zero_wire zero_wire_since(
        const struct zero_wire *before, const struct zero_wire *now)
{
    struct zero_wire since = *now;
    for (int g = 0; g < ZERO_GROUPS; g++)
        for (int i = 0; i < COMM_COUNTERS; i++)
            since.group[g].bytes[i] -= before->group[g].bytes[i];
    return since;
}
