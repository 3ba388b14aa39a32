/* keep.h - masters and states as they were at one moment, for a thread that
 * reads them while updates go on. Nothing is copied at that moment: an update
 * that comes to a chunk before the reader has copies the chunk first.
 *
 *   state     who may touch the chunk                left by
 *   GONE      updates; the old values are not wanted keep_want (trainer)
 *   LIVE      no one; unchanged so far               the reader, an update
 *   READING   the reader reads it where it lies      the reader: LIVE, or GONE
 *                                                    when it has read all of it
 *   COPYING   an update's worker copies it           the worker: KEPT
 *   KEPT      updates; the reader reads the copy     the reader: GONE, and the
 *                                                    copy's memory is free
 *
 * An update that finds no room for a copy waits for the reader, which waits
 * only for a worker that copies. A reader that gives up must say so (keep_end)
 * from its own thread: the trainer may be waiting for the update.
 *
 *   trainer      keep_begin, keep_want.., keep_open: between two updates
 *   one reader   keep_read_begin, keep_read_end; every element that is wanted
 *                once; then keep_end
 *   workers      keep_chunk before they write
 *
 * States change under the lock. Internal to offload, and zero's
 * (zero/snapshot.c) through offload.h. */
#ifndef ZD_OFFLOAD_KEEP_H
#define ZD_OFFLOAD_KEEP_H

#include "offload/store.h"

struct keep;

/* `memory`: of the host, borrowed; less than keep_bytes is enough, 0 too. */
struct keep *keep_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes);
void keep_destroy(struct keep *keep);

/* Room for a copy of everything. */
size_t keep_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);

/* Nothing is wanted yet; the reader before has ended. Without `moments` only
 * masters will be read. */
void keep_begin(struct keep *keep, bool moments);
/* So many elements of a chunk. */
void keep_want(struct keep *keep, int chunk, size_t count);
void keep_open(struct keep *keep);
/* The reader: where the chunk, whose memory is `live`, can be read as it was,
 * until keep_read_end, which tells how many elements of how many arrays were
 * read. */
const struct chunk_memory *keep_read_begin(
        struct keep *keep, int chunk, const struct chunk_memory *live);
void keep_read_end(struct keep *keep, int chunk, size_t count, int arrays);
void keep_end(struct keep *keep);
/* A worker is about to write to a chunk. */
void keep_chunk(struct keep *keep, int chunk, const struct chunk_memory *live);
/* Seconds that updates have waited for the reader, since keep_begin. */
double keep_waited(struct keep *keep);

#endif
