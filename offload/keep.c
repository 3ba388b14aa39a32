#include "offload/keep.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/must.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { ALIGN = 64 };
enum state { GONE, LIVE, READING, COPYING, KEPT };

struct kept { /* of a chunk */
    enum state state;
    size_t left; /* elements, of each array, that the reader still wants */
    char *room;  /* for its copy; NULL: none yet */
    struct chunk_memory copy; /* KEPT */
};

struct keep {
    const struct offload_request *request;
    const struct chunk *chunks;
    int chunk_count;
    bool has_all; /* every chunk has a room of its own */
    bool moments;
    _Atomic bool is_open;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct kept *kept; /* by chunk */
    char **free;       /* rooms, each for any chunk */
    int free_count;
    int waiting; /* workers */
    double waiting_since, waited;
};

/* --- how large ------------------------------------------------------------ */

static const struct optim_layout *layout_of(
        const struct offload_request *request, const struct chunk *chunk)
{
    return &request->runs[chunk->run].layout;
}

static size_t master_bytes(
        const struct offload_request *request, const struct chunk *chunk)
{
    size_t bytes =
            chunk->count * dtype_bytes(offload_master_type(request->optim));
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct optim_record record_of(
        const struct offload_request *request, const struct chunk *chunk)
{
    return optim_record_of(
            layout_of(request, chunk), optim_whole_qblocks(chunk->count),
            ALIGN);
}

static size_t copy_bytes(
        const struct offload_request *request, const struct chunk *chunk)
{
    return master_bytes(request, chunk) +
           record_of(request, chunk).lane[OPTIM_LANES];
}

size_t keep_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count)
{
    size_t bytes = 0;
    for (int c = 0; c < chunk_count; c++)
        bytes += copy_bytes(request, &chunks[c]);
    return bytes;
}

/* --- life ----------------------------------------------------------------- */

/* A room for each chunk, or as many as there are for the largest. */
static void place_rooms(struct keep *keep, char *memory, size_t bytes)
{
    size_t largest = 1;
    for (int c = 0; c < keep->chunk_count; c++) {
        size_t own = copy_bytes(keep->request, &keep->chunks[c]);
        largest = own > largest ? own : largest;
        if (keep->has_all) {
            keep->kept[c].room = memory;
            memory += own;
        }
    }
    if (keep->has_all)
        return;
    keep->free_count = (int)(bytes / largest);
    keep->free = zd_array((size_t)keep->free_count, sizeof *keep->free);
    for (int i = 0; i < keep->free_count; i++)
        keep->free[i] = memory + (size_t)i * largest;
}

struct keep *keep_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes)
{
    struct keep *keep = zd_array(1, sizeof *keep);
    keep->request = request;
    keep->chunks = chunks;
    keep->chunk_count = chunk_count;
    keep->kept = zd_array((size_t)chunk_count, sizeof *keep->kept);
    keep->has_all = bytes >= keep_bytes(request, chunks, chunk_count);
    pthread_mutex_init(&keep->lock, NULL);
    pthread_cond_init(&keep->changed, NULL);
    place_rooms(keep, memory, bytes);
    return keep;
}

void keep_destroy(struct keep *keep)
{
    if (!keep)
        return;
    pthread_cond_destroy(&keep->changed);
    pthread_mutex_destroy(&keep->lock);
    free(keep->free);
    free(keep->kept);
    free(keep);
}

/* --- rooms, under the lock ------------------------------------------------ */

static bool has_room(const struct keep *keep)
{
    return keep->has_all || keep->free_count > 0;
}

static void room_take(struct keep *keep, struct kept *kept)
{
    if (!keep->has_all)
        kept->room = keep->free[--keep->free_count];
}

static void gone(struct keep *keep, struct kept *kept)
{
    if (kept->state == KEPT && !keep->has_all)
        keep->free[keep->free_count++] = kept->room;
    kept->state = GONE;
    kept->left = 0;
}

/* --- the trainer ---------------------------------------------------------- */

void keep_begin(struct keep *keep, bool moments)
{
    pthread_mutex_lock(&keep->lock);
    assert(!keep->is_open && keep->waiting == 0);
    keep->moments = moments;
    keep->waited = 0;
    pthread_mutex_unlock(&keep->lock);
}

/* Arrays of a chunk that are read: its masters, and values and scales of each
 * lane. */
static size_t arrays_of(const struct keep *keep, const struct chunk *chunk)
{
    const struct optim_layout *layout = layout_of(keep->request, chunk);
    size_t arrays = 1;
    for (int lane = 0; keep->moments && lane < OPTIM_LANES; lane++)
        arrays += (optim_lane_bytes(layout->lane[lane], chunk->count) > 0) +
                  (optim_scale_count(layout->lane[lane], chunk->count) > 0);
    return arrays;
}

void keep_want(struct keep *keep, int chunk, size_t count)
{
    struct kept *kept = &keep->kept[chunk];
    pthread_mutex_lock(&keep->lock);
    assert(kept->state == GONE || kept->state == LIVE);
    kept->state = LIVE;
    kept->left += count * arrays_of(keep, &keep->chunks[chunk]);
    pthread_mutex_unlock(&keep->lock);
}

void keep_open(struct keep *keep)
{
    atomic_store(&keep->is_open, true);
}

double keep_waited(struct keep *keep)
{
    pthread_mutex_lock(&keep->lock);
    double waited = keep->waited;
    if (keep->waiting)
        waited += clock_seconds() - keep->waiting_since;
    pthread_mutex_unlock(&keep->lock);
    return waited;
}

/* --- the reader ----------------------------------------------------------- */

const struct chunk_memory *keep_read_begin(
        struct keep *keep, int chunk, const struct chunk_memory *live)
{
    struct kept *kept = &keep->kept[chunk];
    pthread_mutex_lock(&keep->lock);
    while (kept->state == COPYING)
        pthread_cond_wait(&keep->changed, &keep->lock);
    assert(kept->state == LIVE || kept->state == KEPT);
    if (kept->state == LIVE) {
        kept->state = READING;
    } else {
        live = &kept->copy;
    }
    pthread_mutex_unlock(&keep->lock);
    return live;
}

void keep_read_end(struct keep *keep, int chunk, size_t count, int arrays)
{
    struct kept *kept = &keep->kept[chunk];
    size_t read = count * (size_t)arrays;
    pthread_mutex_lock(&keep->lock);
    assert(kept->state == READING || kept->state == KEPT);
    assert(kept->left >= read);
    kept->left -= read;
    if (!kept->left)
        gone(keep, kept);
    else if (kept->state == READING)
        kept->state = LIVE;
    pthread_cond_broadcast(&keep->changed);
    pthread_mutex_unlock(&keep->lock);
}

void keep_end(struct keep *keep)
{
    atomic_store(&keep->is_open, false);
    pthread_mutex_lock(&keep->lock);
    for (int c = 0; c < keep->chunk_count; c++) {
        while (keep->kept[c].state == COPYING)
            pthread_cond_wait(&keep->changed, &keep->lock);
        assert(keep->kept[c].state != READING);
        gone(keep, &keep->kept[c]);
    }
    pthread_cond_broadcast(&keep->changed);
    pthread_mutex_unlock(&keep->lock);
}

/* --- a worker ------------------------------------------------------------- */

static void await_change(struct keep *keep)
{
    if (keep->waiting++ == 0)
        keep->waiting_since = clock_seconds();
    pthread_cond_wait(&keep->changed, &keep->lock);
    if (--keep->waiting == 0)
        keep->waited += clock_seconds() - keep->waiting_since;
}

/* Past the cache: the update goes on with what is copied. */
static void copy_chunk(
        const struct keep *keep, const struct chunk *chunk, char *room,
        const struct chunk_memory *live, struct chunk_memory *copy)
{
    const struct optim_layout *layout = layout_of(keep->request, chunk);
    struct optim_record record = record_of(keep->request, chunk);
    size_t bytes = master_bytes(keep->request, chunk);
    *copy = (struct chunk_memory){
            .master = room,
            .lanes = optim_lanes_in_record(layout, &record, room + bytes)};
    copy_past_cache(
            copy->master, live->master,
            chunk->count *
                    dtype_bytes(offload_master_type(keep->request->optim)));
    for (int lane = 0; keep->moments && lane < OPTIM_LANES; lane++) {
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

void keep_chunk(struct keep *keep, int chunk, const struct chunk_memory *live)
{
    if (!keep || !atomic_load(&keep->is_open))
        return;
    struct kept *kept = &keep->kept[chunk];
    pthread_mutex_lock(&keep->lock);
    while (kept->state == READING || (kept->state == LIVE && !has_room(keep)))
        await_change(keep);
    assert(kept->state != COPYING && "two workers write to a chunk");
    if (kept->state == LIVE) {
        room_take(keep, kept);
        kept->state = COPYING;
        pthread_mutex_unlock(&keep->lock);
        copy_chunk(keep, &keep->chunks[chunk], kept->room, live, &kept->copy);
        pthread_mutex_lock(&keep->lock);
        kept->state = KEPT;
        pthread_cond_broadcast(&keep->changed);
    }
    pthread_mutex_unlock(&keep->lock);
}
