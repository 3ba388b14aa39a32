/* params.c - new parameters on their way up. On the device they are expected
 * chunk by chunk: the uploader follows the workers. On the host they wait until
 * they are asked for. */
#include "offload/engine.h"

#include <assert.h>

/* --- where they live on the device ---------------------------------------- */

void offload_params_to(struct offload *offload, int segment, void *device)
{
    assert(!offload->request.params_on_host);
    offload->segments[segment].device = device;
}

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
    return is_last ? stream_record(up, segment->up) : ZD_OK;
}

static void note_sent(struct offload *offload, int index, enum zd_status status)
{
    const struct chunk *chunk = &offload->chunks[index];
    struct segment *segment = &offload->segments[chunk->segment];
    if (status != ZD_OK && offload->status == ZD_OK) {
        offload->status = status;
        offload->error = *zd_error_get();
    }
    if (segment->device)
        offload->report.up_bytes +=
                chunk->count * dtype_bytes(offload->request.dtype);
    offload->next_up++;
    if (offload->next_up == segment->first_chunk + segment->chunk_count) {
        segment->is_queued = true;
        pthread_cond_broadcast(&offload->progress);
    }
}

void *uploader_run(void *ctx)
{
    struct offload *offload = ctx;
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

/* --- from the update to there --------------------------------------------- */

void params_begin(struct offload *offload)
{
    pthread_mutex_lock(&offload->lock);
    while (offload->has_uploader && offload->next_up < offload->chunk_count)
        pthread_cond_wait(&offload->progress, &offload->lock);
    for (int c = 0; c < offload->chunk_count; c++)
        offload->is_updated[c] = false;
    for (int s = 0; s < offload->request.segment_count; s++) {
        struct segment *segment = &offload->segments[s];
        segment->chunks_left = segment->chunk_count;
        segment->is_queued = !segment->chunk_count;
    }
    offload->next_up = 0;
    pthread_mutex_unlock(&offload->lock);
}

void params_note_updated(struct offload *offload, int index)
{
    struct segment *segment =
            &offload->segments[offload->chunks[index].segment];
    offload->is_updated[index] = true;
    segment->chunks_left--;
    if (!segment->chunks_left || index == offload->next_up)
        pthread_cond_broadcast(&offload->progress);
}

void params_await_host(struct offload *offload, int index)
{
    struct segment *segment = &offload->segments[index];
    pthread_mutex_lock(&offload->lock);
    while (segment->chunks_left)
        pthread_cond_wait(&offload->progress, &offload->lock);
    pthread_mutex_unlock(&offload->lock);
}

static void await_queued(struct offload *offload, const struct segment *segment)
{
    pthread_mutex_lock(&offload->lock);
    while (offload->has_uploader && !segment->is_queued)
        pthread_cond_wait(&offload->progress, &offload->lock);
    pthread_mutex_unlock(&offload->lock);
}

enum zd_status params_await_slots(struct offload *offload, int index)
{
    struct segment *segment = &offload->segments[index];
    params_await_host(offload, index);
    if (!offload->has_uploader)
        return ZD_OK;
    await_queued(offload, segment);
    return event_wait(segment->up);
}

enum zd_status offload_params_wait(struct offload *offload, int index)
{
    double begin = seconds_now();
    params_await_host(offload, index);
    double made = seconds_now();
    ZD_TRY(params_await_slots(offload, index));
    double end = seconds_now();
    pthread_mutex_lock(&offload->lock);
    offload->report.wait_host_seconds += made - begin;
    offload->report.wait_up_seconds += end - made;
    pthread_mutex_unlock(&offload->lock);
    return offload_failure(offload);
}

/* --- when they live on the host ------------------------------------------- */

static void await_made(void *ctx, int64_t segment)
{
    params_await_host(ctx, (int)segment);
}

/* The segment's parameters as one array, padding included. */
static const char *params_of(struct offload *offload, int segment)
{
    const struct offload_request *request = &offload->request;
    return (char *)arena_span(
                   offload->arena,
                   request->accumulates ? "offload.params" : "offload.slots") +
           offload->segment_offsets[segment] * dtype_bytes(request->dtype);
}

enum zd_status offload_params_up(
        struct offload *offload, int segment, size_t begin, size_t count,
        void *to, struct event *done)
{
    size_t wide = dtype_bytes(offload->request.dtype);
    struct stream *up = offload->place.up;
    assert(offload->request.params_on_host);
    assert(begin + count <= offload->request.segment_counts[segment]);
    ZD_TRY(offload_failure(offload));
    ZD_TRY(stream_call(up, await_made, offload, segment));
    ZD_TRY(stream_copy(
            up, to, params_of(offload, segment) + begin * wide, count * wide));
    pthread_mutex_lock(&offload->lock);
    offload->report.up_bytes += count * wide;
    pthread_mutex_unlock(&offload->lock);
    return done ? stream_record(up, done) : ZD_OK;
}
