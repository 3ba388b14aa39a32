/* params.c - new parameters on their way up. On the device they are expected
 * chunk by chunk: the uploader follows the workers. On the host they wait until
 * they are asked for. */
#include "offload/engine.h"

#include <assert.h>
#include <string.h>

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

void *params_uploader(void *ctx)
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

/* --- from the update to there --------------------------------------------- */

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

void params_begin(struct offload *offload)
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

void params_note_updated(struct offload *offload, int index)
{
    offload->is_updated[index] = true;
    if (index == offload->next_up)
        pthread_cond_broadcast(&offload->progress);
}

enum zd_status params_await_queued(struct offload *offload, int index)
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

enum zd_status offload_params_wait(struct offload *offload, int index)
{
    ZD_TRY(offload_update_wait(offload, index));
    struct wait wait = wait_begin(offload, WAIT_UP);
    enum zd_status status = params_await_queued(offload, index);
    if (status == ZD_OK)
        status = token_wait(NULL, marker_last(&offload->segments[index].up));
    wait_end(offload, &wait, WAIT_UP);
    return status;
}

enum zd_status offload_update_wait(struct offload *offload, int index)
{
    struct wait wait = wait_begin(offload, WAIT_HOST);
    segment_await(offload, index, offload->segments[index].made);
    wait_end(offload, &wait, WAIT_HOST);
    return offload_failure(offload);
}

enum zd_status offload_up_wait(struct offload *offload, struct token done)
{
    struct wait wait = wait_begin(offload, WAIT_UP);
    enum zd_status status = feed_follow(&offload->up, done, NULL);
    wait_end(offload, &wait, WAIT_UP);
    ZD_TRY(status);
    return offload_failure(offload);
}

/* --- when they live on the host ------------------------------------------- */

/* `arg`: a ticket and a segment. */
static void await_made(void *ctx, int64_t arg)
{
    struct offload *offload = ctx;
    int64_t segments = offload->request.segment_count;
    waits_hold(offload, WAIT_UP, true);
    segment_await(offload, (int)(arg % segments), (uint64_t)(arg / segments));
    waits_hold(offload, WAIT_UP, false);
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

/* A part of a segment's parameters on its way to the device. */
struct passage {
    int segment;
    size_t begin, count;
    char *to;
};

static enum zd_status send_from_memory(
        struct offload *offload, const struct passage *passage)
{
    struct feed *up = &offload->up;
    size_t wide = dtype_bytes(offload->request.dtype);
    int64_t made = (int64_t)offload->segments[passage->segment].made;
    ZD_TRY(feed_hold(
            up, await_made, offload,
            made * offload->request.segment_count + passage->segment));
    return feed_copy(
            up, passage->to,
            params_of(offload, passage->segment) + passage->begin * wide,
            passage->count * wide);
}

/* --- when they live in the file ------------------------------------------- */

/* From the store into the buffer that the stream copies from. */
static enum zd_status fetch_chunk(
        struct worker *worker, const struct job *job, int at)
{
    struct offload *offload = worker->offload;
    uint64_t number = job->stage_first + (uint64_t)at;
    const struct chunk *chunk = &offload->chunks[job->first + at];
    struct chunk_memory memory;
    ZD_TRY(chunk_acquire(offload, job->first + at, &memory));
    stage_await_empty(&offload->param_stage, number);
    memcpy(stage_buffer(&offload->param_stage, number), memory.param,
           chunk->count * dtype_bytes(offload->request.dtype));
    return chunk_release(offload, job->first + at);
}

static void await_fetched(void *ctx, int64_t number)
{
    struct offload *offload = ctx;
    waits_hold(offload, WAIT_UP, true);
    stage_await_filled(&offload->param_stage, (uint64_t)number);
    waits_hold(offload, WAIT_UP, false);
}

static void note_sent_up(void *ctx, int64_t number)
{
    stage_note_emptied(ctx, (uint64_t)number);
}

/* Elements of the segment where a chunk begins. */
static size_t chunk_begin(const struct offload *offload, int index)
{
    const struct chunk *chunk = &offload->chunks[index];
    return offload->request.runs[chunk->run].offset + chunk->begin;
}

static enum zd_status queue_fetched(
        struct offload *offload, const struct passage *passage, int index,
        uint64_t number)
{
    struct stage *stage = &offload->param_stage;
    struct feed *up = &offload->up;
    size_t wide = dtype_bytes(offload->request.dtype);
    size_t begin = chunk_begin(offload, index), from = begin;
    size_t end = begin + offload->chunks[index].count;
    size_t passage_end = passage->begin + passage->count;
    from = from > passage->begin ? from : passage->begin;
    end = end < passage_end ? end : passage_end;
    ZD_TRY(feed_hold(up, await_fetched, offload, (int64_t)number));
    ZD_TRY(feed_copy(
            up, passage->to + (from - passage->begin) * wide,
            (char *)stage_buffer(stage, number) + (from - begin) * wide,
            (end - from) * wide));
    return feed_call(up, note_sent_up, stage, (int64_t)number);
}

/* Padding between runs is not in the file and stays as it is. */
static enum zd_status send_from_file(
        struct offload *offload, const struct passage *passage)
{
    const struct segment *segment = &offload->segments[passage->segment];
    int first = segment->first_chunk;
    int end = first + segment->chunk_count;
    while (first < end &&
           chunk_begin(offload, first) + offload->chunks[first].count <=
                   passage->begin)
        first++;
    while (first < end &&
           chunk_begin(offload, end - 1) >= passage->begin + passage->count)
        end--;
    struct job job = {
            .fn = fetch_chunk,
            .first = first,
            .count = end - first,
            .ready = end - first,
            .alone = true,
            .is_for = WAIT_UP,
            .reads = CHUNK_SLOT,
            .fills_stage = true,
            .stage_first = offload->param_stage.next,
    };
    offload->param_stage.next += (uint64_t)job.count;
    job_add(offload, &job);
    for (int i = 0; i < job.count; i++)
        ZD_TRY(queue_fetched(
                offload, passage, first + i, job.stage_first + (uint64_t)i));
    return ZD_OK;
}

enum zd_status offload_params_up(
        struct offload *offload, int segment, size_t begin, size_t count,
        void *to, struct marker *done)
{
    const struct offload_request *request = &offload->request;
    struct lease *params = segment_params(offload, segment);
    struct token left, arrived;
    struct passage passage = {segment, begin, count, to};
    assert(request->params_on_host);
    assert(begin + count <= request->segment_counts[segment]);
    ZD_TRY(offload_failure(offload));
    /* what was made is waited for by the stream, or by the file's jobs */
    lease_acquire(params, LEASE_READ, "parameters up");
    /* inline streams make the copy now, and wait for what it needs */
    struct wait wait = wait_begin(offload, WAIT_UP);
    enum zd_status status = offload_params_in_file(request)
                                    ? send_from_file(offload, &passage)
                                    : send_from_memory(offload, &passage);
    wait_end(offload, &wait, WAIT_UP);
    ZD_TRY(status);
    pthread_mutex_lock(&offload->lock);
    offload->report.up_bytes += count * dtype_bytes(request->dtype);
    pthread_mutex_unlock(&offload->lock);
    ZD_TRY(feed_record(&offload->up, &offload->segments[segment].up, &left));
    lease_release(params, left);
    return done ? feed_record(&offload->up, done, &arrived) : ZD_OK;
}

enum zd_status offload_up_after(struct offload *offload, struct token token)
{
    return feed_wait(&offload->up, token);
}

enum zd_status offload_copy_up(
        struct offload *offload, const void *from, void *to, size_t bytes,
        struct marker *done)
{
    struct token arrived;
    ZD_TRY(feed_copy(&offload->up, to, from, bytes));
    return feed_record(&offload->up, done, &arrived);
}
