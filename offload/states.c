/* states.c - masters and states for checkpoints, and from them. */
#include "offload/cut.h"
#include "offload/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A run's elements begin .. begin + count - 1 of one lane, in the caller's
 * arrays; NULL: not wanted. */
struct lane_range {
    int run, lane;
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

/* The part of the range that lies in the chunk. */
static void copy_part(
        const struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory, const struct lane_range *range)
{
    const struct offload_request *request = &offload->request;
    size_t chunk_end = chunk->begin + chunk->count;
    size_t range_end = range->begin + range->count;
    size_t from = chunk->begin > range->begin ? chunk->begin : range->begin;
    size_t end = chunk_end < range_end ? chunk_end : range_end;
    size_t inside = from - chunk->begin, outside = from - range->begin;
    if (range->lane == OPTIM_LANES) {
        size_t wide = dtype_bytes(offload_master_type(request->optim));
        copy_either(
                range->writes, memory->master, range->values, inside * wide,
                outside * wide, (end - from) * wide);
        return;
    }
    enum optim_format format =
            request->runs[range->run].layout.lane[range->lane];
    if (memory->lanes.state[range->lane] && range->values)
        copy_either(
                range->writes, memory->lanes.state[range->lane], range->values,
                optim_lane_bytes(format, inside),
                optim_lane_bytes(format, outside),
                optim_lane_bytes(format, end - from));
    if (memory->lanes.scale[range->lane] && range->scales)
        copy_either(
                range->writes, memory->lanes.scale[range->lane], range->scales,
                optim_scale_count(format, inside) * sizeof(float),
                optim_scale_count(format, outside) * sizeof(float),
                optim_scale_count(format, end - from) * sizeof(float));
}

static unsigned part_of(int lane)
{
    return lane == OPTIM_M ? CHUNK_M : lane == OPTIM_V ? CHUNK_V : CHUNK_MASTER;
}

static enum zd_status copy_range(
        struct offload *offload, const struct lane_range *range)
{
    size_t most = cut_most(offload->request.options);
    int first = offload->run_chunks[range->run] + (int)(range->begin / most);
    int end = offload->run_chunks[range->run] +
              (int)cut_count(range->begin + range->count, most);
    assert(range->begin % OPTIM_QBLOCK == 0);
    assert(range->begin + range->count <=
           offload->request.runs[range->run].count);
    ZD_TRY(offload_finish(offload));
    if (!range->count)
        return ZD_OK;
    if (offload->is_in_file)
        ZD_TRY(chunk_list_begin(
                offload, first, end - first, part_of(range->lane),
                range->writes ? part_of(range->lane) : 0));
    for (int c = first; c < end; c++) {
        struct chunk_memory memory;
        ZD_TRY(chunk_acquire(offload, c, &memory));
        if (range->writes)
            keep_chunk(offload->keep, c, &memory);
        copy_part(offload, &offload->chunks[c], &memory, range);
        ZD_TRY(chunk_release(offload, c));
    }
    return ZD_OK;
}

enum zd_status offload_read(
        struct offload *offload, int run, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    struct lane_range range = {run, lane, begin, count, values, scales, false};
    return copy_range(offload, &range);
}

enum zd_status offload_write(
        struct offload *offload, int run, int lane, size_t begin, size_t count,
        const void *values, const float *scales)
{
    /* only read from: `writes` says so */
    struct lane_range range = {run,
                               lane,
                               begin,
                               count,
                               (void *)(uintptr_t)values,
                               (float *)(uintptr_t)scales,
                               true};
    return copy_range(offload, &range);
}

/* --- while updates go on -------------------------------------------------- */

enum zd_status offload_keep_create(
        struct offload *offload, void *memory, size_t bytes)
{
    assert(!offload->is_in_file && !offload->keep);
    return keep_create(
            &offload->request, offload->chunks, offload->chunk_count, memory,
            bytes, &offload->keep);
}

enum zd_status offload_keep_bytes(
        const struct offload_request *request, size_t *bytes_out)
{
    int count = chunks_cut(request, NULL);
    struct chunk *chunks = calloc((size_t)count + 1, sizeof *chunks);
    if (!chunks)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning offload");
    chunks_cut(request, chunks);
    *bytes_out = keep_bytes(request, chunks, count);
    free(chunks);
    return ZD_OK;
}

void offload_keep_begin(struct offload *offload)
{
    assert(jobs_have_ended(offload));
    keep_begin(offload->keep);
}

/* A part of a run within a chunk. */
struct overlap {
    int chunk;
    size_t skip, count; /* elements of the chunk */
};

static struct overlap overlap_at(
        const struct offload *offload, int run, size_t begin, size_t count)
{
    size_t most = cut_most(offload->request.options);
    size_t skip = begin % most, room = most - skip;
    return (struct overlap){
            .chunk = offload->run_chunks[run] + (int)(begin / most),
            .skip = skip,
            .count = count < room ? count : room};
}

void offload_keep_want(
        struct offload *offload, int run, size_t begin, size_t count,
        bool moments)
{
    for (size_t done = 0; done < count;) {
        struct overlap at =
                overlap_at(offload, run, begin + done, count - done);
        keep_want(offload->keep, at.chunk, at.count, moments);
        done += at.count;
    }
}

void offload_keep_open(struct offload *offload)
{
    keep_open(offload->keep);
}

enum zd_status offload_keep_read(
        struct offload *offload, int run, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    size_t wide = dtype_bytes(offload_master_type(offload->request.optim));
    const struct optim_layout *layout = &offload->request.runs[run].layout;
    for (size_t done = 0; done < count;) {
        struct overlap at =
                overlap_at(offload, run, begin + done, count - done);
        struct chunk_memory live;
        size_t bytes = lane == OPTIM_LANES
                               ? done * wide
                               : optim_lane_bytes(layout->lane[lane], done);
        ZD_TRY(chunk_acquire(offload, at.chunk, &live));
        keep_read(
                offload->keep, at.chunk, &live, lane, at.skip, at.count,
                values ? (char *)values + bytes : NULL,
                scales ? scales + optim_scale_count(layout->lane[lane], done)
                       : NULL);
        ZD_TRY(chunk_release(offload, at.chunk));
        done += at.count;
    }
    return ZD_OK;
}

void offload_keep_end(struct offload *offload)
{
    keep_end(offload->keep);
}

double offload_keep_waited(struct offload *offload)
{
    return keep_waited(offload->keep);
}
