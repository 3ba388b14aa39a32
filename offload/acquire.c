/* acquire.c - a chunk's memory, wherever it is. In its own file because tests
 * wrap these functions, to delay them or make them fail. */
#include "offload/engine.h"

#include "base/clock.h"

static void note_disk(struct offload *offload, double begin)
{
    ZD_LOCKED(&offload->lock);
    offload->disk_seconds += clock_seconds() - begin;
}

enum zd_status chunk_acquire(
        struct offload *offload, int index, struct chunk_memory *memory_out)
{
    const struct chunk *chunk = &offload->chunks[index];
    if (!offload->file) {
        record_memory(
                &offload->request, chunk, RECORD_ALIGN,
                offload->states + offload->records[index], memory_out);
        chunk_slots(&offload->store_request, chunk, memory_out);
        return ZD_OK;
    }
    double begin = clock_seconds();
    enum zd_status status =
            store_file_acquire(offload->file, index, memory_out);
    note_disk(offload, begin);
    return status;
}

enum zd_status chunk_release(struct offload *offload, int index)
{
    return offload->file ? store_file_release(offload->file, index) : ZD_OK;
}

enum zd_status chunk_list_begin(
        struct offload *offload, int first, int count, unsigned reads,
        unsigned writes)
{
    struct store_list list = {first, count, reads, writes};
    double begin = clock_seconds();
    enum zd_status status = store_file_begin(offload->file, &list);
    note_disk(offload, begin);
    return status;
}
