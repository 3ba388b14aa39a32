/* moves.c - the bytes that offload moves in a step. */
#include "train/plan/print.h"

/* Trained elements whose states rank 0 has. */
static uint64_t elements_held(const struct zero_plan *zero)
{
    uint64_t count = 0;
    for (int s = 0; s < zero->segment_count; s++) {
        const struct zero_segment *segment = &zero->segments[s];
        struct zero_extent extent = {.id = -1};
        size_t end = zero->states_cut ? segment->shard_count : segment->count;
        while (segment->trainable && zero_extent_next(zero, s, 0, end, &extent))
            count += extent.count;
    }
    return count;
}

/* Elements of a unit that visit the device, or those that stay there. */
static uint64_t unit_elements(
        const struct zero_plan *zero, int unit, bool persistent)
{
    uint64_t count = 0;
    for (int s = zero->unit_segments[unit]; s < zero->unit_segments[unit + 1];
         s++)
        if (zero->segments[s].persistent == persistent)
            count += zero->segments[s].shard_count;
    return count;
}

/* Parameters on the host: those that persist go up once a step, the others for
 * every gather of its program. */
static uint64_t elements_fetched(const struct zero_plan *zero, int unit_count)
{
    uint64_t count = 0;
    for (int unit = 0; unit < unit_count; unit++)
        count += unit_elements(zero, unit, true);
    for (int m = 0; m < zero->train_move_count; m++)
        if (zero->train_moves[m].acquire && zero->train_moves[m].gather)
            count += unit_elements(zero, zero->train_moves[m].unit, false);
    return count;
}

/* Masters and states are read and written once in a step; parameters on disk
 * are read whenever they are used. */
static void add_disk(const struct job_plan *plan, struct plan_moves *moves)
{
    const struct offload_options *offload = &plan->zero.request.offload;
    moves->knows_disk = offload->optimizer == OFFLOAD_NVME &&
                        offload->params != OFFLOAD_NVME && plan->world == 1;
    if (moves->knows_disk)
        moves->disk = plan->arena.bytes[ARENA_DISK];
}

struct plan_moves plan_moves_of(const struct job_plan *plan)
{
    const struct zero_plan *zero = &plan->zero;
    const struct zero_request *request = &zero->request;
    uint64_t held = elements_held(zero), wide = dtype_bytes(request->dtype);
    uint64_t sums = (uint64_t)plan->accumulation * sizeof(float);
    bool has_frozen = plan->table.trainable < plan->table.total;
    if (request->offload.optimizer == OFFLOAD_NONE ||
        (zero->params_on_host && has_frozen))
        return (struct plan_moves){0};
    uint64_t used = zero->params_on_host
                            ? elements_fetched(zero, plan->table.unit_count)
                            : held;
    struct plan_moves moves = {
            .is_known = true,
            .down = held * (request->accumulate_on_host ? sums : wide),
            .up = used * wide};
    add_disk(plan, &moves);
    return moves;
}
