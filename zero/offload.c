/* offload.c - zero's calls to the offload engine in a step. */
#include "base/must.h"
#include "zero/private.h"

#include <assert.h>
#include <stdlib.h>

/* --- life ----------------------------------------------------------------- */

static enum zd_status take_tables(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_offload *offload = &zero->offload;
    size_t segments = (size_t)plan->segment_count;
    size_t slots = (size_t)(plan->outer_slots + plan->layer_slots);
    size_t extents = (size_t)offload->request.extent_count;
    offload->waited = zd_array(segments, sizeof *offload->waited);
    offload->ready = zd_array(segments, sizeof *offload->ready);
    offload->arrived = zd_array(slots, sizeof *offload->arrived);
    offload->left = zd_array(slots, sizeof *offload->left);
    offload->extent_sums = zd_array(extents, sizeof *offload->extent_sums);
    offload->extent_blocks = zd_array(extents, sizeof *offload->extent_blocks);
    for (size_t s = 0; s < segments; s++)
        ZD_TRY(timeline_create(&offload->ready[s]));
    if (!plan->params_on_host)
        return ZD_OK;
    for (size_t i = 0; i < slots; i++) {
        ZD_TRY(timeline_create(&offload->arrived[i]));
        ZD_TRY(timeline_create(&offload->left[i]));
    }
    return ZD_OK;
}

/* Adam-mini: where the sums and v of each extent's tensor begin; NULL: this
 * rank does not sum them. */
static void point_blocks(struct zero *zero)
{
    struct zero_offload *offload = &zero->offload;
    for (int i = 0; i < zero->extent_count; i++) {
        const struct state_extent *at = &zero->extents[i].at;
        size_t first = zero->plan->places[at->extent.id].blocks;
        if (at->layout.lane[OPTIM_V] != OPTIM_BLOCKS)
            continue;
        if (states_count(zero))
            offload->extent_sums[i] = zero->block_sums + 2 * first;
        offload->extent_blocks[i] = zero->block_v + first;
    }
}

/* Parameters that stay on the device are copied back where they are used. */
static void point_params(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    for (int s = 0; s < plan->segment_count; s++) {
        const struct segment_memory *memory = &zero->memory[s];
        void *params = plan->states_cut ? memory->part : memory->full;
        if (plan->segments[s].trainable && !plan->params_on_host)
            offload_params_to(zero->offload.engine, s, params);
    }
}

enum zd_status host_begin(struct zero *zero, const struct offload_place *place)
{
    struct zero_offload *offload = &zero->offload;
    if (!zero->plan->states_on_host)
        return ZD_OK;
    assert(place);
    offload->request = plan_request_of(zero->plan, zero->part, zero->began);
    ZD_TRY(take_tables(zero));
    ZD_TRY(offload_create(
            &offload->request, zero->arena, place, &offload->engine));
    point_blocks(zero);
    point_params(zero);
    return ZD_OK;
}

void host_end(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_offload *offload = &zero->offload;
    offload_destroy(offload->engine);
    for (int s = 0; offload->ready && s < plan->segment_count; s++)
        timeline_destroy(&offload->ready[s]);
    for (int i = 0; offload->arrived && offload->left &&
                    i < plan->outer_slots + plan->layer_slots;
         i++) {
        timeline_destroy(&offload->arrived[i]);
        timeline_destroy(&offload->left[i]);
    }
    free(offload->arrived);
    free(offload->left);
    free(offload->ready);
    free(offload->waited);
    free(offload->extent_sums);
    free(offload->extent_blocks);
    plan_request_free(&offload->request);
}

/* --- the step ------------------------------------------------------------- */

void zero_step_expect(struct zero *zero, const struct optim_step *unclipped)
{
    const struct zero_plan *plan = zero->plan;
    /* Adam-mini's blocks need sums over all gradients */
    if (plan->states_on_host && !plan->block_count &&
        plan->request.offload.clipping == OFFLOAD_CLIP_UNDO)
        offload_step_begin(zero->offload.engine, unclipped);
}

enum zd_status host_update(struct zero *zero, const struct optim_step *step)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_offload *offload = &zero->offload;
    ZD_TRY(offload_update(
            offload->engine, step,
            plan->block_count ? offload->extent_blocks : NULL));
    offload->updates++;
    return ZD_OK;
}

enum zd_status zero_skip(struct zero *zero)
{
    return zero->offload.engine ? offload_skip(zero->offload.engine) : ZD_OK;
}

/* Wait once per update for a segment's parameters: the compute stream is
 * ordered after them from then on. */
enum zd_status host_segment_wait(struct zero *zero, int s)
{
    struct zero_offload *offload = &zero->offload;
    if (!offload->engine || !zero->plan->segments[s].trainable ||
        zero->plan->params_on_host || offload->waited[s] == offload->updates)
        return ZD_OK;
    offload->waited[s] = offload->updates;
    return offload_params_wait(offload->engine, s);
}

/* --- parameters on the host ----------------------------------------------- */

enum zd_status host_unit_up(struct zero *zero, int unit, int slot, char *out)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_offload *offload = &zero->offload;
    struct timeline *arrived = &offload->arrived[slot];
    struct lease *lease = &zero->slot_leases[slot];
    struct lease_tokens tokens = lease_acquire(lease, LEASE_FILL, "copies up");
    for (int i = 0; i < tokens.count; i++)
        ZD_TRY(offload_up_after(offload->engine, tokens.token[i]));
    for (ZERO_EACH(s, plan, unit)) {
        const struct zero_segment *segment = &plan->segments[s];
        size_t bytes = zero_segment_bytes(segment, segment->part_count);
        char *mine = out + (size_t)zero->part * bytes;
        out += zero_segment_bytes(segment, segment->count);
        if (segment->trainable) {
            ZD_TRY(offload_params_up(offload->engine, s, mine, arrived));
            continue;
        }
        ZD_TRY(offload_copy_up(
                offload->engine, zero->memory[s].shard, mine, bytes, arrived));
    }
    lease_release(lease, timeline_last(arrived));
    return ZD_OK;
}

enum zd_status host_unit_made(struct zero *zero, int unit)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_offload *offload = &zero->offload;
    for (ZERO_EACH(s, plan, unit))
        if (plan->segments[s].trainable)
            ZD_TRY(offload_update_wait(offload->engine, s));
    return ZD_OK;
}

/* --- what it did ---------------------------------------------------------- */

enum zd_status zero_settle(struct zero *zero)
{
    ZD_TRY(params_gather_finish(zero));
    if (!zero->offload.engine)
        return paged_finish(zero);
    return offload_finish(zero->offload.engine);
}

struct offload_facts zero_offload_facts(const struct zero *zero)
{
    return zero->offload.engine ? offload_facts(zero->offload.engine)
                                : (struct offload_facts){0};
}

void zero_set_spans(struct zero *zero, struct spans *spans)
{
    if (zero->offload.engine)
        offload_set_spans(zero->offload.engine, spans);
}

struct offload_report zero_offload_report(struct zero *zero)
{
    struct zero_offload *offload = &zero->offload;
    return offload->engine ? offload_report_take(offload->engine)
                           : paged_report_take(zero);
}
