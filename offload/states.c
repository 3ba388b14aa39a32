/* states.c - masters and states, read for checkpoints and loaded from them. */
#include "base/clock.h"
#include "base/must.h"
#include "offload/cut.h"
#include "offload/engine.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
    size_t skip, done, count; /* elements before it in the chunk, and in the
                                 range; its own */
};

/* The next part; starts with an all-zero one. False: none left. */
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
        const struct chunk_memory *memory, const struct offload_lane *range)
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

enum zd_status offload_move(
        struct offload *offload, const struct offload_lane *range)
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
    offload->has_states |= range->writes && range->lane != OPTIM_LANES;
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

/* --- while updates go on -------------------------------------------------- */

/* Masters and states of one moment, for a thread that reads them during
 * updates: copy on write. Nothing is copied at that moment; an update that
 * reaches a chunk before the reader first copies it.
 *
 *   state     who may touch the chunk                left by
 *   GONE      updates; the old values are not wanted .._want (trainer)
 *   LIVE      no one; unchanged so far               the reader, an update
 *   READING   the reader reads it where it lies      the reader: LIVE, or GONE
 *                                                    when it has read all of it
 *   COPYING   an update's worker copies it           the worker: COPIED
 *   COPIED    updates; the reader reads the copy     the reader: GONE, and the
 *                                                    copy's memory is free
 *
 * An update that finds no room for a copy waits for the reader, which waits
 * only for a worker that copies. A reader that gives up must say so
 * (offload_snapshot_end) from its own thread: the trainer may be waiting for
 * the update.
 *
 * States change under the lock. */
enum state { GONE, LIVE, READING, COPYING, COPIED };

struct saved { /* state of a chunk */
    enum state state;
    size_t left; /* elements of each array that the reader still needs */
    char *room;  /* for its copy; NULL: none yet */
    struct chunk_memory copy; /* COPIED */
};

struct snapshot {
    const struct offload *of;
    bool has_all; /* every chunk has its own room */
    bool moments;
    _Atomic bool is_open;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct saved *saved; /* by chunk */
    char **free;         /* free rooms, if each fits any chunk */
    int free_count;
    int waiting; /* workers */
    double waiting_since, waited;
};

/* Divides the memory into a room for each chunk, or into rooms for the
 * largest. */
static void place_rooms(struct snapshot *snapshot, char *memory, size_t bytes)
{
    const struct offload_request *request = &snapshot->of->request;
    const struct chunk *chunks = snapshot->of->chunks;
    size_t largest = record_largest(
            request, chunks, snapshot->of->chunk_count, RECORD_ALIGN);
    for (int c = 0; snapshot->has_all && c < snapshot->of->chunk_count; c++) {
        snapshot->saved[c].room = memory;
        memory += record_bytes(request, &chunks[c], RECORD_ALIGN);
    }
    if (snapshot->has_all)
        return;
    snapshot->free_count = (int)(bytes / largest);
    snapshot->free =
            zd_array((size_t)snapshot->free_count, sizeof *snapshot->free);
    for (int i = 0; i < snapshot->free_count; i++)
        snapshot->free[i] = memory + (size_t)i * largest;
}

void offload_snapshot_create(
        struct offload *offload, void *memory, size_t bytes)
{
    struct snapshot *snapshot = zd_array(1, sizeof *snapshot);
    size_t count = (size_t)offload->chunk_count;
    assert(!offload->file && !offload->snapshot);
    offload->snapshot = snapshot;
    snapshot->of = offload;
    snapshot->saved = zd_array(count, sizeof *snapshot->saved);
    snapshot->has_all = bytes >= offload_snapshot_bytes(&offload->request);
    pthread_mutex_init(&snapshot->lock, NULL);
    pthread_cond_init(&snapshot->changed, NULL);
    place_rooms(snapshot, memory, bytes);
}

size_t offload_snapshot_bytes(const struct offload_request *request)
{
    int count;
    ZD_FREED struct chunk *chunks = chunks_cut(request, &count);
    return records_place(request, chunks, count, RECORD_ALIGN, NULL);
}

void snapshot_destroy(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    pthread_cond_destroy(&snapshot->changed);
    pthread_mutex_destroy(&snapshot->lock);
    free(snapshot->free);
    free(snapshot->saved);
    free(snapshot);
}

/* --- rooms, under the lock ------------------------------------------------ */

static void gone(struct snapshot *snapshot, struct saved *saved)
{
    if (saved->state == COPIED && !snapshot->has_all)
        snapshot->free[snapshot->free_count++] = saved->room;
    saved->state = GONE;
    saved->left = 0;
}

/* --- the trainer ---------------------------------------------------------- */

void offload_snapshot_begin(struct offload *offload, bool moments)
{
    struct snapshot *snapshot = offload->snapshot;
    assert(jobs_have_ended(offload));
    ZD_LOCKED(&snapshot->lock);
    assert(!snapshot->is_open && snapshot->waiting == 0);
    snapshot->moments = moments;
    snapshot->waited = 0;
}

/* Number of arrays of a chunk that are read: masters, and values and scales of
 * each lane. */
static size_t arrays_of(
        const struct snapshot *snapshot, const struct chunk *chunk)
{
    const struct optim_layout *layout =
            &snapshot->of->request.extents[chunk->extent].layout;
    size_t arrays = 1;
    for (int lane = 0; snapshot->moments && lane < OPTIM_LANES; lane++)
        arrays += (optim_lane_bytes(layout->lane[lane], chunk->count) > 0) +
                  (optim_scale_count(layout->lane[lane], chunk->count) > 0);
    return arrays;
}

void offload_snapshot_want(
        struct offload *offload, int extent, size_t begin, size_t count)
{
    struct snapshot *snapshot = offload->snapshot;
    struct part part = {0};
    ZD_LOCKED(&snapshot->lock);
    while (part_next(offload, extent, begin, count, &part)) {
        struct saved *saved = &snapshot->saved[part.chunk];
        assert(saved->state == GONE || saved->state == LIVE);
        saved->state = LIVE;
        saved->left += part.count *
                       arrays_of(snapshot, &snapshot->of->chunks[part.chunk]);
    }
}

void offload_snapshot_open(struct offload *offload)
{
    atomic_store(&offload->snapshot->is_open, true);
}

double offload_snapshot_waited(struct offload *offload)
{
    struct snapshot *snapshot = offload->snapshot;
    ZD_LOCKED(&snapshot->lock);
    double now =
            snapshot->waiting ? clock_seconds() - snapshot->waiting_since : 0;
    return snapshot->waited + now;
}

/* --- the reader ----------------------------------------------------------- */

/* Where the old content of a chunk can be read; `live`: its memory. */
static const struct chunk_memory *read_begin(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live)
{
    struct saved *saved = &snapshot->saved[chunk];
    ZD_LOCKED(&snapshot->lock);
    while (saved->state == COPYING)
        pthread_cond_wait(&snapshot->changed, &snapshot->lock);
    assert(saved->state == LIVE || saved->state == COPIED);
    if (saved->state == COPIED)
        return &saved->copy;
    saved->state = READING;
    return live;
}

/* Notes that `count` elements of the arrays were read. */
static void read_end(
        struct snapshot *snapshot, int chunk, size_t count, int arrays)
{
    struct saved *saved = &snapshot->saved[chunk];
    size_t read = count * (size_t)arrays;
    ZD_LOCKED(&snapshot->lock);
    assert(saved->state == READING || saved->state == COPIED);
    assert(saved->left >= read);
    saved->left -= read;
    if (!saved->left)
        gone(snapshot, saved);
    else if (saved->state == READING)
        saved->state = LIVE;
    pthread_cond_broadcast(&snapshot->changed);
}

enum zd_status offload_snapshot_read(
        struct offload *offload, const struct offload_lane *range)
{
    struct part part = {0};
    while (part_next(
            offload, range->extent, range->begin, range->count, &part)) {
        struct chunk_memory live;
        ZD_TRY(chunk_acquire(offload, part.chunk, &live));
        const struct chunk_memory *then =
                read_begin(offload->snapshot, part.chunk, &live);
        int arrays = copy_part(offload, &part, then, range);
        read_end(offload->snapshot, part.chunk, part.count, arrays);
        ZD_TRY(chunk_release(offload, part.chunk));
    }
    return ZD_OK;
}

void offload_snapshot_end(struct offload *offload)
{
    struct snapshot *snapshot = offload->snapshot;
    atomic_store(&snapshot->is_open, false);
    ZD_LOCKED(&snapshot->lock);
    for (int c = 0; c < snapshot->of->chunk_count; c++) {
        while (snapshot->saved[c].state == COPYING)
            pthread_cond_wait(&snapshot->changed, &snapshot->lock);
        assert(snapshot->saved[c].state != READING);
        gone(snapshot, &snapshot->saved[c]);
    }
    pthread_cond_broadcast(&snapshot->changed);
}

/* --- a worker ------------------------------------------------------------- */

static void await_change(struct snapshot *snapshot)
{
    if (snapshot->waiting++ == 0)
        snapshot->waiting_since = clock_seconds();
    pthread_cond_wait(&snapshot->changed, &snapshot->lock);
    if (--snapshot->waiting == 0)
        snapshot->waited += clock_seconds() - snapshot->waiting_since;
}

void snapshot_before_write(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live)
{
    if (!snapshot || !atomic_load(&snapshot->is_open))
        return;
    struct saved *saved = &snapshot->saved[chunk];
    const struct offload_request *request = &snapshot->of->request;
    const struct chunk *at = &snapshot->of->chunks[chunk];
    ZD_LOCKED(&snapshot->lock);
    while (saved->state == READING ||
           (saved->state == LIVE && !snapshot->has_all &&
            !snapshot->free_count))
        await_change(snapshot);
    assert(saved->state != COPYING && "two workers write to a chunk");
    if (saved->state != LIVE)
        return;
    if (!snapshot->has_all)
        saved->room = snapshot->free[--snapshot->free_count];
    saved->state = COPYING;
    pthread_mutex_unlock(&snapshot->lock);
    /* bypass the caches: the update continues with the source */
    record_memory(request, at, RECORD_ALIGN, saved->room, &saved->copy);
    chunk_copy(
            request, at, &saved->copy, live, snapshot->moments,
            copy_past_cache);
    pthread_mutex_lock(&snapshot->lock);
    saved->state = COPIED;
    pthread_cond_broadcast(&snapshot->changed);
}
