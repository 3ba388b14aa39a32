/* write_behind.h - what a large file was given goes to the disk while more is
 * written, so that the fsync at the end is a short one (base/progress.h), and
 * then leaves the page cache: no one reads it soon, and memory that is taken
 * anew for every page costs more than the write.
 *
 *   written   a batch that grows, to WRITE_BEHIND_BYTES; then it is handed to
 *             the disk
 *   under way the batch before: waited for when the next one is handed over
 *
 * So two batches, and what one call brings, are not on the disk yet. What the
 * file system cannot do comes with the fsync. A file has one writer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { WRITE_BEHIND_BYTES = 32 << 20, WRITE_BEHIND_EXTENTS = 256 };

struct write_behind_batch { /* places of the file, in any order */
    int count;
    size_t bytes;
    struct {
        uint64_t begin, end;
    } extents[WRITE_BEHIND_EXTENTS];
};

/* All zero: nothing was written. */
struct write_behind {
    int growing; /* which of the two */
    struct write_behind_batch batches[2];
};

/* Bytes begin .. begin + bytes - 1 of fd were written. */
void write_behind(
        struct write_behind *behind, int fd, uint64_t begin, size_t bytes);
