/* uploader.c - new parameters that live on the device go up as workers make
 * them: a thread queues their copies in the order of chunks. */
#include "offload/engine.h"

#include "base/threads.h"

/* The chunk's parameters are where chunk_slots says; only jobs write there. */
static enum zd_status send_chunk(struct offload *offload, int index)
{
    const struct offload_request *request = &offload->request;
    const struct chunk *chunk = &offload->chunks[index];
    const struct segment *segment = &offload->segments[chunk->segment];
    size_t wide = dtype_bytes(request->dtype);
    size_t at = request->runs[chunk->run].offset + chunk->begin;
    bool is_last = index + 1 == segment->first_chunk + segment->chunk_count;
    struct stream *up = offload->place.up;
    struct chunk_memory memory;
    if (!segment->device)
        return ZD_OK;
    chunk_slots(&offload->store_request, chunk, &memory);
    ZD_TRY(stream_copy(
            up, (char *)segment->device + at * wide, memory.param,
            chunk->count * wide));
    return is_last ? stream_record(up, segment->up.event) : ZD_OK;
}

static void note_sent(struct offload *offload, int index, enum zd_status status)
{
    const struct chunk *chunk = &offload->chunks[index];
    const struct segment *segment = &offload->segments[chunk->segment];
    if (status != ZD_OK && offload->status == ZD_OK) {
        offload->status = status;
        offload->error = *zd_error_get();
    }
    offload->next_up++;
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
        pthread_mutex_unlock(&offload->lock);
        enum zd_status status = send_chunk(offload, index);
        pthread_mutex_lock(&offload->lock);
        note_sent(offload, index, status);
    }
    pthread_mutex_unlock(&offload->lock);
    return NULL;
}

enum zd_status uploader_start(struct offload *offload)
{
    if (offload->request.params_on_host)
        return ZD_OK;
    if (thread_start(&offload->uploader, "offload-up", work, offload) != 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread for the offload engine "
                "(offload-up)");
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
    const struct segment *segment = &offload->segments[index];
    if (!offload->has_uploader)
        return feed_await(&offload->up, marker_last(&segment->up));
    pthread_mutex_lock(&offload->lock);
    while (offload->next_up < segment->first_chunk + segment->chunk_count)
        pthread_cond_wait(&offload->progress, &offload->lock);
    pthread_mutex_unlock(&offload->lock);
    return ZD_OK;
}
