/* write_direct.h - writes large pieces of a file past the page cache
 * (O_DIRECT), each from a thread while the next one is filled. Copying through
 * the page cache would cost more CPU time than the rest of a save, and training
 * wants every core.
 *
 *   the producer a thread
 *   write_direct_room: memory for a piece
 *   .. fills it
 *   write_direct_put                  ---->  writes it
 *   write_direct_room: for the next; waits
 *   .. where all pieces are under way  <---  it was written
 *   write_direct_end: waits for all
 *
 * A piece is aligned in memory as in the file's blocks. Whole blocks go through
 * a descriptor with O_DIRECT. Partial blocks at either end, and small pieces,
 * are copied and go through the cache by the file's own descriptor. An fsync is
 * still needed afterwards. One producer. Internal to base/file. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WRITE_DIRECT_BYTES = 4 << 20, /* of a piece, at most */
    WRITE_DIRECT_SMALL = 256 << 10
};

struct write_direct;

/* `fd`: open for writing, a file of `bytes` at `path` that is still empty; both
 * are borrowed, and the first block is overwritten. NULL without an error: the
 * file is small, or its file system has no direct writes. */
struct write_direct *write_direct_begin(
        int fd, const char *path, uint64_t bytes);
/* Memory for bytes at .. at + bytes - 1 of the file, until write_direct_put. */
void *write_direct_room(struct write_direct *direct, uint64_t at, size_t bytes);
/* Returns the failure of an earlier piece. */
enum zd_status write_direct_put(struct write_direct *direct);
/* Writes bytes at an offset, at most WRITE_DIRECT_SMALL. */
enum zd_status write_direct_small(
        struct write_direct *direct, uint64_t at, const void *data,
        size_t bytes);
/* Returns the first failure of any piece. Frees it; NULL is accepted. */
enum zd_status write_direct_end(struct write_direct *direct);
