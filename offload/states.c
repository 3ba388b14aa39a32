/* states.c - masters and states for checkpoints, and from them. */
#include "base/must.h"
#include "offload/cut.h"
#include "offload/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* An extent's elements begin .. begin + count - 1 of one lane, in the caller's
 * arrays; NULL: not wanted. */
struct lane_range {
    int extent, lane;
    size_t begin, count;
    void *values;
    float *scales;
    bool writes;
};

static void copy_either(
        bool writes, void *chunk, void *caller, size_t chunk_skip,
        size_t caller_skip, size_t bytes)
{
    char *inside = (char *)chunk + chunk_skip;
    char *outside = (char *)caller + caller_skip;
    memcpy(writes ? inside : outside, writes ? outside : inside, bytes);
}

/* The elements of a range that one chunk holds. */
struct part {
    int chunk;
    size_t skip, done,
            count; /* before it in the chunk, in the range; its own */
};

/* The next part, after all zero; false: there is none. */
static bool part_next(
        const struct offload *offload, int extent, size_t begin, size_t count,
        struct part *part)
{
    size_t most = cut_most(offload->request.options);
    size_t done = part->done + part->count, left = count - done;
    size_t skip = (begin + done) % most;
    if (!left)
        return false;
    *part = (struct part){
            .chunk = offload->extent_chunks[extent] +
                     (int)((begin + done) / most),
            .skip = skip,
            .done = done,
            .count = left < most - skip ? left : most - skip};
    return true;
}

/* Returns how many arrays were copied. */
static int copy_part(
        const struct offload *offload, const struct part *part,
        const struct chunk_memory *memory, const struct lane_range *range)
{
    const struct offload_request *request = &offload->request;
    size_t skip = part->skip, done = part->done, count = part->count;
    if (range->lane == OPTIM_LANES) {
        size_t wide = dtype_bytes(offload_master_type(request->optim));
        copy_either(
                range->writes, memory->master, range->values, skip * wide,
                done * wide, count * wide);
        return 1;
    }
    enum optim_format format =
            request->extents[range->extent].layout.lane[range->lane];
    void *values = memory->lanes.state[range->lane];
    float *scales = memory->lanes.scale[range->lane];
    bool has_values = values && range->values,
         has_scales = scales && range->scales;
    if (has_values)
        copy_either(
                range->writes, values, range->values,
                optim_lane_bytes(format, skip), optim_lane_bytes(format, done),
                optim_lane_bytes(format, count));
    if (has_scales)
        copy_either(
                range->writes, scales, range->scales,
                optim_scale_count(format, skip) * sizeof(float),
                optim_scale_count(format, done) * sizeof(float),
                optim_scale_count(format, count) * sizeof(float));
    return has_values + has_scales;
}

static unsigned part_of(int lane)
{
    return lane == OPTIM_M ? CHUNK_M : lane == OPTIM_V ? CHUNK_V : CHUNK_MASTER;
}

static enum zd_status copy_range(
        struct offload *offload, const struct lane_range *range)
{
    size_t most = cut_most(offload->request.options), begin = range->begin;
    int first = offload->extent_chunks[range->extent] + (int)(begin / most);
    int end = offload->extent_chunks[range->extent] +
              (int)cut_count(begin + range->count, most);
    const struct offload_extent *extent =
            &offload->request.extents[range->extent];
    assert(begin % OPTIM_QBLOCK == 0 || range->lane == OPTIM_LANES ||
           extent->layout.lane[range->lane] != OPTIM_8BIT);
    assert(begin + range->count <= extent->count);
    ZD_TRY(offload_finish(offload));
    if (!range->count)
        return ZD_OK;
    if (offload->file)
        ZD_TRY(chunk_list_begin(
                offload, first, end - first, part_of(range->lane),
                range->writes ? part_of(range->lane) : 0));
    struct part part = {0};
    while (part_next(offload, range->extent, begin, range->count, &part)) {
        struct chunk_memory memory;
        ZD_TRY(chunk_acquire(offload, part.chunk, &memory));
        if (range->writes)
            snapshot_before_write(offload->snapshot, part.chunk, &memory);
        copy_part(offload, &part, &memory, range);
        ZD_TRY(chunk_release(offload, part.chunk));
    }
    return ZD_OK;
}

enum zd_status offload_read(
        struct offload *offload, int extent, int lane, size_t begin,
        size_t count, void *values, float *scales)
{
    struct lane_range range = {extent, lane,   begin, count,
                               values, scales, false};
    return copy_range(offload, &range);
}

enum zd_status offload_write(
        struct offload *offload, int extent, int lane, size_t begin,
        size_t count, const void *values, const float *scales)
{
    /* only read from: `writes` says so */
    struct lane_range range = {
            extent,
            lane,
            begin,
            count,
            (void *)(uintptr_t)values,
            (float *)(uintptr_t)scales,
            true};
    return copy_range(offload, &range);
}

/* --- while updates go on -------------------------------------------------- */

void offload_snapshot_create(
        struct offload *offload, void *memory, size_t bytes)
{
    assert(!offload->file && !offload->snapshot);
    offload->snapshot = snapshot_create(
            &offload->request, offload->chunks, offload->chunk_count, memory,
            bytes);
}

size_t offload_snapshot_bytes(const struct offload_request *request)
{
    int count = chunks_cut(request, NULL);
    struct chunk *chunks = zd_array((size_t)count, sizeof *chunks);
    chunks_cut(request, chunks);
    size_t bytes = snapshot_bytes(request, chunks, count);
    free(chunks);
    return bytes;
}

void offload_snapshot_begin(struct offload *offload, bool moments)
{
    assert(jobs_have_ended(offload));
    snapshot_begin(offload->snapshot, moments);
}

void offload_snapshot_want(
        struct offload *offload, int extent, size_t begin, size_t count)
{
    struct part part = {0};
    while (part_next(offload, extent, begin, count, &part))
        snapshot_want(offload->snapshot, part.chunk, part.count);
}

void offload_snapshot_open(struct offload *offload)
{
    snapshot_open(offload->snapshot);
}

enum zd_status offload_snapshot_read(
        struct offload *offload, int extent, int lane, size_t begin,
        size_t count, void *values, float *scales)
{
    struct lane_range range = {extent, lane,   begin, count,
                               values, scales, false};
    struct part part = {0};
    while (part_next(offload, extent, begin, count, &part)) {
        struct chunk_memory live;
        ZD_TRY(chunk_acquire(offload, part.chunk, &live));
        const struct chunk_memory *then =
                snapshot_read_begin(offload->snapshot, part.chunk, &live);
        int arrays = copy_part(offload, &part, then, &range);
        snapshot_read_end(offload->snapshot, part.chunk, part.count, arrays);
        ZD_TRY(chunk_release(offload, part.chunk));
    }
    return ZD_OK;
}

void offload_snapshot_end(struct offload *offload)
{
    snapshot_end(offload->snapshot);
}

double offload_snapshot_waited(struct offload *offload)
{
    return snapshot_waited(offload->snapshot);
}
