/* measure.c - memory and disk that a rank's engine needs. */
#include "offload/engine.h"

#include <string.h>

static void measure_slots(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS])
{
    size_t count = 0, wide = dtype_bytes(request->dtype);
    for (int s = 0; s < request->segment_count; s++)
        count += request->segment_counts[s];
    if (request->accumulates)
        bytes[OFFLOAD_ACCUMULATORS] = count * sizeof(float);
    else if (!offload_grads_in_file(request))
        bytes[OFFLOAD_SLOTS] = count * wide;
    if (request->accumulates && request->params_on_host &&
        !offload_params_in_file(request))
        bytes[OFFLOAD_PARAMS] = count * wide;
    bytes[OFFLOAD_STAGING] = stage_bytes(request);
}

/* Bytes of old masters, states and gradients of the last segments. Returns the
 * first of them: `least`, or as many as fit `memory`. */
static int measure_undo(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, int least, uint64_t memory, size_t *bytes_out)
{
    size_t wide = dtype_bytes(offload_grad_type(request));
    int first = request->segment_count, c = chunk_count;
    *bytes_out = 0;
    for (; first > least; first--) {
        size_t bytes = request->segment_counts[first - 1] * wide;
        for (; c > 0 && chunks[c - 1].segment == first - 1; c--)
            bytes += record_bytes(request, &chunks[c - 1], RECORD_ALIGN);
        if (bytes > memory - *bytes_out)
            break;
        *bytes_out += bytes;
    }
    return first;
}

int offload_undo_first(const struct offload_request *request)
{
    size_t bytes;
    int count, first = request->segment_count;
    if (request->options->clipping != OFFLOAD_CLIP_UNDO)
        return first;
    ZD_FREED struct chunk *chunks = chunks_cut(request, &count);
    first = measure_undo(
            request, chunks, count, 0, request->options->undo_memory, &bytes);
    while (first < request->segment_count && !request->segment_counts[first])
        first++;
    return first;
}

/* Masters and states are in a file, with a ring in memory, or in memory; there
 * undo keeps a second copy, with gradients. */
void offload_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS])
{
    int count;
    ZD_FREED struct chunk *chunks = chunks_cut(request, &count);
    memset(bytes, 0, OFFLOAD_PARTS * sizeof bytes[0]);
    measure_slots(request, bytes);
    if (request->options->optimizer == OFFLOAD_NVME)
        store_file_measure(
                request, chunks, count, &bytes[OFFLOAD_RING],
                &bytes[OFFLOAD_FILE]);
    else
        bytes[OFFLOAD_STATES] =
                records_place(request, chunks, count, RECORD_ALIGN, NULL);
    measure_undo(
            request, chunks, count, request->undo_first, UINT64_MAX,
            &bytes[OFFLOAD_UNDO]);
    bytes[OFFLOAD_VISITS] = visits_bytes(request, chunks, count);
}

enum zd_status offload_plan_spans(
        const size_t bytes[OFFLOAD_PARTS], struct arena_plan *plan)
{
    for (int part = 0; part < OFFLOAD_PARTS; part++) {
        enum arena_memory memory = part_spans[part].memory;
        if (part == OFFLOAD_STATES && bytes[OFFLOAD_VISITS])
            memory = ARENA_PINNED;
        if (bytes[part])
            ZD_TRY(arena_plan_add(
                    plan, part_spans[part].name, memory, part_spans[part].kind,
                    bytes[part]));
    }
    return ZD_OK;
}

enum zd_status offload_check(
        const struct offload_options *options,
        const size_t bytes[OFFLOAD_PARTS], int local_size)
{
    return options->optimizer == OFFLOAD_NVME
                   ? store_file_check(options, bytes[OFFLOAD_FILE], local_size)
                   : ZD_OK;
}

/* --- options ---------------------------------------------------------------
 */

struct offload_options offload_options_default(void)
{
    return (struct offload_options){
            .undo_memory = OFFLOAD_UNDO_AUTO,
            .device_update = -1,
            .aio = {.block_bytes = 1048576, .queue_depth = 8},
    };
}
