/* params.c - copies of new parameters up. Parameters that stay on the device
 * are copied chunk by chunk behind the workers (uploads.c); those on the host
 * when they are requested. */
#include "offload/engine.h"

#include <assert.h>
#include <string.h>

/* --- parameters that stay on the device
 * ---------------------------------------- */

void offload_params_to(struct offload *offload, int segment, void *device)
{
    assert(!offload->request.params_on_host);
    offload->segments[segment].device = device;
}

enum zd_status offload_params_wait(struct offload *offload, int index)
{
    ZD_TRY(offload_update_wait(offload, index));
    WAITING(offload, WAIT_UP);
    ZD_TRY(uploads_await(offload, index));
    return token_wait(NULL, timeline_last(&offload->segments[index].up));
}

enum zd_status offload_update_wait(struct offload *offload, int index)
{
    WAITING(offload, WAIT_HOST);
    token_wait(NULL, offload->segments[index].made);
    return offload_failure(offload);
}

/* --- parameters on the host ------------------------------------------- */

static void await_made(void *ctx, int64_t ticket)
{
    struct segment *segment = ctx;
    token_wait(NULL, tally_token(&segment->jobs, (uint64_t)ticket));
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

static enum zd_status send_from_memory(
        struct offload *offload, int index, char *to)
{
    struct segment *segment = &offload->segments[index];
    ZD_TRY(feed_hold(
            &offload->up, await_made, segment, (int64_t)segment->made.number));
    return feed_copy(
            &offload->up, to, params_of(offload, index),
            offload->request.segment_counts[index] *
                    dtype_bytes(offload->request.dtype));
}

/* --- parameters in the file ------------------------------------------- */

/* Copies a chunk from the store into the buffer that the stream reads. */
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
    token_wait(NULL, stage_full(&offload->param_stage, (uint64_t)number));
}

static void note_sent_up(void *ctx, int64_t number)
{
    stage_note_emptied(ctx, (uint64_t)number);
}

/* `to`: of its segment. */
static enum zd_status queue_fetched(
        struct offload *offload, const struct chunk *chunk, char *to,
        uint64_t number)
{
    struct stage *stage = &offload->param_stage;
    size_t wide = dtype_bytes(offload->request.dtype);
    size_t at = offload->request.extents[chunk->extent].offset + chunk->begin;
    ZD_TRY(feed_hold(&offload->up, await_fetched, offload, (int64_t)number));
    ZD_TRY(feed_copy(
            &offload->up, to + at * wide, stage_buffer(stage, number),
            chunk->count * wide));
    return feed_call(&offload->up, note_sent_up, stage, (int64_t)number);
}

/* Padding between extents is not in the file and stays as it is. */
static enum zd_status send_from_file(
        struct offload *offload, int index, char *to)
{
    const struct segment *segment = &offload->segments[index];
    struct job job = {
            .fn = fetch_chunk,
            .first = segment->first_chunk,
            .count = segment->chunk_count,
            .ready = segment->chunk_count,
            .alone = true,
            .reads = CHUNK_SLOT,
            .fills_stage = true,
            .stage_first = offload->param_stage.next,
    };
    offload->param_stage.next += (uint64_t)job.count;
    job_add(offload, &job);
    for (int i = 0; i < job.count; i++)
        ZD_TRY(queue_fetched(
                offload, &offload->chunks[job.first + i], to,
                job.stage_first + (uint64_t)i));
    return ZD_OK;
}

/* Inline streams copy now, and wait for what the copy needs. */
static enum zd_status send(struct offload *offload, int segment, char *to)
{
    WAITING(offload, WAIT_UP);
    return offload_params_in_file(&offload->request)
                   ? send_from_file(offload, segment, to)
                   : send_from_memory(offload, segment, to);
}

/* Records the copy up in the caller's timeline, which its waits then use. */
static enum zd_status record_up(struct offload *offload, struct timeline *done)
{
    struct token arrived;
    done->wait = segments_wait_up;
    done->owner = offload;
    return feed_record(&offload->up, done, &arrived);
}

enum zd_status offload_params_up(
        struct offload *offload, int segment, void *to, struct timeline *done)
{
    const struct offload_request *request = &offload->request;
    struct lease *params = segment_params(offload, segment);
    struct token left;
    assert(request->params_on_host);
    ZD_TRY(offload_failure(offload));
    /* no wait here: the stream, or the file's jobs, wait for the update */
    lease_acquire(params, LEASE_READ, "parameters up");
    ZD_TRY(send(offload, segment, to));
    report_add(
            offload, 0,
            request->segment_counts[segment] * dtype_bytes(request->dtype));
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
    report_add(offload, 0, bytes);
    return record_up(offload, done);
}
