/* tokens.c - what places of tensor parallelism tell each other: shares of a
 * pass's tokens and scores, whose collectives the model waits for, and sums of
 * gradients; and those of context parallelism: keys and values, or heads.
 *
 * What each place has of a segment (zero_is_shared) has a part of its gradient
 * there. These are summed where this rank's part lies, each place a share of
 * it, and gathered: every place has the same bits, and so the same update. */
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

static enum zd_status places_gather(
        void *ctx, void *all, const void *share, size_t count)
{
    struct zero *zero = ctx;
    return gather(zero, ZERO_TP, all, share, count, zero->plan->request.dtype);
}

static enum zd_status places_scatter(
        void *ctx, void *share, const void *all, size_t count)
{
    return scatter(ctx, ZERO_TP, share, all, count);
}

static enum zd_status places_scores(
        void *ctx, void *all, const void *mine, size_t bytes)
{
    assert(bytes % sizeof(float) == 0);
    return gather(ctx, ZERO_TP, all, mine, bytes / sizeof(float), DTYPE_FP32);
}

static enum zd_status places_keys_gather(
        void *ctx, void *all, const void *share, size_t count)
{
    struct zero *zero = ctx;
    return gather(zero, ZERO_CP, all, share, count, zero->plan->request.dtype);
}

static enum zd_status places_keys_scatter(
        void *ctx, void *share, const void *all, size_t count)
{
    return scatter(ctx, ZERO_CP, share, all, count);
}

static enum zd_status places_heads(
        void *ctx, void *to, const void *from, size_t count)
{
    struct zero *zero = ctx;
    struct comm *places = zero->groups[ZERO_CP];
    struct comm_op *op;
    ZD_TRY(comm_all_to_all_begin(
            places, from, to, count, zero->plan->request.dtype, &op));
    return comm_wait(places, op);
}

void places_hooks(struct zero *zero, struct model_hooks *hooks)
{
    hooks->places = zero;
    hooks->tokens_gather = places_gather;
    hooks->tokens_scatter = places_scatter;
    hooks->scores_gather = places_scores;
    hooks->kv_gather = places_keys_gather;
    hooks->kv_scatter = places_keys_scatter;
    hooks->heads_exchange = places_heads;
}

/* --- gradients of what places share --------------------------------------- */

/* All of a part, so that each rank sends as much: what is the place's own is
 * kept, and put back. */
static enum zd_status share_segment(
        struct zero *zero, int s, char *part, struct lease *lease)
{
    const struct zero_segment *segment = &zero->plan->segments[s];
    enum dtype type = zero->plan->grad_dtype;
    struct op_queue *ops = &zero->ops[ZERO_TP];
    size_t count = segment->part_count / (size_t)zero->places.size;
    char *mine = part + (size_t)zero->places.place * count * dtype_bytes(type);
    size_t own = zero_own(
            segment, (size_t)zero->part * segment->part_count,
            segment->part_count);
    struct token summed = {0}, gathered = {0};
    if (!zero_is_shared(segment))
        return ZD_OK;
    if (own)
        ZD_TRY(device_move(zero->own, part, own * dtype_bytes(type)));
    ZD_TRY(ops_reduce_scatter(ops, part, mine, count, type, false, &summed));
    ZD_TRY(token_wait(NULL, summed));
    ZD_TRY(ops_all_gather(ops, mine, part, count, type, &gathered));
    lease_note(lease, gathered);
    if (!own)
        return ZD_OK;
    ZD_TRY(token_wait(NULL, gathered));
    return device_move(part, zero->own, own * dtype_bytes(type));
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
        ZD_TRY(grads_each_part(
                zero, plan->grad_units[zero->shared % count], "places",
                share_segment));
    return ZD_OK;
}
