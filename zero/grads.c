/* grads.c - where the model writes gradients, and when they leave.
 *
 *   kept    type   model writes                  leaves
 *   whole   fp32   in place, accumulating        in the last micro-batch
 *   whole   half   fp32 work buffer, which is    in the last micro-batch,
 *                  rounded into place            which is the only one
 *   shard   fp32   fp32 work buffer              in every micro-batch, added
 *                                                to the shard
 *   shard   half   fp32 work buffer, which is    in the only micro-batch
 *                  rounded where it lies
 *   passing both   fp32 work buffer, rounded     in every micro-batch
 *                  where it lies
 *
 * half: bf16 or fp16, the compute type. A gradient is rounded once on its way
 * into a reduction in it, whatever the stage, so the stages reduce the same
 * numbers. The sum of several micro-batches is kept and reduced in fp32 and
 * then rounded once, so norm and update see numbers of the compute type. What
 * goes on to the host is grads_down.c's. */
#include "zero/private.h"

#include <assert.h>

static bool is_last_micro(const struct zero *zero)
{
    return zero->micro == zero->plan->request.accumulation - 1;
}

static bool writes_in_place(const struct zero *zero)
{
    return zero->plan->work_count == 0;
}

/* --- where the model writes ----------------------------------------------- */

static void point(
        const struct zero *zero, int segment, float *base, float **grads)
{
    const struct zero_plan *plan = zero->plan;
    const struct param_table *table = plan->request.table;
    int unit = plan->segments[segment].unit;
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (plan->places[id].segment == segment)
            grads[id] = base ? base + plan->places[id].offset : NULL;
}

static void point_unit(const struct zero *zero, int unit, float **grads)
{
    const struct zero_plan *plan = zero->plan;
    float *work = zero->work + plan->work_offsets[unit];
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        if (!plan->segments[s].trainable) {
            point(zero, s, NULL, grads);
        } else if (writes_in_place(zero)) {
            point(zero, s, zero->memory[s].grad_full, grads);
        } else {
            point(zero, s, work, grads);
            work += plan->segments[s].count;
        }
    }
}

/* Before position `i` writes into its work buffer: what used that memory has
 * left. The plan's lifetimes say which buckets that may be; of the micro-batch
 * before, all. */
static enum zd_status wait_for_work(struct zero *zero, int i)
{
    const struct zero_plan *plan = zero->plan;
    int last = plan->grad_buckets[i] - 1 - plan_buckets_under_way(plan);
    bool sends_work = plan->grads_pass && zero->world == 1;
    if (!zero->work_is_clear && plan->grads_pass && zero->micro > 0)
        ZD_TRY(grads_send_rest(zero));
    for (int k = 0; k < plan->grad_unit_count; k++) {
        const uint64_t *tickets = &zero->grad_ops[2 * plan->grad_units[k]];
        if (zero->work_is_clear && (k >= i || plan->grad_buckets[k] > last))
            break;
        ZD_TRY(ops_wait(&zero->ops, tickets[0]));
        ZD_TRY(ops_wait(&zero->ops, tickets[1]));
        if (sends_work)
            ZD_TRY(grads_wait_down(zero, plan->grad_units[k]));
    }
    zero->work_is_clear = true;
    return ZD_OK;
}

enum zd_status grads_acquire(
        void *ctx, int unit, float **grads, bool *accumulate_out)
{
    struct zero *zero = ctx;
    const struct zero_plan *plan = zero->plan;
    int position = zero->grad_positions[unit];
    ZD_TRY(comm_progress(zero->comm));
    point_unit(zero, unit, grads);
    *accumulate_out = false;
    if (position < 0)
        return ZD_OK;
    bool tied = unit == 0 && plan->request.config->tied;
    if (zero->grads_held[unit]++ > 0) {
        *accumulate_out = true;
        return ZD_OK;
    }
    if (position != zero->grads_done && !tied)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "the model begins the gradient of unit %d when that of unit %d "
                "is due",
                unit,
                zero->grads_done < plan->grad_unit_count
                        ? plan->grad_units[zero->grads_done]
                        : -1);
    if (writes_in_place(zero))
        *accumulate_out = zero->micro > 0;
    else if (plan->grads_cut || plan->grads_pass)
        ZD_TRY(wait_for_work(zero, tied ? 0 : position));
    return ZD_OK;
}

/* --- rounding ------------------------------------------------------------- */

/* What several micro-batches added up in fp32, reduced, is rounded once to the
 * compute type, where it lies. */
static enum zd_status round_sums(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    if (plan->grad_dtype == plan->request.dtype)
        return ZD_OK;
    for (int s = 0; s < plan->segment_count; s++)
        if (plan->segments[s].trainable)
            ZD_TRY(optim_device()->round(
                    zero->memory[s].grad_shard, plan->request.dtype,
                    plan->segments[s].shard_count));
    return ZD_OK;
}

/* The work buffer of a complete unit becomes what is kept or sent. */
static enum zd_status round_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    float *work = zero->work + plan->work_offsets[unit];
    if (writes_in_place(zero) || plan->grad_dtype == DTYPE_FP32)
        return ZD_OK;
    if (plan->grads_cut || plan->grads_pass)
        return optim_device()->narrow(
                work, plan->grad_dtype, plan_grad_count(plan, unit));
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        if (!plan->segments[s].trainable)
            continue;
        ZD_TRY(optim_device()->convert(
                zero->memory[s].grad_full, plan->grad_dtype, work, DTYPE_FP32,
                plan->segments[s].count));
        work += plan->segments[s].count;
    }
    return ZD_OK;
}

/* --- reduction ------------------------------------------------------------ */

/* Each rank has all states at stage 0 and sends when it has all gradients. */
static bool goes_down(const struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    return plan->states_on_host && (plan->states_cut || zero->world == 1) &&
           (plan->grads_pass || is_last_micro(zero));
}

static bool leaves_now(const struct zero *zero)
{
    if (zero->world == 1)
        return goes_down(zero);
    return zero->plan->grads_cut || is_last_micro(zero);
}

static enum zd_status reduce_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    const char *work = (const char *)(zero->work + plan->work_offsets[unit]);
    char *passing = grads_passing(zero, unit);
    uint64_t *ticket = &zero->grad_ops[2 * unit];
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        const struct zero_segment *segment = &plan->segments[s];
        struct segment_memory *memory = &zero->memory[s];
        if (!segment->trainable)
            continue;
        const void *full = plan->grads_cut ? work : memory->grad_full;
        void *shard = plan->grads_pass ? passing : memory->grad_shard;
        bool adds = plan->grads_cut && !plan->grads_pass && zero->micro > 0;
        ZD_TRY(ops_reduce_scatter(
                &zero->ops, full, shard, segment->shard_count, plan->grad_dtype,
                adds, ticket++));
        work += segment->count * bytes;
        passing += segment->shard_count * bytes;
    }
    return ZD_OK;
}

/* Position `i` completes its bucket, which begins with position `first`. */
static int first_of_bucket(const struct zero_plan *plan, int i)
{
    int first = i;
    while (first > 0 && plan->grad_buckets[first - 1] == plan->grad_buckets[i])
        first--;
    return first;
}

/* All of a bucket leaves. */
static enum zd_status reduce_bucket(struct zero *zero, int first, int last)
{
    const struct zero_plan *plan = zero->plan;
    if (plan->grads_pass)
        ZD_TRY(grads_wait_passing(zero, plan->grad_buckets[first]));
    for (int k = first; k <= last; k++)
        ZD_TRY(reduce_unit(zero, plan->grad_units[k]));
    return plan->request.options.overlap_comm ? ZD_OK
                                              : ops_wait_all(&zero->ops);
}

/* Position `i` completes its bucket. */
static enum zd_status flush_bucket(struct zero *zero, int i)
{
    int first = first_of_bucket(zero->plan, i);
    bool reduces = zero->world > 1;
    if (reduces)
        ZD_TRY(reduce_bucket(zero, first, i));
    if (!goes_down(zero))
        return ZD_OK;
    bool is_late = reduces && zero->plan->request.options.overlap_comm;
    return grads_send(zero, is_late ? first : i + 1);
}

enum zd_status grads_release(void *ctx, int unit)
{
    struct zero *zero = ctx;
    const struct zero_plan *plan = zero->plan;
    int position = zero->grad_positions[unit];
    ZD_TRY(comm_progress(zero->comm));
    if (position < 0 || --zero->grads_held[unit] > 0)
        return ZD_OK;
    if (position != zero->grads_done)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "the model completes the gradient of unit %d out of order",
                unit);
    zero->grads_done++;
    ZD_TRY(round_unit(zero, unit));
    if (!leaves_now(zero))
        return ZD_OK;
    bool completes =
            position == plan->grad_unit_count - 1 ||
            plan->grad_buckets[position + 1] != plan->grad_buckets[position];
    return completes ? flush_bucket(zero, position) : ZD_OK;
}

/* --- the step ------------------------------------------------------------- */

/* Of the step before nothing is under way any more. */
static enum zd_status begin_sending(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    zero->sent = 0;
    zero->sent_micro = 0;
    if (plan->states_on_host)
        for (int i = 0; i < plan->grad_unit_count; i++)
            ZD_TRY(grads_wait_down(zero, plan->grad_units[i]));
    return ZD_OK;
}

enum zd_status zero_micro_begin(struct zero *zero, int micro)
{
    const struct zero_plan *plan = zero->plan;
    assert(micro >= 0 && micro < plan->request.accumulation);
    zero->micro = micro;
    zero->grads_done = 0;
    zero->work_is_clear = false;
    return micro == 0 ? begin_sending(zero) : ZD_OK;
}

/* Stage 0: every rank gets all of the gradient. */
static enum zd_status gather_grads(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    uint64_t ticket;
    for (int s = 0; s < plan->segment_count; s++)
        if (plan->segments[s].trainable)
            ZD_TRY(ops_all_gather(
                    &zero->ops, zero->memory[s].grad_shard,
                    zero->memory[s].grad_full, plan->segments[s].shard_count,
                    plan->grad_dtype, &ticket));
    return ops_wait_all(&zero->ops);
}

enum zd_status zero_reduce_finish(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    if (zero->grads_done != plan->grad_unit_count || !is_last_micro(zero))
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "%d of %d gradients of micro-batch %d are complete",
                zero->grads_done, plan->grad_unit_count, zero->micro);
    ZD_TRY(ops_wait_all(&zero->ops));
    if (!plan->states_on_host) {
        ZD_TRY(round_sums(zero));
        ZD_TRY(norm_begin(zero));
    }
    if (!plan->states_cut && zero->world > 1)
        ZD_TRY(gather_grads(zero));
    return plan->states_on_host ? grads_send_rest(zero) : ZD_OK;
}
