#include "base/file/write_behind.h"

#include "base/progress.h"

#include <fcntl.h>

static void begin_batch(const struct write_behind_batch *batch, int fd)
{
    for (int i = 0; i < batch->count; i++)
        sync_file_range(
                fd, (off64_t)batch->extents[i].begin,
                (off64_t)(batch->extents[i].end - batch->extents[i].begin),
                SYNC_FILE_RANGE_WRITE);
}

/* Pages that are not clean, or not whole, stay. */
static void end_batch(struct write_behind_batch *batch, int fd)
{
    for (int i = 0; i < batch->count; i++) {
        off64_t begin = (off64_t)batch->extents[i].begin;
        off64_t bytes = (off64_t)batch->extents[i].end - begin;
        sync_file_range(
                fd, begin, bytes,
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                        SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(fd, begin, bytes, POSIX_FADV_DONTNEED);
        progress_completed();
    }
    batch->count = 0;
    batch->bytes = 0;
}

static void add(struct write_behind_batch *batch, uint64_t begin, size_t bytes)
{
    batch->bytes += bytes;
    for (int i = batch->count - 1; i >= 0; i--)
        if (batch->extents[i].end == begin) {
            batch->extents[i].end += bytes;
            return;
        }
    batch->extents[batch->count].begin = begin;
    batch->extents[batch->count++].end = begin + bytes;
}

void write_behind(
        struct write_behind *behind, int fd, uint64_t begin, size_t bytes)
{
    struct write_behind_batch *batch = &behind->batches[behind->growing];
    add(batch, begin, bytes);
    if (batch->bytes < WRITE_BEHIND_BYTES &&
        batch->count < WRITE_BEHIND_EXTENTS)
        return;
    begin_batch(batch, fd);
    behind->growing = 1 - behind->growing;
    end_batch(&behind->batches[behind->growing], fd);
}
