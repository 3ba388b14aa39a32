/* tokens.c - exchanges of tensor parallelism (a pass's tokens and scores, for
 * which the model waits, and gradient sums) and of context parallelism (keys
 * and values, or heads).
 *
 * For elements that every place has (zero_is_shared) each place computes a part
 * of the gradient. Within this rank's part, each place sums a share of them,
 * and the shares are gathered: every place gets the same bits, and so the same
 * update. */
#include "zero/private.h"

/* --- the model's hook ----------------------------------------------------- */

enum zd_status places_exchange(
        void *ctx, enum places_call call, void *to, const void *from,
        size_t count)
{
    static const struct {
        enum zero_group group;
        enum comm_op_kind kind;
    } ways[] = {
            [PLACES_TOKENS_GATHER] = {ZERO_TP, COMM_ALL_GATHER},
            [PLACES_TOKENS_SCATTER] = {ZERO_TP, COMM_REDUCE_SCATTER},
            [PLACES_SCORES_GATHER] = {ZERO_TP, COMM_ALL_GATHER},
            [PLACES_KV_GATHER] = {ZERO_CP, COMM_ALL_GATHER},
            [PLACES_KV_SCATTER] = {ZERO_CP, COMM_REDUCE_SCATTER},
            [PLACES_HEADS] = {ZERO_CP, COMM_ALL_TO_ALL}};
    struct zero *zero = ctx;
    struct comm *places = zero->groups[ways[call].group];
    bool is_fp32 = call == PLACES_SCORES_GATHER;
    struct comm_op request = {
            .kind = ways[call].kind,
            .from = from,
            .to = to,
            .count = count,
            .type = is_fp32 ? DTYPE_FP32 : zero->plan->request.dtype};
    struct comm_op *op;
    ZD_TRY(comm_begin(places, &request, &op));
    return comm_wait(places, op);
}

/* --- gradients of what places share --------------------------------------- */

/* Sums the whole part, so that each rank sends equally much: the place's own
 * elements are saved and restored. */
enum zd_status places_share(
        struct zero *zero, int s, int micro, char *part, struct lease *lease)
{
    const struct zero_segment *segment = &zero->plan->segments[s];
    size_t width = dtype_bytes(zero->plan->grad_dtype);
    size_t count = segment->part_count / (size_t)zero->places.size;
    struct comm *places = zero->groups[ZERO_TP];
    char *mine = part + (size_t)zero->places.place * count * width;
    size_t own = zero_own(
            segment, (size_t)zero->part * segment->part_count,
            segment->part_count);
    struct comm_op op = {
            .kind = COMM_REDUCE_SCATTER,
            .from = part,
            .to = mine,
            .count = count,
            .type = zero->plan->grad_dtype};
    struct token summed = {0}, gathered = {0};
    (void)micro;
    if (!zero_is_shared(segment))
        return ZD_OK;
    if (own)
        ZD_TRY(device_move(zero->own, part, own * width));
    ZD_TRY(comm_queue(places, &op, &summed));
    ZD_TRY(token_wait(NULL, summed));
    op.kind = COMM_ALL_GATHER;
    op.from = mine;
    op.to = part;
    ZD_TRY(comm_queue(places, &op, &gathered));
    lease_note(lease, gathered);
    if (!own)
        return ZD_OK;
    ZD_TRY(token_wait(NULL, gathered));
    return device_move(part, zero->own, own * width);
}
