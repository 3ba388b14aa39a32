/* snapshot.h - masters and states as they were at one moment, for a thread that
 * reads them while updates go on: copy on write. Nothing is copied at that
 * moment; an update that comes to a chunk before the reader has copies the
 * chunk first.
 *
 *   state     who may touch the chunk                left by
 *   GONE      updates; the old values are not wanted snapshot_want (trainer)
 *   LIVE      no one; unchanged so far               the reader, an update
 *   READING   the reader reads it where it lies      the reader: LIVE, or GONE
 *                                                    when it has read all of it
 *   COPYING   an update's worker copies it           the worker: COPIED
 *   COPIED    updates; the reader reads the copy     the reader: GONE, and the
 *                                                    copy's memory is free
 *
 * An update that finds no room for a copy waits for the reader, which waits
 * only for a worker that copies. A reader that gives up must say so
 * (snapshot_end) from its own thread: the trainer may be waiting for the
 * update.
 *
 *   trainer      snapshot_begin, snapshot_want.., snapshot_open, between two
 *                updates
 *   one reader   snapshot_read_begin and _end, every element that is wanted
 *                once; then snapshot_end
 *   workers      snapshot_before_write
 *
 * States change under the lock. Internal to offload, and zero's
 * (zero/snapshot.c) through offload.h. */
#pragma once

#include "offload/store.h"

struct snapshot;

/* `memory`: of the host, borrowed; less than snapshot_bytes is enough, 0 too.
 */
struct snapshot *snapshot_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes);
void snapshot_destroy(struct snapshot *snapshot);

/* Room for a copy of everything. */
size_t snapshot_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);

/* Nothing is wanted yet; the reader before has ended. Without `moments` only
 * masters will be read. */
void snapshot_begin(struct snapshot *snapshot, bool moments);
/* So many elements of a chunk. */
void snapshot_want(struct snapshot *snapshot, int chunk, size_t count);
void snapshot_open(struct snapshot *snapshot);
/* The reader: where the chunk, whose memory is `live`, can be read as it was,
 * until snapshot_read_end, which tells how many elements of how many arrays
 * were read. */
const struct chunk_memory *snapshot_read_begin(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live);
void snapshot_read_end(
        struct snapshot *snapshot, int chunk, size_t count, int arrays);
void snapshot_end(struct snapshot *snapshot);
/* A worker is about to write to a chunk. */
void snapshot_before_write(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live);
/* Seconds that updates have waited for the reader, since snapshot_begin. */
double snapshot_waited(struct snapshot *snapshot);
