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
 * half: bf16 or fp16, the compute type. A gradient is rounded once before a
 * reduction in the half type, at every stage, so the stages reduce the same
 * numbers. With plan->grads_direct the matmul itself rounds, in place or in the
 * work buffer, and only the unit's other tensors are written in fp32. The sum
 * of several micro-batches is kept and reduced in fp32 and then rounded once,
 * so norm and update see numbers of the compute type. grads_down.c copies to
 * the host.
 *
 * The sum over the ranks that shard is in this rank's shard. With replicas the
 * shards are summed once more: each replica gets the sum of its part. Tensors
 * that tensor parallelism does not cut are then summed over its places
 * (tokens.c), all of which get the sum.
 *
 * With reduce_fp32, or for sums by layer, one micro-batch is treated like
 * several: fp32. */
#include "zero/private.h"

#include <assert.h>

static bool is_last_micro(const struct zero *zero)
{
    return zero->micro == zero->plan->request.accumulation - 1;
}

static bool writes_in_place(const struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    return !plan->grads_cut && !plan->grads_pass &&
           plan->grad_dtype == DTYPE_FP32;
}

/* --- where the model writes ----------------------------------------------- */

static void point(
        const struct zero *zero, int segment, float *base, void **grads)
{
    const struct zero_plan *plan = zero->plan;
    const struct param_table *table = plan->request.table;
    int unit = plan->segments[segment].unit;
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (plan->places[id].segment == segment)
            grads[id] = base ? base + plan->places[id].offset : NULL;
}

/* The buffer in which the gradient of tensor `id` is kept, or from which it is
 * sent. */
static char *place_of_grad(const struct zero *zero, int id)
{
    const struct zero_plan *plan = zero->plan;
    const struct zero_place *place = &plan->places[id];
    int unit = plan->segments[place->segment].unit;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    char *work = (char *)(zero->work + plan->work_offsets[unit]);
    if (!plan->grads_cut && !plan->grads_pass)
        return (char *)zero->memory[place->segment].grad_full +
               place->offset * bytes;
    for (int s = plan->unit_segments[unit]; s < place->segment; s++)
        if (plan->segments[s].trainable)
            work += plan->segments[s].count * bytes;
    return work + place->offset * bytes;
}

/* For a unit whose matmuls round: sets in `grads` where each trainable tensor
 * is written; if `grads` is NULL, rounds the fp32 sums of the others into
 * place. */
static enum zd_status each_grad(const struct zero *zero, int unit, void **grads)
{
    const struct zero_plan *plan = zero->plan;
    const struct param_table *table = plan->request.table;
    float *sums =
            zero->work + plan->work_offsets[unit] + plan_work_sums(plan, unit);
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++) {
        bool is_direct = plan_grad_is_direct(plan, id);
        if (!table->params[id].trainable)
            continue;
        char *place = place_of_grad(zero, id);
        if (grads)
            grads[id] = is_direct ? (void *)place : sums;
        else if (!is_direct)
            ZD_TRY(optim_device()->convert(
                    place, plan->grad_dtype, sums, DTYPE_FP32,
                    table->params[id].count));
        sums += is_direct ? 0 : plan_sum_count(plan, id);
    }
    return ZD_OK;
}

static void point_unit(const struct zero *zero, int unit, void **grads)
{
    const struct zero_plan *plan = zero->plan;
    bool is_direct = plan_unit_is_direct(plan, unit);
    float *work = zero->work + plan->work_offsets[unit];
    for (ZERO_EACH(s, plan, unit)) {
        if (!plan->segments[s].trainable || is_direct) {
            point(zero, s, NULL, grads);
        } else if (writes_in_place(zero)) {
            point(zero, s, zero->memory[s].grad_full, grads);
        } else {
            point(zero, s, work, grads);
            work += plan->segments[s].count;
        }
    }
    if (is_direct)
        each_grad(zero, unit, grads);
}

/* --- whose turn it is ----------------------------------------------------- */

/* Units' buffers share memory: yield the leases that overlap position `i`. */
static enum zd_status take_work(struct zero *zero, int i)
{
    const struct zero_plan *plan = zero->plan;
    int unit = plan->grad_units[i];
    size_t begin = plan->work_offsets[unit];
    size_t end = begin + plan_work_count(plan, unit);
    for (int stage = 0; stage < GRAD_STAGES && plan->grads_pass; stage++)
        ZD_TRY(grads_pass(zero, (enum grad_stage)stage, zero->micro, 0));
    for (int k = 0; k < plan->grad_unit_count; k++) {
        int other = plan->grad_units[k];
        size_t at = plan->work_offsets[other];
        if (other != unit && at < end &&
            begin < at + plan_work_count(plan, other))
            ZD_TRY(lease_yield(&zero->grad_work[other], "model", NULL));
    }
    return lease_take(&zero->grad_work[unit], LEASE_FILL, "model", NULL);
}

/* Forget the gradients of the step before. */
static void drop_kept(struct zero *zero)
{
    for (int k = 0; k < zero->plan->grad_unit_count; k++) {
        struct lease *part = &zero->grad_parts[zero->plan->grad_units[k]];
        if (lease_is(part, LEASE_READY))
            lease_drop(part, "step");
    }
}

/* The first micro-batch writes gradients, later ones accumulate. */
static enum lease_use first_use(const struct zero *zero)
{
    return zero->micro == 0 ? LEASE_FILL : LEASE_CHANGE;
}

/* The unit's matmuls write directly into whole, kept gradients. */
static bool writes_kept(const struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    return !plan->grads_cut && !plan->grads_pass &&
           plan_unit_is_direct(plan, unit);
}

enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
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
    assert((position == zero->grads_done || tied) && "in the plan's order");
    if (!writes_in_place(zero)) {
        ZD_TRY(take_work(zero, position));
        if (!writes_kept(zero, unit))
            return ZD_OK;
    }
    *accumulate_out = zero->micro > 0;
    return lease_take(&zero->grad_parts[unit], first_use(zero), "model", NULL);
}

/* --- rounding ------------------------------------------------------------- */

/* Round the reduced fp32 sum of several micro-batches once to the compute type,
 * in place. */
static enum zd_status round_sums(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    if (plan->grad_dtype == plan->request.dtype)
        return ZD_OK;
    for (int s = 0; s < plan->segment_count; s++)
        if (plan->segments[s].trainable)
            ZD_TRY(optim_device()->round(
                    zero->memory[s].grad_part, plan->request.dtype,
                    plan->segments[s].part_count));
    return ZD_OK;
}

static enum zd_status round_kept(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    float *work = zero->work + plan->work_offsets[unit];
    for (ZERO_EACH(s, plan, unit)) {
        if (!plan->segments[s].trainable)
            continue;
        ZD_TRY(optim_device()->convert(
                zero->memory[s].grad_full, plan->grad_dtype, work, DTYPE_FP32,
                plan->segments[s].count));
        work += plan->segments[s].count;
    }
    return ZD_OK;
}

/* The work buffer of a unit whose gradient is kept whole. */
static enum zd_status keep_unit(struct zero *zero, int unit)
{
    if (writes_kept(zero, unit)) {
        ZD_TRY(each_grad(zero, unit, NULL));
    } else {
        ZD_TRY(lease_take(
                &zero->grad_parts[unit], first_use(zero), "rounding", NULL));
        ZD_TRY(round_kept(zero, unit));
    }
    lease_drop(&zero->grad_work[unit], "rounding");
    lease_release(&zero->grad_parts[unit], (struct token){0});
    return ZD_OK;
}

/* A complete unit becomes what is kept or sent. */
static enum zd_status complete_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    bool in_place = writes_in_place(zero);
    lease_release(
            in_place ? &zero->grad_parts[unit] : &zero->grad_work[unit],
            (struct token){0});
    if (in_place)
        return ZD_OK;
    if (!plan->grads_cut && !plan->grads_pass)
        return keep_unit(zero, unit);
    if (plan->grad_dtype == DTYPE_FP32)
        return ZD_OK;
    if (plan_unit_is_direct(plan, unit))
        return each_grad(zero, unit, NULL);
    return optim_device()->narrow(
            zero->work + plan->work_offsets[unit], plan->grad_dtype,
            plan_unit_of(plan, unit).grads);
}

/* --- reduction ------------------------------------------------------------ */

/* At stage 0 each rank has all states, and offloads when it has all
 * gradients. */
static bool offloads_now(const struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    return plan->states_on_host &&
           (plan->states_cut || mesh_parts(plan->request.mesh) == 1) &&
           (plan->grads_pass || is_last_micro(zero));
}

static bool merges_now(const struct zero *zero)
{
    return zero_has(zero, ZERO_REPLICATE) &&
           (zero->plan->grads_pass || is_last_micro(zero));
}

static bool reduces_now(const struct zero *zero)
{
    return zero_has(zero, ZERO_SHARD) &&
           (zero->plan->grads_cut || is_last_micro(zero));
}

/* Destination and source of a unit's sums; whole, kept gradients are both. */
static enum zd_status take_parts(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    struct lease *part = &zero->grad_parts[unit];
    const char *who = "reduce_scatter";
    size_t begin = plan->passing_offsets[unit],
           shards = (size_t)zero->shards.size;
    size_t end = begin + plan_unit_of(plan, unit).grads / shards;
    if (!plan->grads_cut)
        return lease_take(part, LEASE_CHANGE, who, NULL);
    /* no wait: the model writes on the compute stream */
    lease_acquire(&zero->grad_work[unit], LEASE_READ, who);
    if (!plan->grads_pass)
        return lease_take(part, first_use(zero), who, NULL);
    for (int k = 0; k < plan->grad_unit_count; k++) {
        int other = plan->grad_units[k];
        size_t at = plan->passing_offsets[other];
        if (other != unit && at < end &&
            begin < at + plan_unit_of(plan, other).grads / shards)
            ZD_TRY(lease_yield(&zero->grad_parts[other], who, NULL));
    }
    return lease_take(part, LEASE_FILL, who, NULL);
}

static enum zd_status reduce_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    const char *work = (const char *)(zero->work + plan->work_offsets[unit]);
    char *passing = grads_passing(zero, unit);
    ZD_TRY(take_parts(zero, unit));
    for (ZERO_EACH(s, plan, unit)) {
        const struct zero_segment *segment = &plan->segments[s];
        struct segment_memory *memory = &zero->memory[s];
        if (!segment->trainable)
            continue;
        const void *full = plan->grads_cut ? work : memory->grad_full;
        void *shard = plan->grads_pass ? passing : memory->grad_shard;
        bool adds = plan->grads_cut && !plan->grads_pass && zero->micro > 0;
        struct token reduced = {0};
        ZD_TRY(comm_queue(
                zero->groups[ZERO_SHARD],
                &(struct comm_op){
                        .kind = COMM_REDUCE_SCATTER,
                        .from = full,
                        .to = shard,
                        .count = segment->shard_count,
                        .type = plan->grad_dtype,
                        .accumulate = adds},
                &reduced));
        lease_note(&zero->grad_parts[unit], reduced);
        if (plan->grads_cut)
            lease_note(&zero->grad_work[unit], reduced);
        work += segment->count * bytes;
        passing += segment->shard_count * bytes;
    }
    lease_release(&zero->grad_parts[unit], (struct token){0});
    if (!plan->grads_cut)
        return ZD_OK;
    lease_release(&zero->grad_work[unit], (struct token){0});
    lease_drop(&zero->grad_work[unit], "reduce_scatter");
    return ZD_OK;
}

/* The unit at position `i` is complete. A sum is waited for after the next one
 * of its kind has begun. */
static enum zd_status send_unit(struct zero *zero, int i)
{
    const struct zero_plan *plan = zero->plan;
    bool overlaps = plan->request.options.overlap_comm;
    int end = i + 1;
    if (reduces_now(zero)) {
        ZD_TRY(reduce_unit(zero, plan->grad_units[i]));
        if (!overlaps)
            ZD_TRY(comm_finish(zero->groups[ZERO_SHARD]));
        end -= overlaps;
    }
    if (merges_now(zero)) {
        ZD_TRY(grads_pass(zero, GRADS_MERGED, zero->micro, end));
        if (!overlaps)
            ZD_TRY(comm_finish(zero->groups[ZERO_REPLICATE]));
        end -= overlaps;
    }
    if (!offloads_now(zero))
        return ZD_OK;
    ZD_TRY(grads_pass(zero, GRADS_SHARED, zero->micro, end));
    return grads_pass(zero, GRADS_SENT, zero->micro, end);
}

enum zd_status grads_release(void *ctx, int unit)
{
    struct zero *zero = ctx;
    int position = zero->grad_positions[unit];
    ZD_TRY(comm_progress(zero->comm));
    if (position < 0 || --zero->grads_held[unit] > 0)
        return ZD_OK;
    assert(position == zero->grads_done && "in the plan's order");
    zero->grads_done++;
    ZD_TRY(complete_unit(zero, unit));
    return send_unit(zero, position);
}

/* --- the step ------------------------------------------------------------- */

enum zd_status zero_micro_begin(struct zero *zero, int micro)
{
    const struct zero_plan *plan = zero->plan;
    assert(micro >= 0 && micro < plan->request.accumulation);
    zero->micro = micro;
    zero->grads_done = 0;
    if (micro == 0) {
        memset(zero->passed, 0, sizeof zero->passed);
        drop_kept(zero);
    }
    return ZD_OK;
}

/* Stage 0: every rank gets all of the gradient. */
static enum zd_status gather_grads(struct zero *zero, enum zero_group group)
{
    const struct zero_plan *plan = zero->plan;
    bool is_shard = group == ZERO_SHARD;
    struct token begun;
    for (int s = 0; s < plan->segment_count && zero_has(zero, group); s++) {
        const struct segment_memory *memory = &zero->memory[s];
        struct comm_op gather = {
                .kind = COMM_ALL_GATHER,
                .from = is_shard ? memory->grad_shard : memory->grad_part,
                .to = is_shard ? memory->grad_full : memory->grad_shard,
                .count = zero_count_of(&plan->segments[s], group),
                .type = plan->grad_dtype};
        if (plan->segments[s].trainable)
            ZD_TRY(comm_queue(zero->groups[group], &gather, &begun));
    }
    return comm_finish(zero->groups[group]);
}

enum zd_status zero_reduce_finish(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    assert(zero->grads_done == plan->grad_unit_count && is_last_micro(zero));
    /* also for units that no pass has used */
    ZD_TRY(params_gather_finish(zero));
    ZD_TRY(comm_finish(zero->groups[ZERO_SHARD]));
    ZD_TRY(grads_pass(zero, GRADS_MERGED, zero->micro, plan->grad_unit_count));
    ZD_TRY(comm_finish(zero->groups[ZERO_REPLICATE]));
    ZD_TRY(grads_pass(zero, GRADS_SHARED, zero->micro, plan->grad_unit_count));
    ZD_TRY(comm_finish(zero->groups[ZERO_TP]));
    if (!plan->states_on_host) {
        ZD_TRY(round_sums(zero));
        ZD_TRY(norm_begin(zero));
    }
    if (!plan->states_cut) {
        ZD_TRY(gather_grads(zero, ZERO_REPLICATE));
        ZD_TRY(gather_grads(zero, ZERO_SHARD));
    }
    return plan->states_on_host ? grads_pass(
                                          zero, GRADS_SENT, zero->micro,
                                          plan->grad_unit_count)
                                : ZD_OK;
}
