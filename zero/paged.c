/* paged.c - states that do not fit the device: their chunks are on the host and
 * are copied to a few device buffers for the update.
 *
 *     up       | chunk 0 | chunk 1 | chunk 2 |         | chunk 3 | ..
 *     update             | chunk 0 | chunk 1 | chunk 2 | ..
 *     down                         | chunk 0 | chunk 1 | ..
 *
 * Resident states are updated in between, which hides the copies. The last
 * copies down overlap the next step.
 *
 * Not one of offload/'s placements: there the host updates, with gradients
 * copied down and parameters up; here the device updates, and only states are
 * copied that it has no room for. It uses no threads, jobs or norm of the host.
 * Both share offload/guest.h and the layout of a chunk. */
#include "zero/private.h"

#include "base/clock.h"
#include "base/must.h"
#include "offload/cut.h"

#include <stdlib.h>

/* --- life ----------------------------------------------------------------- */

static void list_chunks(const struct zero *zero, struct zero_paged *paged)
{
    size_t most = cut_most(&zero->plan->request.offload), room = 0;
    for (int i = 0; i < zero->extent_count; i++) {
        const struct state_extent *at = &zero->extents[i].at;
        size_t offset = at->spill_offset;
        size_t parts = cut_count(at->spilled, most);
        for (size_t part = 0; part < parts; part++) {
            struct cut cut = cut_at(at->spilled, most, part);
            size_t bytes = state_record_bytes(&at->layout, cut.count);
            ZD_GROW(paged->chunks, room, paged->chunk_count + 1);
            paged->chunks[paged->chunk_count++] = (struct paged_chunk){
                    .extent = i,
                    .begin = cut.begin,
                    .count = cut.count,
                    .offset = offset,
                    .bytes = bytes};
            offset += bytes;
        }
    }
}

enum zd_status paged_begin(struct zero *zero, const struct offload_place *place)
{
    struct zero_paged *paged = &zero->paged;
    list_chunks(zero, paged);
    if (!paged->chunk_count)
        return ZD_OK;
    const struct arena_span *span =
            arena_plan_find(zero->arena->plan, "zero.paged.staging");
    char *staging = arena_span(zero->arena, "zero.paged.staging");
    paged->host = arena_span(zero->arena, "zero.paged");
    if (place) {
        paged->down = place->down;
        paged->up = place->up;
    }
    for (size_t b = 0; b < PAGED_BUFFERS; b++)
        ZD_TRY(guest_create(
                &paged->buffers[b],
                staging + b * (span->bytes / PAGED_BUFFERS)));
    return event_create(&paged->all_left);
}

void paged_end(struct zero *zero)
{
    struct zero_paged *paged = &zero->paged;
    for (int b = 0; b < PAGED_BUFFERS; b++)
        guest_destroy(&paged->buffers[b]);
    event_destroy(paged->all_left);
    free(paged->chunks);
}

/* --- the update ----------------------------------------------------------- */

/* Copies chunk k up after its buffer's last copy down. The last one of the
 * previous step was chunk k or a later one, so chunk k is on the host by
 * then. */
static enum zd_status fetch(struct zero_paged *paged, int k)
{
    const struct paged_chunk *chunk = &paged->chunks[k];
    const struct guest *guest = &paged->buffers[k % PAGED_BUFFERS];
    const struct guest_copy copies[GUEST_COPIES] = {
            {guest->buffer, paged->host + chunk->offset, chunk->bytes}};
    paged->up_bytes += chunk->bytes;
    return guest_move(paged->up, guest->left, copies, guest->arrived);
}

static enum zd_status update_chunk(
        struct zero *zero, int k, const struct optim_step *step)
{
    struct zero_paged *paged = &zero->paged;
    const struct paged_chunk *chunk = &paged->chunks[k];
    const struct guest *guest = &paged->buffers[k % PAGED_BUFFERS];
    const struct extent_memory *extent = &zero->extents[chunk->extent];
    const struct guest_copy copies[GUEST_COPIES] = {
            {paged->host + chunk->offset, guest->buffer, chunk->bytes}};
    double began = clock_seconds();
    ZD_TRY(stream_wait(NULL, guest->arrived));
    paged->wait_seconds += clock_seconds() - began;
    struct optim_span span =
            states_span(zero, extent, chunk->begin, chunk->count);
    struct optim_record record =
            state_record_of(&extent->at.layout, chunk->count);
    span.lanes =
            optim_lanes_in_record(&extent->at.layout, &record, guest->buffer);
    ZD_TRY(optim_device()->update(&span, step));
    ZD_TRY(stream_record(NULL, guest->updated));
    paged->down_bytes += chunk->bytes;
    return guest_move(paged->down, guest->updated, copies, guest->left);
}

enum zd_status paged_update(struct zero *zero, const struct optim_step *step)
{
    struct zero_paged *paged = &zero->paged;
    int count = paged->chunk_count, done = 0;
    for (int k = 0; k < count && k < PAGED_BUFFERS; k++)
        ZD_TRY(fetch(paged, k));
    for (int k = 0; k < count; k++) {
        int until = (int)((int64_t)zero->extent_count * (k + 1) / count);
        for (; done < until; done++)
            ZD_TRY(states_update_resident(zero, &zero->extents[done], step));
        ZD_TRY(update_chunk(zero, k, step));
        if (k + PAGED_BUFFERS < count)
            ZD_TRY(fetch(paged, k + PAGED_BUFFERS));
    }
    return stream_record(paged->down, paged->all_left);
}

/* --- from outside --------------------------------------------------------- */

enum zd_status paged_finish(const struct zero *zero)
{
    return event_wait(zero->paged.all_left);
}

struct lane_memory paged_lane(
        const struct zero *zero, const struct extent_memory *extent, int lane,
        size_t begin, size_t count)
{
    const struct state_extent *at = &extent->at;
    size_t most = cut_most(&zero->plan->request.offload);
    size_t number = begin / most, skip = begin % most;
    size_t held = cut_at(at->spilled, most, number).count;
    struct optim_record record = state_record_of(&at->layout, held);
    size_t before = number * state_record_bytes(&at->layout, most);
    struct optim_lanes lanes = optim_lanes_in_record(
            &at->layout, &record, zero->paged.host + at->spill_offset + before);
    lanes = optim_lanes_from(&at->layout, &lanes, skip);
    return (struct lane_memory){
            .values = lanes.state[lane],
            .scales = lanes.scale[lane],
            .count = count < held - skip ? count : held - skip,
            .on_host = true};
}

struct offload_report paged_report_take(struct zero *zero)
{
    struct zero_paged *paged = &zero->paged;
    if (!paged->chunk_count)
        return (struct offload_report){0};
    double down = stream_counters(paged->down).seconds;
    double up = stream_counters(paged->up).seconds;
    struct offload_report report = {
            .down_bytes = paged->down_bytes,
            .up_bytes = paged->up_bytes,
            .down_seconds = down - paged->down_seconds,
            .up_seconds = up - paged->up_seconds,
            .wait_up_seconds = paged->wait_seconds};
    paged->down_seconds = down;
    paged->up_seconds = up;
    paged->down_bytes = paged->up_bytes = 0;
    paged->wait_seconds = 0;
    return report;
}
