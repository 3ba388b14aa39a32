/* tokens.c - what places of tensor parallelism tell each other: shares of a
 * pass's tokens and scores, whose collectives the model waits for, and sums of
 * gradients; and those of context parallelism: keys and values, or heads.
 *
 * A tensor that is whole on each place (zero_segment.is_whole) has a part of
 * its gradient there. These are summed where this rank's part lies, each place
 * a share of it, and gathered: every place has the same bits, and so the same
 * update. */
#include "zero/private.h"

#include <assert.h>

/* --- the model's hooks ---------------------------------------------------- */

static enum zd_status gather(
        struct zero *zero, enum zero_group group, void *all, const void *share,
        size_t count, enum dtype type)
{
    struct comm *places = zero->groups[group];
    struct comm_op *op;
    ZD_TRY(comm_all_gather_begin(places, share, all, count, type, &op));
    return comm_wait(places, op);
}

static enum zd_status scatter(
        struct zero *zero, enum zero_group group, void *share, const void *all,
        size_t count)
{
    struct comm *places = zero->groups[group];
    struct comm_op *op;
    ZD_TRY(comm_reduce_scatter_begin(
            places, all, share, count, zero->plan->request.dtype, false, &op));
    return comm_wait(places, op);
}

enum zd_status places_gather(
        void *ctx, void *all, const void *share, size_t count)
{
    struct zero *zero = ctx;
    return gather(zero, ZERO_TP, all, share, count, zero->plan->request.dtype);
}

enum zd_status places_scatter(
        void *ctx, void *share, const void *all, size_t count)
{
    return scatter(ctx, ZERO_TP, share, all, count);
}

enum zd_status places_scores(
        void *ctx, void *all, const void *mine, size_t bytes)
{
    assert(bytes % sizeof(float) == 0);
    return gather(ctx, ZERO_TP, all, mine, bytes / sizeof(float), DTYPE_FP32);
}

enum zd_status places_keys_gather(
        void *ctx, void *all, const void *share, size_t count)
{
    struct zero *zero = ctx;
    return gather(zero, ZERO_CP, all, share, count, zero->plan->request.dtype);
}

enum zd_status places_keys_scatter(
        void *ctx, void *share, const void *all, size_t count)
{
    return scatter(ctx, ZERO_CP, share, all, count);
}

enum zd_status places_heads(void *ctx, void *to, const void *from, size_t count)
{
    struct zero *zero = ctx;
    struct comm *places = zero->groups[ZERO_CP];
    struct comm_op *op;
    ZD_TRY(comm_all_to_all_begin(
            places, from, to, count, zero->plan->request.dtype, &op));
    return comm_wait(places, op);
}

/* --- gradients of whole tensors ------------------------------------------- */

static enum zd_status share_segment(
        struct zero *zero, const struct zero_segment *segment, char *part,
        struct token *gathered_out)
{
    enum dtype type = zero->plan->grad_dtype;
    struct op_queue *ops = &zero->ops[ZERO_TP];
    size_t count = segment->part_count / (size_t)zero->places.size;
    char *mine = part + (size_t)zero->places.place * count * dtype_bytes(type);
    struct token summed = {0};
    ZD_TRY(ops_reduce_scatter(ops, part, mine, count, type, false, &summed));
    ZD_TRY(token_wait(NULL, summed));
    return ops_all_gather(ops, mine, part, count, type, gathered_out);
}

static enum zd_status share_unit(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    bool is_work = plan->grads_pass && plan->shards == 1;
    struct lease *lease =
            is_work ? &zero->grad_work[unit] : &zero->grad_parts[unit];
    char *shard = grads_passing(zero, unit);
    ZD_TRY(lease_take(lease, LEASE_CHANGE, "places", NULL));
    for (int s = plan->unit_segments[unit]; s < plan->unit_segments[unit + 1];
         s++) {
        const struct zero_segment *segment = &plan->segments[s];
        size_t part = (size_t)zero->replicas.place * segment->part_count;
        struct token gathered = {0};
        if (!segment->trainable)
            continue;
        if (segment->is_whole) {
            ZD_TRY(share_segment(
                    zero, segment,
                    plan->grads_pass ? shard + part * bytes
                                     : zero->memory[s].grad_part,
                    &gathered));
            lease_note(lease, gathered);
        }
        shard += segment->shard_count * bytes;
    }
    lease_release(lease, (struct token){0});
    return ZD_OK;
}

enum zd_status places_share(struct zero *zero, int micro, int end)
{
    const struct zero_plan *plan = zero->plan;
    int count = plan->grad_unit_count;
    if (!zero_has(zero, ZERO_TP))
        return ZD_OK;
    if (plan->grads_pass)
        end += micro * count;
    for (; zero->shared < end; zero->shared++)
        ZD_TRY(share_unit(zero, plan->grad_units[zero->shared % count]));
    return ZD_OK;
}
