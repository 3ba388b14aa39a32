/* uploader.c - new parameters that live on the device go up as workers make
 * them: a thread queues their copies in the order of chunks. */
#include "offload/engine.h"

/* A segment's chunks, whose parameters are where chunk_slots says; only jobs
 * write there. On a GPU neighbours leave in one copy. */
static enum zd_status send_chunks(struct offload *offload, int index, int count)
{
    const struct offload_request *request = &offload->request;
    const struct chunk *chunks = &offload->chunks[index];
    const struct segment *segment = &offload->segments[chunks->segment];
    size_t wide = dtype_bytes(request->dtype);
    size_t most = feed_piece(&offload->up), bytes = 0;
    bool is_last = index + count == segment->first_chunk + segment->chunk_count;
    struct stream *up = offload->place.up;
    const char *from = NULL;
    char *to = NULL;
    if (!segment->device)
        return ZD_OK;
    for (int i = 0; i < count; i++) {
        size_t at = request->runs[chunks[i].run].offset + chunks[i].begin;
        size_t more = chunks[i].count * wide;
        struct chunk_memory memory;
        chunk_slots(&offload->store_request, &chunks[i], &memory);
        char *there = (char *)segment->device + at * wide;
        bool joins = bytes && memory.param == from + bytes &&
                     there == to + bytes && bytes + more <= most;
        if (bytes && !joins)
            ZD_TRY(stream_copy(up, to, from, bytes));
        if (!joins) {
            from = memory.param;
            to = there;
            bytes = 0;
        }
        bytes += more;
    }
    ZD_TRY(stream_copy(up, to, from, bytes));
    return is_last ? stream_record(up, segment->up.event) : ZD_OK;
}

/* Under the lock: chunks of one segment from `index` on that are there. */
static int count_updated(const struct offload *offload, int index)
{
    const struct segment *segment =
            &offload->segments[offload->chunks[index].segment];
    int end = segment->first_chunk + segment->chunk_count, count = 0;
    while (index + count < end && offload->is_updated[index + count])
        count++;
    return count;
}

static void note_sent(
        struct offload *offload, int index, int count, enum zd_status status)
{
    const struct chunk *chunk = &offload->chunks[index];
    const struct segment *segment = &offload->segments[chunk->segment];
    if (status != ZD_OK && offload->status == ZD_OK) {
        offload->status = status;
        offload->error = *zd_error_get();
    }
    offload->next_up += count;
    if (offload->next_up == segment->first_chunk + segment->chunk_count)
        pthread_cond_broadcast(&offload->progress);
}

static void *work(void *ctx)
{
    struct offload *offload = ctx;
    device_use(offload->device);
    pthread_mutex_lock(&offload->lock);
    while (!offload->is_stopping) {
        int index = offload->next_up;
        if (index == offload->chunk_count || !offload->is_updated[index]) {
            pthread_cond_wait(&offload->progress, &offload->lock);
            continue;
        }
        int count = count_updated(offload, index);
        pthread_mutex_unlock(&offload->lock);
        enum zd_status status = send_chunks(offload, index, count);
        pthread_mutex_lock(&offload->lock);
        note_sent(offload, index, count, status);
    }
    pthread_mutex_unlock(&offload->lock);
    return NULL;
}

enum zd_status uploader_start(struct offload *offload)
{
    if (offload->request.params_on_host)
        return ZD_OK;
    ZD_TRY(offload_thread_start(
            &offload->uploader, "offload-up", work, offload));
    offload->has_uploader = true;
    return ZD_OK;
}

void uploader_stop(struct offload *offload)
{
    if (offload->has_uploader)
        pthread_join(offload->uploader, NULL);
    offload->has_uploader = false;
}

/* Under the lock: bytes that an update sends to the device. */
static void count_up(struct offload *offload)
{
    for (int c = 0; c < offload->chunk_count; c++) {
        const struct chunk *chunk = &offload->chunks[c];
        if (offload->segments[chunk->segment].device)
            offload->report.up_bytes +=
                    chunk->count * dtype_bytes(offload->request.dtype);
    }
}

void uploads_begin(struct offload *offload)
{
    pthread_mutex_lock(&offload->lock);
    while (offload->has_uploader && offload->next_up < offload->chunk_count)
        pthread_cond_wait(&offload->progress, &offload->lock);
    for (int c = 0; c < offload->chunk_count; c++)
        offload->is_updated[c] = false;
    offload->next_up = 0;
    count_up(offload);
    pthread_mutex_unlock(&offload->lock);
}

void uploads_note(struct offload *offload, int index)
{
    offload->is_updated[index] = true;
    if (index == offload->next_up)
        pthread_cond_broadcast(&offload->progress);
}

enum zd_status uploads_await(struct offload *offload, int index)
{
    struct segment *segment = &offload->segments[index];
    if (!offload->has_uploader)
        return feed_await(&offload->up, timeline_last(&segment->up));
    pthread_mutex_lock(&offload->lock);
    while (offload->next_up < segment->first_chunk + segment->chunk_count)
        pthread_cond_wait(&offload->progress, &offload->lock);
    pthread_mutex_unlock(&offload->lock);
    return ZD_OK;
}
