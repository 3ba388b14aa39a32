/* grads_down.c - reduced gradients on their way to the host.
 *
 *   buckets    0 fills | 1 fills         | 2 fills         | 3 fills
 *   ranks              | 0 is reduced    | 1 is reduced    | 2 is reduced
 *   host                                 | 0 goes down     | 1 goes down
 *
 * A reduction is waited for when the next one has begun: at the same place on
 * all ranks, so that their collectives keep one order. Shards of a bucket that
 * is not kept lie in zero.grads.passing from its reduction until their copies
 * have left; one rank sends what the model wrote. */
#include "zero/private.h"

enum zd_status grads_wait_down(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++)
        if (plan->segments[s].trainable)
            ZD_TRY(offload_grads_wait(
                    zero->offload.engine, zero->offload.segments[s]));
    return ZD_OK;
}

char *grads_passing(const struct zero *zero, int unit)
{
    return zero->passing + zero->plan->passing_offsets[unit] *
                                   dtype_bytes(zero->plan->grad_dtype);
}

/* The kept gradient of a segment (of the part with states here), reduced, in
 * the compute type: several micro-batches were added up in fp32, at whose front
 * it lies then. Once a step. */
static enum zd_status grads_round_kept(
        struct zero *zero, int s, void **grad_out)
{
    const struct zero_plan *plan = zero->plan;
    const struct segment_memory *memory = &zero->memory[s];
    *grad_out = plan->states_cut ? memory->grad_shard : memory->grad_full;
    if (plan->grad_dtype == plan->request.dtype)
        return ZD_OK;
    return optim_device()->narrow(
            *grad_out, plan->request.dtype, memory->state_count);
}

/* A segment's gradient lies at `from` when the compute stream is here. */
static enum zd_status send_segment(
        struct zero *zero, int s, const void *from, int micro, bool is_last)
{
    const struct zero_offload *offload = &zero->offload;
    ZD_TRY(stream_record(NULL, offload->grads_ready));
    return offload_grads_down(
            offload->engine, offload->segments[s], from, offload->grads_ready,
            micro, is_last);
}

static enum zd_status send_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    const uint64_t *ticket = &zero->grad_ops[2 * unit];
    int micro = plan->grads_pass ? zero->sent_micro : 0;
    bool is_last = !plan->grads_pass ||
                   zero->sent_micro == plan->request.accumulation - 1;
    char *from = zero->world > 1
                         ? grads_passing(zero, unit)
                         : (char *)(zero->work + plan->work_offsets[unit]);
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        if (!plan->segments[s].trainable)
            continue;
        ZD_TRY(ops_wait(&zero->ops, *ticket++));
        void *kept = from;
        if (!plan->grads_pass)
            ZD_TRY(grads_round_kept(zero, s, &kept));
        ZD_TRY(send_segment(zero, s, kept, micro, is_last));
        from += zero->memory[s].state_count * dtype_bytes(plan->grad_dtype);
    }
    return ZD_OK;
}

enum zd_status grads_send(struct zero *zero, int end)
{
    for (; zero->sent < end; zero->sent++)
        ZD_TRY(send_unit(zero, zero->plan->grad_units[zero->sent]));
    return ZD_OK;
}

enum zd_status grads_send_rest(struct zero *zero)
{
    ZD_TRY(grads_send(zero, zero->plan->grad_unit_count));
    zero->sent = 0;
    zero->sent_micro = zero->micro;
    return ZD_OK;
}

enum zd_status grads_wait_passing(struct zero *zero, int bucket)
{
    const struct zero_plan *plan = zero->plan;
    int last = bucket - 1 - plan_buckets_under_way(plan);
    for (int k = 0; k < plan->grad_unit_count; k++)
        if (bucket == 0 || plan->grad_buckets[k] <= last)
            ZD_TRY(grads_wait_down(zero, plan->grad_units[k]));
    return ZD_OK;
}
