/* grads_down.c - reduced gradients on their way to the host.
 *
 *   units      0 fills | 1 fills         | 2 fills         | 3 fills
 *   ranks              | 0 is reduced    | 1 is reduced    | 2 is reduced
 *   host                                 | 0 goes down     | 1 goes down
 *
 * A reduction is waited for after the next one has begun, at the same point on
 * all ranks, so that collectives have one order; the sum over replicas comes in
 * between in the same way. A unit's shards that are not kept stay in
 * zero.grads.passing from the reduction until their copies are done; if nothing
 * is sharded, the model's own output is sent. */
#include "zero/private.h"

char *grads_passing(const struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    if (plan->shards == 1)
        return (char *)(zero->work + plan->work_offsets[unit]);
    return zero->passing +
           plan->passing_offsets[unit] * dtype_bytes(plan->grad_dtype);
}

/* --- sums over replicas --------------------------------------------------- */

static enum zd_status merge(
        struct zero *zero, int s, int micro, char *part, struct lease *lease)
{
    size_t count = zero->plan->segments[s].part_count;
    enum dtype type = zero->plan->grad_dtype;
    struct token merged = {0};
    const char *shard =
            part - (size_t)zero->replicas.place * count * dtype_bytes(type);
    (void)micro;
    ZD_TRY(comm_queue(
            zero->groups[ZERO_REPLICATE],
            &(struct comm_op){
                    .kind = COMM_REDUCE_SCATTER,
                    .from = shard,
                    .to = part,
                    .count = count,
                    .type = type},
            &merged));
    lease_note(lease, merged);
    return ZD_OK;
}

/* --- down ----------------------------------------------------------------- */

/* At this point of the compute stream a reduced gradient is complete. fp32
 * gradients are rounded to the compute type in place, unless the host sums
 * several micro-batches. */
static enum zd_status send(
        struct zero *zero, int s, int micro, char *part, struct lease *lease)
{
    const struct zero_plan *plan = zero->plan;
    const struct segment_memory *memory = &zero->memory[s];
    struct zero_offload *offload = &zero->offload;
    bool passes = plan->grads_pass;
    bool is_last = !passes || micro == plan->request.accumulation - 1;
    void *from = passes || plan->states_cut ? part : memory->grad_full;
    struct token ready;
    if (plan->grad_dtype != plan->request.dtype &&
        (!passes || plan->request.accumulation == 1))
        ZD_TRY(optim_device()->narrow(
                from, plan->request.dtype, memory->state_count));
    ZD_TRY(timeline_record(NULL, &offload->ready[s], &ready));
    ZD_TRY(offload_grads_down(
            offload->engine, s, from, ready, passes ? micro : 0, is_last));
    lease_note(lease, offload_grads_left(offload->engine, s));
    return ZD_OK;
}

/* --- stages --------------------------------------------------------------- */

static const struct stage {
    const char *who;
    enum zero_group group; /* without this group there is nothing to do */
    enum lease_use use;
    enum zd_status (*of_segment)(
            struct zero *zero, int s, int micro, char *part,
            struct lease *lease);
} stages[GRAD_STAGES] = {
        [GRADS_MERGED] =
                {"reduce_scatter", ZERO_REPLICATE, LEASE_CHANGE, merge},
        [GRADS_SHARED] = {"places", ZERO_TP, LEASE_CHANGE, places_share},
        [GRADS_SENT] = {"copies down", ZERO_WORLD, LEASE_READ, send},
};

/* Calls the stage for this rank's part of each trainable segment's gradient,
 * kept or passing; if nothing is sharded it is in the work buffer. */
static enum zd_status pass_unit(
        struct zero *zero, const struct stage *stage, int unit, int micro)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    bool is_work = plan->grads_pass && plan->shards == 1;
    struct lease *lease =
            is_work ? &zero->grad_work[unit] : &zero->grad_parts[unit];
    char *shard = grads_passing(zero, unit);
    ZD_TRY(lease_take(lease, stage->use, stage->who, NULL));
    for (ZERO_EACH(s, plan, unit)) {
        const struct zero_segment *segment = &plan->segments[s];
        size_t before = (size_t)zero->replicas.place * segment->part_count;
        char *part = plan->grads_pass ? shard + before * bytes
                                      : zero->memory[s].grad_part;
        if (!segment->trainable)
            continue;
        ZD_TRY(stage->of_segment(zero, s, micro, part, lease));
        shard += segment->shard_count * bytes;
    }
    lease_release(lease, (struct token){0});
    if (stage->use == LEASE_READ)
        lease_drop(lease, stage->who);
    return ZD_OK;
}

enum zd_status grads_pass(
        struct zero *zero, enum grad_stage stage, int micro, int end)
{
    const struct zero_plan *plan = zero->plan;
    int count = plan->grad_unit_count, *passed = &zero->passed[stage];
    if (!zero_has(zero, stages[stage].group))
        return ZD_OK;
    if (plan->grads_pass)
        end += micro * count;
    for (; *passed < end; ++*passed)
        ZD_TRY(pass_unit(
                zero, &stages[stage], plan->grad_units[*passed % count],
                *passed / count));
    return ZD_OK;
}
