/* params.c - new parameters on their way up. On the device they are expected
 * chunk by chunk: copies follow the workers (uploads.c). On the host
 * they wait until they are asked for. */
#include "offload/engine.h"

#include <assert.h>
#include <string.h>

/* --- where they live on the device ---------------------------------------- */

void offload_params_to(struct offload *offload, int segment, void *device)
{
    assert(!offload->request.params_on_host);
    offload->segments[segment].device = device;
}

enum zd_status offload_params_wait(struct offload *offload, int index)
{
    ZD_TRY(offload_update_wait(offload, index));
    struct wait wait = wait_begin(&offload->waits, WAIT_UP);
    enum zd_status status = uploads_await(offload, index);
    if (status == ZD_OK)
        status = token_wait(NULL, timeline_last(&offload->segments[index].up));
    wait_end(&offload->waits, &wait, WAIT_UP);
    return status;
}

enum zd_status offload_update_wait(struct offload *offload, int index)
{
    struct wait wait = wait_begin(&offload->waits, WAIT_HOST);
    token_wait(NULL, offload->segments[index].made);
    wait_end(&offload->waits, &wait, WAIT_HOST);
    return offload_failure(offload);
}

/* --- when they live on the host ------------------------------------------- */

static void await_made(void *ctx, int64_t ticket)
{
    struct segment *segment = ctx;
    struct waits *waits = &segment->offload->waits;
    waits_hold(waits, WAIT_UP, true);
    token_wait(NULL, tally_token(&segment->jobs, (uint64_t)ticket));
    waits_hold(waits, WAIT_UP, false);
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
    struct segment *segment = &offload->segments[passage->segment];
    ZD_TRY(feed_hold(up, await_made, segment, (int64_t)segment->made.number));
    return feed_copy(
            up, passage->to,
            params_of(offload, passage->segment) + passage->begin * wide,
            passage->count * wide);
}

/* --- when they live in the file ------------------------------------------- */

/* From the store into the buffer that the stream copies from. */
static enum zd_status fetch_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    struct offload *offload = worker->offload;
    struct stage *stage = &offload->param_stage;
    uint64_t number = job->stage_first + (uint64_t)at;
    ZD_TRY(token_wait(NULL, stage_empty(stage, number)));
    memcpy(stage_buffer(stage, number), memory->param,
           offload->chunks[job->first + at].count *
                   dtype_bytes(offload->request.dtype));
    return ZD_OK;
}

static void await_fetched(void *ctx, int64_t number)
{
    struct offload *offload = ctx;
    waits_hold(&offload->waits, WAIT_UP, true);
    token_wait(NULL, stage_full(&offload->param_stage, (uint64_t)number));
    waits_hold(&offload->waits, WAIT_UP, false);
}

static void note_sent_up(void *ctx, int64_t number)
{
    stage_note_emptied(ctx, (uint64_t)number);
}

/* Elements of the segment where a chunk begins. */
static size_t chunk_begin(const struct offload *offload, int index)
{
    const struct chunk *chunk = &offload->chunks[index];
    return offload->request.extents[chunk->extent].offset + chunk->begin;
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

/* Padding between extents is not in the file and stays as it is. */
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

/* The caller's record of what goes up, which its waits follow as the engine's
 * own. */
static enum zd_status record_up(struct offload *offload, struct timeline *done)
{
    struct token arrived;
    done->wait = segments_wait_up;
    done->owner = offload;
    return feed_record(&offload->up, done, &arrived);
}

enum zd_status offload_params_up(
        struct offload *offload, int segment, size_t begin, size_t count,
        void *to, struct timeline *done)
{
    const struct offload_request *request = &offload->request;
    struct lease *params = segment_params(offload, segment);
    struct token left;
    struct passage passage = {segment, begin, count, to};
    assert(request->params_on_host);
    assert(begin + count <= request->segment_counts[segment]);
    ZD_TRY(offload_failure(offload));
    /* what was made is waited for by the stream, or by the file's jobs */
    lease_acquire(params, LEASE_READ, "parameters up");
    /* inline streams make the copy now, and wait for what it needs */
    struct wait wait = wait_begin(&offload->waits, WAIT_UP);
    enum zd_status status = offload_params_in_file(request)
                                    ? send_from_file(offload, &passage)
                                    : send_from_memory(offload, &passage);
    wait_end(&offload->waits, &wait, WAIT_UP);
    ZD_TRY(status);
    pthread_mutex_lock(&offload->lock);
    offload->report.up_bytes += count * dtype_bytes(request->dtype);
    pthread_mutex_unlock(&offload->lock);
    ZD_TRY(feed_record(&offload->up, &offload->segments[segment].up, &left));
    lease_release(params, left);
    return done ? record_up(offload, done) : ZD_OK;
}

enum zd_status offload_up_after(struct offload *offload, struct token token)
{
    return feed_wait(&offload->up, token);
}

enum zd_status offload_copy_up(
        struct offload *offload, const void *from, void *to, size_t bytes,
        struct timeline *done)
{
    ZD_TRY(feed_copy(&offload->up, to, from, bytes));
    return record_up(offload, done);
}
