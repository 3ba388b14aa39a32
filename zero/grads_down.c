/* grads_down.c - reduced gradients on their way to the host.
 *
 *   units      0 fills | 1 fills         | 2 fills         | 3 fills
 *   ranks              | 0 is reduced    | 1 is reduced    | 2 is reduced
 *   host                                 | 0 goes down     | 1 goes down
 *
 * A reduction is waited for when the next one has begun: at the same place on
 * all ranks, so that their collectives keep one order; the sum over replicas
 * comes in between, likewise. Shards of a unit that is not kept lie in
 * zero.grads.passing from its reduction until their copies have left; where
 * nothing is sharded what the model wrote is sent. */
#include "zero/private.h"

char *grads_passing(const struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    if (plan->shards == 1)
        return (char *)(zero->work + plan->work_offsets[unit]);
    return zero->passing +
           plan->passing_offsets[unit] * dtype_bytes(plan->grad_dtype);
}

enum zd_status grads_each_part(
        struct zero *zero, int unit, const char *who, grads_part_fn *fn)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    bool is_work = plan->grads_pass && plan->shards == 1;
    struct lease *lease =
            is_work ? &zero->grad_work[unit] : &zero->grad_parts[unit];
    char *shard = grads_passing(zero, unit);
    ZD_TRY(lease_take(lease, LEASE_CHANGE, who, NULL));
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        const struct zero_segment *segment = &plan->segments[s];
        size_t part = (size_t)zero->replicas.place * segment->part_count;
        if (!segment->trainable)
            continue;
        ZD_TRY(
                fn(zero, s,
                   plan->grads_pass ? shard + part * bytes
                                    : zero->memory[s].grad_part,
                   lease));
        shard += segment->shard_count * bytes;
    }
    lease_release(lease, (struct token){0});
    return ZD_OK;
}

/* The kept gradient of a segment (of the part with states here), reduced, in
 * the compute type: several micro-batches were added up in fp32, at whose front
 * it lies then. Once a step. */
static enum zd_status grads_round_kept(
        struct zero *zero, int s, void **grad_out)
{
    const struct zero_plan *plan = zero->plan;
    const struct segment_memory *memory = &zero->memory[s];
    *grad_out = plan->states_cut ? memory->grad_part : memory->grad_full;
    if (plan->grad_dtype == plan->request.dtype)
        return ZD_OK;
    return optim_device()->narrow(
            *grad_out, plan->request.dtype, memory->state_count);
}

/* Round fp32 gradients here, unless the host sums several micro-batches. */
static bool rounds_passing(const struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    return plan->request.accumulation == 1 &&
           plan->grad_dtype != plan->request.dtype;
}

/* A segment's gradient is complete at `from` once the compute stream gets
 * here. */
static enum zd_status send_segment(
        struct zero *zero, int s, const void *from, int micro, bool is_last)
{
    const struct zero_offload *offload = &zero->offload;
    struct token ready;
    ZD_TRY(timeline_record(NULL, &offload->ready[s], &ready));
    return offload_grads_down(
            offload->engine, offload->segments[s], from, ready, micro, is_last);
}

static enum zd_status send_unit(struct zero *zero, int unit, int micro)
{
    const struct zero_plan *plan = zero->plan;
    bool passes = plan->grads_pass;
    bool is_last = !passes || micro == plan->request.accumulation - 1;
    bool is_work = passes && plan->shards == 1;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    struct lease *lease =
            is_work ? &zero->grad_work[unit] : &zero->grad_parts[unit];
    char *shard = grads_passing(zero, unit);
    ZD_TRY(lease_take(lease, LEASE_READ, "copies down", NULL));
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        size_t part = plan->segments[s].part_count;
        if (!plan->segments[s].trainable)
            continue;
        void *kept = shard + (size_t)zero->replicas.place * part * bytes;
        if (!passes)
            ZD_TRY(grads_round_kept(zero, s, &kept));
        else if (rounds_passing(zero))
            ZD_TRY(optim_device()->narrow(
                    kept, plan->request.dtype, zero->memory[s].state_count));
        ZD_TRY(send_segment(zero, s, kept, passes ? micro : 0, is_last));
        lease_note(
                lease,
                offload_grads_left(
                        zero->offload.engine, zero->offload.segments[s]));
        shard += plan->segments[s].shard_count * bytes;
    }
    lease_release(lease, (struct token){0});
    lease_drop(lease, "copies down");
    return ZD_OK;
}

enum zd_status grads_send(struct zero *zero, int micro, int end)
{
    const struct zero_plan *plan = zero->plan;
    int count = plan->grad_unit_count;
    if (plan->grads_pass)
        end += micro * count;
    for (; zero->sent < end; zero->sent++)
        ZD_TRY(send_unit(
                zero, plan->grad_units[zero->sent % count],
                zero->sent / count));
    return ZD_OK;
}
