/* keep.h - masters and states as they were at one moment, for a thread that
 * reads them while updates go on. Nothing is copied then: an update that comes
 * to a part of a chunk before the reader has copies it first.
 *
 *   state     who may touch the part                 left by
 *   GONE      updates; nobody wants what was         keep_want (trainer)
 *   LIVE      nobody; as it was                      the reader, an update
 *   READING   the reader reads it where it lies      the reader: LIVE, or GONE
 *                                                    when it has all of it
 *   COPYING   an update's worker copies it           the worker: KEPT
 *   KEPT      updates; the reader reads the copy     the reader: GONE, and the
 *                                                    copy's memory is free
 *
 * An update that finds no room for a copy waits for the reader, who waits for
 * nobody but a worker that copies. So whoever gives up reading must say so
 * (keep_end), by the thread that reads: the trainer may be waiting for the
 * update.
 *
 *   trainer      keep_begin, keep_want.., keep_open: between two updates
 *   one reader   keep_read, every element that is wanted once; keep_end
 *   workers      keep_chunk before they write
 *
 * A copy lies in units, wherever some are free. States change under the lock.
 * Internal to offload, and zero's (zero/snapshot.c) by offload.h. */
#ifndef ZD_OFFLOAD_KEEP_H
#define ZD_OFFLOAD_KEEP_H

#include "offload/store.h"

struct keep;

/* `memory`: of the host, borrowed; less than keep_bytes is enough, 0 too. */
enum zd_status keep_create(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, void *memory, size_t bytes, struct keep **out);
void keep_destroy(struct keep *keep);

/* Room for a copy of everything. */
size_t keep_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);

/* Nothing is wanted; the reader before has ended. */
void keep_begin(struct keep *keep);
/* Elements of a chunk, its masters or with `moments` its states too. */
void keep_want(struct keep *keep, int chunk, size_t count, bool moments);
void keep_open(struct keep *keep);
/* The reader: elements begin .. begin + count - 1 of a chunk, whose memory is
 * `live`. lane: OPTIM_LANES is the master; values or scales may be NULL. */
void keep_read(
        struct keep *keep, int chunk, const struct chunk_memory *live, int lane,
        size_t begin, size_t count, void *values, float *scales);
void keep_end(struct keep *keep);
/* A worker is about to write to a chunk. */
void keep_chunk(struct keep *keep, int chunk, const struct chunk_memory *live);
/* Seconds that updates have waited for the reader, since keep_begin. */
double keep_waited(struct keep *keep);

#endif
