#include "offload/keep.h"

#include "base/clock.h"
#include "base/copy.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_MOST = 64 << 10, NO_UNIT = -1 };

enum state { GONE, LIVE, READING, COPYING, KEPT };
/* Of a chunk: its master, then values and scales of each lane. */
enum { PART_MASTER, PART_LANES, PARTS = PART_LANES + 2 * OPTIM_LANES };

struct part {
    enum state state;
    int unit;    /* KEPT: the first of its copy */
    size_t left; /* elements that the reader still wants */
};

struct keep {
    const struct offload_request *request;
    const struct chunk *chunks;
    int chunk_count;
    char *memory;
    size_t unit_bytes;
    int *next; /* by unit: the next of its copy, or of those that are free */
    _Atomic bool is_open;

    pthread_mutex_t lock; /* of all below, and of `next` */
    pthread_cond_t changed;
    struct part (*parts)[PARTS]; /* by chunk */
    int free, free_count;        /* units */
    int waiting;                 /* workers */
    double waiting_since, waited;
};

/* --- how large ------------------------------------------------------------ */

static enum optim_format format_of(const struct keep *keep, int chunk, int lane)
{
    return keep->request->runs[keep->chunks[chunk].run].layout.lane[lane];
}

static size_t part_bytes(
        const struct keep *keep, int chunk, int part, size_t count)
{
    int lane = (part - PART_LANES) / 2;
    if (part == PART_MASTER)
        return count * dtype_bytes(offload_master_type(keep->request->optim));
    if ((part - PART_LANES) % 2 == 0)
        return optim_lane_bytes(format_of(keep, chunk, lane), count);
    return optim_scale_count(format_of(keep, chunk, lane), count) *
           sizeof(float);
}

static char *part_at(const struct chunk_memory *memory, int part)
{
    int lane = (part - PART_LANES) / 2;
    if (part == PART_MASTER)
        return memory->master;
    return (part - PART_LANES) % 2 == 0 ? (char *)memory->lanes.state[lane]
                                        : (char *)memory->lanes.scale[lane];
}

static size_t units_of(const struct keep *keep, size_t bytes)
{
    return (bytes + keep->unit_bytes - 1) / keep->unit_bytes;
}

/* Small chunks have small units, so that little of one is left over. */
static size_t unit_bytes_of(const struct keep *keep)
{
    size_t most = 0, unit = UNIT_MOST;
    for (int c = 0; c < keep->chunk_count; c++)
        if (keep->chunks[c].count > most)
            most = keep->chunks[c].count;
    while (unit > 256 && unit > most / 16)
        unit /= 2;
    return unit;
}

size_t keep_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count)
{
    struct keep keep = {
            .request = request, .chunks = chunks, .chunk_count = chunk_count};
    size_t units = 0;
    keep.unit_bytes = unit_bytes_of(&keep);
    for (int c = 0; c < chunk_count; c++)
        for (int part = 0; part < PARTS; part++)
            units += units_of(
                    &keep, part_bytes(&keep, c, part, chunks[c].count));
    return units * keep.unit_bytes;
}

/* --- life ----------------------------------------------------------------- */

static void free_all(struct keep *keep, int units)
{
    for (int i = 0; i < units; i++)
        keep->next[i] = i + 1 < units ? i + 1 : NO_UNIT;
    keep->free = units ? 0 : NO_UNIT;
    keep->free_count = units;
}

enum zd_status keep_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes, struct keep **out)
{
    struct keep *keep = calloc(1, sizeof *keep);
    if (!keep)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    keep->request = request;
    keep->chunks = chunks;
    keep->chunk_count = chunk_count;
    keep->memory = memory;
    keep->unit_bytes = unit_bytes_of(keep);
    size_t units = bytes / keep->unit_bytes;
    keep->next = calloc(units + 1, sizeof *keep->next);
    keep->parts = calloc((size_t)chunk_count + 1, sizeof *keep->parts);
    pthread_mutex_init(&keep->lock, NULL);
    pthread_cond_init(&keep->changed, NULL);
    if (!keep->next || !keep->parts) {
        keep_destroy(keep);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    }
    free_all(keep, (int)units);
    *out = keep;
    return ZD_OK;
}

void keep_destroy(struct keep *keep)
{
    if (!keep)
        return;
    pthread_cond_destroy(&keep->changed);
    pthread_mutex_destroy(&keep->lock);
    free(keep->next);
    free(keep->parts);
    free(keep);
}

/* --- units, under the lock ------------------------------------------------ */

static int units_take(struct keep *keep, size_t count)
{
    int first = keep->free, last = first;
    for (size_t i = 1; i < count; i++)
        last = keep->next[last];
    keep->free = keep->next[last];
    keep->next[last] = NO_UNIT;
    keep->free_count -= (int)count;
    return first;
}

static void units_give(struct keep *keep, int first)
{
    int last = first;
    keep->free_count++;
    for (; keep->next[last] != NO_UNIT; keep->free_count++)
        last = keep->next[last];
    keep->next[last] = keep->free;
    keep->free = first;
}

/* Not under the lock: a copy's units are of one thread. */
static void units_copy(
        const struct keep *keep, int unit, size_t skip, char *memory,
        size_t bytes, bool into_units)
{
    for (; skip >= keep->unit_bytes; skip -= keep->unit_bytes)
        unit = keep->next[unit];
    while (bytes > 0) {
        size_t room = keep->unit_bytes - skip;
        size_t part = bytes < room ? bytes : room;
        char *at = keep->memory + (size_t)unit * keep->unit_bytes + skip;
        if (into_units) /* the update goes on with what is copied */
            copy_past_cache(at, memory, part);
        else
            memcpy(memory, at, part);
        memory += part;
        bytes -= part;
        skip = 0;
        if (bytes > 0)
            unit = keep->next[unit];
    }
}

/* --- the trainer ---------------------------------------------------------- */

void keep_begin(struct keep *keep)
{
    pthread_mutex_lock(&keep->lock);
    assert(!keep->is_open && keep->waiting == 0);
    keep->waited = 0;
    pthread_mutex_unlock(&keep->lock);
}

void keep_want(struct keep *keep, int chunk, size_t count, bool moments)
{
    pthread_mutex_lock(&keep->lock);
    for (int part = 0; part < (moments ? PARTS : PART_LANES); part++) {
        struct part *at = &keep->parts[chunk][part];
        if (!part_bytes(keep, chunk, part, keep->chunks[chunk].count))
            continue;
        assert(at->state == GONE || at->state == LIVE);
        at->state = LIVE;
        at->left += count;
    }
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

static void read_part(
        struct keep *keep, int chunk, int part, const char *live, size_t begin,
        size_t count, char *out)
{
    struct part *at = &keep->parts[chunk][part];
    size_t skip = part_bytes(keep, chunk, part, begin);
    size_t bytes = part_bytes(keep, chunk, part, count);
    if (!bytes)
        return;
    pthread_mutex_lock(&keep->lock);
    while (at->state == COPYING)
        pthread_cond_wait(&keep->changed, &keep->lock);
    assert(at->state == LIVE || at->state == KEPT);
    bool is_kept = at->state == KEPT;
    int unit = at->unit;
    if (!is_kept)
        at->state = READING;
    pthread_mutex_unlock(&keep->lock);
    if (is_kept)
        units_copy(keep, unit, skip, out, bytes, false);
    else
        memcpy(out, live + skip, bytes);
    pthread_mutex_lock(&keep->lock);
    assert(at->state == (is_kept ? KEPT : READING) && at->left >= count);
    at->left -= count;
    if (is_kept && !at->left)
        units_give(keep, unit);
    if (!at->left)
        at->state = GONE;
    else if (!is_kept)
        at->state = LIVE;
    pthread_cond_broadcast(&keep->changed);
    pthread_mutex_unlock(&keep->lock);
}

void keep_read(
        struct keep *keep, int chunk, const struct chunk_memory *live, int lane,
        size_t begin, size_t count, void *values, float *scales)
{
    int part = lane == OPTIM_LANES ? PART_MASTER : PART_LANES + 2 * lane;
    if (values)
        read_part(keep, chunk, part, part_at(live, part), begin, count, values);
    if (scales)
        read_part(
                keep, chunk, part + 1, part_at(live, part + 1), begin, count,
                (char *)scales);
}

void keep_end(struct keep *keep)
{
    atomic_store(&keep->is_open, false);
    pthread_mutex_lock(&keep->lock);
    for (int c = 0; c < keep->chunk_count; c++)
        for (int p = 0; p < PARTS; p++) {
            struct part *part = &keep->parts[c][p];
            while (part->state == COPYING)
                pthread_cond_wait(&keep->changed, &keep->lock);
            assert(part->state != READING);
            if (part->state == KEPT)
                units_give(keep, part->unit);
            *part = (struct part){.state = GONE};
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

/* Under the lock, which is left while it copies. */
static void keep_part(struct keep *keep, int chunk, int part, char *live)
{
    struct part *at = &keep->parts[chunk][part];
    size_t bytes = part_bytes(keep, chunk, part, keep->chunks[chunk].count);
    size_t units = units_of(keep, bytes);
    while (at->state == READING ||
           (at->state == LIVE && (size_t)keep->free_count < units))
        await_change(keep);
    assert(at->state != COPYING && "two workers write to a chunk");
    if (at->state != LIVE)
        return;
    int unit = units_take(keep, units);
    at->state = COPYING;
    pthread_mutex_unlock(&keep->lock);
    units_copy(keep, unit, 0, live, bytes, true);
    pthread_mutex_lock(&keep->lock);
    at->unit = unit;
    at->state = KEPT;
    pthread_cond_broadcast(&keep->changed);
}

void keep_chunk(struct keep *keep, int chunk, const struct chunk_memory *live)
{
    if (!keep || !atomic_load(&keep->is_open))
        return;
    pthread_mutex_lock(&keep->lock);
    for (int part = 0; part < PARTS; part++)
        if (keep->parts[chunk][part].state != GONE)
            keep_part(keep, chunk, part, part_at(live, part));
    pthread_mutex_unlock(&keep->lock);
}
