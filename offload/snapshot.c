#include "offload/snapshot.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/must.h"
#include "offload/store_record.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum state { GONE, LIVE, READING, COPYING, COPIED };

struct saved { /* of a chunk */
    enum state state;
    size_t left; /* elements, of each array, that the reader still wants */
    char *room;  /* for its copy; NULL: none yet */
    struct chunk_memory copy; /* COPIED */
};

struct snapshot {
    const struct offload_request *request;
    const struct chunk *chunks;
    int chunk_count;
    bool has_all; /* every chunk has its own room */
    bool moments;
    _Atomic bool is_open;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct saved *saved; /* by chunk */
    char **free;         /* rooms, each for any chunk */
    int free_count;
    int waiting; /* workers */
    double waiting_since, waited;
};

size_t snapshot_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count)
{
    return records_place(request, chunks, chunk_count, RECORD_ALIGN, NULL);
}

/* --- life ----------------------------------------------------------------- */

/* A room for each chunk, or as many as there are for the largest. */
static void place_rooms(struct snapshot *snapshot, char *memory, size_t bytes)
{
    const struct offload_request *request = snapshot->request;
    const struct chunk *chunks = snapshot->chunks;
    size_t largest = record_largest(
            request, chunks, snapshot->chunk_count, RECORD_ALIGN);
    for (int c = 0; snapshot->has_all && c < snapshot->chunk_count; c++) {
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

struct snapshot *snapshot_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes)
{
    struct snapshot *snapshot = zd_array(1, sizeof *snapshot);
    snapshot->request = request;
    snapshot->chunks = chunks;
    snapshot->chunk_count = chunk_count;
    snapshot->saved = zd_array((size_t)chunk_count, sizeof *snapshot->saved);
    snapshot->has_all = bytes >= snapshot_bytes(request, chunks, chunk_count);
    pthread_mutex_init(&snapshot->lock, NULL);
    pthread_cond_init(&snapshot->changed, NULL);
    place_rooms(snapshot, memory, bytes);
    return snapshot;
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

static bool has_room(const struct snapshot *snapshot)
{
    return snapshot->has_all || snapshot->free_count > 0;
}

static void room_take(struct snapshot *snapshot, struct saved *saved)
{
    if (!snapshot->has_all)
        saved->room = snapshot->free[--snapshot->free_count];
}

static void gone(struct snapshot *snapshot, struct saved *saved)
{
    if (saved->state == COPIED && !snapshot->has_all)
        snapshot->free[snapshot->free_count++] = saved->room;
    saved->state = GONE;
    saved->left = 0;
}

/* --- the trainer ---------------------------------------------------------- */

void snapshot_begin(struct snapshot *snapshot, bool moments)
{
    pthread_mutex_lock(&snapshot->lock);
    assert(!snapshot->is_open && snapshot->waiting == 0);
    snapshot->moments = moments;
    snapshot->waited = 0;
    pthread_mutex_unlock(&snapshot->lock);
}

/* Arrays of a chunk that are read: its masters, and values and scales of each
 * lane. */
static size_t arrays_of(
        const struct snapshot *snapshot, const struct chunk *chunk)
{
    const struct optim_layout *layout =
            &snapshot->request->extents[chunk->extent].layout;
    size_t arrays = 1;
    for (int lane = 0; snapshot->moments && lane < OPTIM_LANES; lane++)
        arrays += (optim_lane_bytes(layout->lane[lane], chunk->count) > 0) +
                  (optim_scale_count(layout->lane[lane], chunk->count) > 0);
    return arrays;
}

void snapshot_want(struct snapshot *snapshot, int chunk, size_t count)
{
    struct saved *saved = &snapshot->saved[chunk];
    pthread_mutex_lock(&snapshot->lock);
    assert(saved->state == GONE || saved->state == LIVE);
    saved->state = LIVE;
    saved->left += count * arrays_of(snapshot, &snapshot->chunks[chunk]);
    pthread_mutex_unlock(&snapshot->lock);
}

void snapshot_open(struct snapshot *snapshot)
{
    atomic_store(&snapshot->is_open, true);
}

double snapshot_waited(struct snapshot *snapshot)
{
    pthread_mutex_lock(&snapshot->lock);
    double waited = snapshot->waited;
    if (snapshot->waiting)
        waited += clock_seconds() - snapshot->waiting_since;
    pthread_mutex_unlock(&snapshot->lock);
    return waited;
}

/* --- the reader ----------------------------------------------------------- */

const struct chunk_memory *snapshot_read_begin(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live)
{
    struct saved *saved = &snapshot->saved[chunk];
    pthread_mutex_lock(&snapshot->lock);
    while (saved->state == COPYING)
        pthread_cond_wait(&snapshot->changed, &snapshot->lock);
    assert(saved->state == LIVE || saved->state == COPIED);
    if (saved->state == LIVE) {
        saved->state = READING;
    } else {
        live = &saved->copy;
    }
    pthread_mutex_unlock(&snapshot->lock);
    return live;
}

void snapshot_read_end(
        struct snapshot *snapshot, int chunk, size_t count, int arrays)
{
    struct saved *saved = &snapshot->saved[chunk];
    size_t read = count * (size_t)arrays;
    pthread_mutex_lock(&snapshot->lock);
    assert(saved->state == READING || saved->state == COPIED);
    assert(saved->left >= read);
    saved->left -= read;
    if (!saved->left)
        gone(snapshot, saved);
    else if (saved->state == READING)
        saved->state = LIVE;
    pthread_cond_broadcast(&snapshot->changed);
    pthread_mutex_unlock(&snapshot->lock);
}

void snapshot_end(struct snapshot *snapshot)
{
    atomic_store(&snapshot->is_open, false);
    pthread_mutex_lock(&snapshot->lock);
    for (int c = 0; c < snapshot->chunk_count; c++) {
        while (snapshot->saved[c].state == COPYING)
            pthread_cond_wait(&snapshot->changed, &snapshot->lock);
        assert(snapshot->saved[c].state != READING);
        gone(snapshot, &snapshot->saved[c]);
    }
    pthread_cond_broadcast(&snapshot->changed);
    pthread_mutex_unlock(&snapshot->lock);
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

/* Write past the caches: the update goes on with the source. */
static void copy_chunk(
        const struct snapshot *snapshot, const struct chunk *chunk, char *room,
        const struct chunk_memory *live, struct chunk_memory *copy)
{
    const struct offload_request *request = snapshot->request;
    const struct optim_layout *layout = &request->extents[chunk->extent].layout;
    record_memory(request, chunk, RECORD_ALIGN, room, copy);
    copy_past_cache(
            copy->master, live->master,
            chunk->count * dtype_bytes(offload_master_type(request->optim)));
    for (int lane = 0; snapshot->moments && lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        size_t values = optim_lane_bytes(format, chunk->count);
        size_t scales = optim_scale_count(format, chunk->count);
        if (values)
            copy_past_cache(
                    copy->lanes.state[lane], live->lanes.state[lane], values);
        if (scales)
            copy_past_cache(
                    copy->lanes.scale[lane], live->lanes.scale[lane],
                    scales * sizeof(float));
    }
}

void snapshot_before_write(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live)
{
    if (!snapshot || !atomic_load(&snapshot->is_open))
        return;
    struct saved *saved = &snapshot->saved[chunk];
    pthread_mutex_lock(&snapshot->lock);
    while (saved->state == READING ||
           (saved->state == LIVE && !has_room(snapshot)))
        await_change(snapshot);
    assert(saved->state != COPYING && "two workers write to a chunk");
    if (saved->state == LIVE) {
        room_take(snapshot, saved);
        saved->state = COPYING;
        pthread_mutex_unlock(&snapshot->lock);
        copy_chunk(
                snapshot, &snapshot->chunks[chunk], saved->room, live,
                &saved->copy);
        pthread_mutex_lock(&snapshot->lock);
        saved->state = COPIED;
        pthread_cond_broadcast(&snapshot->changed);
    }
    pthread_mutex_unlock(&snapshot->lock);
}
