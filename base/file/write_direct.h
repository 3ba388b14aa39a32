/* write_direct.h - large pieces of a file go to the disk past the page cache,
 * each by a thread beside the one that makes the next. No one copies into pages
 * of the cache and writes those back, which beside a training that wants every
 * core costs more than all else of a save.
 *
 *   the maker                                a thread
 *   write_direct_room: memory for a piece
 *   .. fills it
 *   write_direct_put                  ---->  writes it
 *   write_direct_room: for the next; waits
 *   .. where all pieces are under way  <---  it was written
 *   write_direct_end: waits for all
 *
 * A piece lies in memory as in the blocks of the file. Whole blocks are written
 * by a descriptor with O_DIRECT. What it has of a block at either end, which it
 * may share with others, and what is small, is kept and goes through the cache
 * by the file's own. An fsync is needed after it all the same. One maker.
 * Internal to base/file. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WRITE_DIRECT_BYTES = 4 << 20, /* of a piece, at most */
    WRITE_DIRECT_SMALL = 256 << 10
};

struct write_direct;

/* `fd`: open for writing, of a file of `bytes` at `path` that nothing was
 * written to; both are borrowed, and the first block is overwritten. NULL, and
 * no error: the file is small, or its file system has no such writes. */
struct write_direct *write_direct_begin(
        int fd, const char *path, uint64_t bytes);
/* Memory for bytes at .. at + bytes - 1 of the file, until it is put. */
void *write_direct_room(struct write_direct *direct, uint64_t at, size_t bytes);
/* Fails as a piece before did. */
enum zd_status write_direct_put(struct write_direct *direct);
/* Bytes from there on, WRITE_DIRECT_SMALL at most. */
enum zd_status write_direct_small(
        struct write_direct *direct, uint64_t at, const void *data,
        size_t bytes);
/* Fails as a piece did. Frees it; NULL is nothing. */
enum zd_status write_direct_end(struct write_direct *direct);
