/* arrive.c - gradients that come down: copied by the stream, then summed,
 * rounded and squared by workers as they arrive. */
#include "offload/engine.h"

#include <assert.h>
#include <string.h>

static void add(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += more[i];
}

static void add_up(
        const struct offload_request *request, const struct chunk *chunk,
        const struct job *job, const struct chunk_memory *memory,
        const void *staged)
{
    if (request->accumulates && staged)
        add(memory->slot, staged, chunk->count);
    else if (staged)
        memcpy(memory->slot, staged,
               chunk->count * dtype_bytes(offload_grad_type(request)));
    if (request->accumulates && job->is_last)
        dtype_round(memory->slot, request->dtype, chunk->count);
}

/* Elements whose gradient this rank counts. */
static size_t counted(
        const struct offload_request *request, const struct chunk *chunk)
{
    const struct offload_extent *extent = &request->extents[chunk->extent];
    size_t end = extent->count - extent->copies;
    size_t left = end > chunk->begin ? end - chunk->begin : 0;
    return chunk->count < left ? chunk->count : left;
}

static enum zd_status arrive_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    struct offload *offload = worker->offload;
    const struct offload_request *request = &offload->request;
    const struct chunk *chunk = &offload->chunks[job->first + at];
    add_up(request, chunk, job, memory,
           job->is_staged ? stage_buffer(
                                    &offload->grad_stage,
                                    job->stage_first + (uint64_t)at)
                          : NULL);
    if (!job->is_last)
        return ZD_OK;
    optim_add_squares(
            &worker->squares, memory->slot, offload_grad_type(request),
            counted(request, chunk));
    if (!updates_early(offload, chunk->segment))
        return ZD_OK;
    chunk_save(offload, chunk, memory);
    return chunk_update(worker, &offload->unclipped, chunk, memory, NULL);
}

/* `arg`: a ticket and how many chunks. */
static void note_arrived(void *ctx, int64_t arg)
{
    struct offload *offload = ctx;
    int64_t most = offload->chunk_count + 1;
    job_raise(offload, (uint64_t)(arg / most), (int)(arg % most));
}

static void await_buffer(void *ctx, int64_t number)
{
    struct offload *offload = ctx;
    token_wait(NULL, stage_empty(&offload->grad_stage, (uint64_t)number));
}

/* Queue the copies of a segment's chunks, each followed by a call that makes it
 * available to workers. */
static enum zd_status queue_chunks(
        struct offload *offload, const struct segment *segment,
        const char *from, const struct job *job, uint64_t ticket)
{
    struct feed *down = &offload->down;
    int joined = 1;
    for (int i = 0; i < segment->chunk_count; i += joined) {
        const struct chunk *chunks = &offload->chunks[job->first + i];
        int most = job->is_staged ? 1 : segment->chunk_count - i;
        struct chunk_copy copy;
        joined = chunks_join(
                &offload->store_request, chunks, most, false, feed_piece(down),
                &copy);
        if (job->is_staged) {
            uint64_t passage = job->stage_first + (uint64_t)i;
            ZD_TRY(feed_hold(down, await_buffer, offload, (int64_t)passage));
            copy.host = stage_buffer(&offload->grad_stage, passage);
        }
        ZD_TRY(feed_copy(down, copy.host, from + copy.at, copy.bytes));
        if (ticket)
            ZD_TRY(feed_call(
                    down, note_arrived, offload,
                    (int64_t)ticket * (offload->chunk_count + 1) + joined));
    }
    return ZD_OK;
}

enum zd_status offload_grads_down(
        struct offload *offload, int index, const void *from,
        struct token ready, int micro, bool last)
{
    const struct offload_request *request = &offload->request;
    struct segment *segment = &offload->segments[index];
    bool updates = last && updates_early(offload, index);
    struct job job = {
            .fn = arrive_chunk,
            .first = segment->first_chunk,
            .count = segment->chunk_count,
            .is_last = last,
            .reads = updates ? CHUNK_STATES : 0,
            .writes = updates ? CHUNK_STATES
                              : store_slots(offload_grads_in_file(request)),
            .shared_end = updates ? offload->chunk_count : 0,
            .is_staged = offload_grads_in_file(request) || micro > 0,
    };
    assert(request->accumulates || (micro == 0 && last));
    ZD_TRY(offload_failure(offload));
    struct feed *down = &offload->down;
    struct token left;
    /* additions to an element must follow the order of micro-batches */
    ZD_TRY(segment_take_grads(offload, index, micro, updates, &job.after));
    if (job.is_staged) {
        job.stage_first = offload->grad_stage.next;
        offload->grad_stage.next += (uint64_t)job.count;
    }
    bool works = job.is_staged || last;
    uint64_t ticket = works ? job_add(offload, &job) : 0;
    ZD_TRY(feed_wait(down, ready));
    ZD_TRY(queue_chunks(offload, segment, from, &job, ticket));
    report_add(
            offload,
            segment->elements * dtype_bytes(offload_grad_type(request)), 0);
    if (updates)
        visits_count(offload, segment->first_chunk, segment->chunk_count);
    ZD_TRY(feed_record(down, &segment->down, &left));
    segment_grads_taken(offload, index, updates, ticket);
    return ZD_OK;
}

struct token offload_grads_left(struct offload *offload, int segment)
{
    return timeline_last(&offload->segments[segment].down);
}

enum zd_status offload_squares(struct offload *offload, struct exact_sum *sum)
{
    {
        WAITING(offload, WAIT_DOWN);
        /* a failed GPU makes no calls: get its error here */
        ZD_TRY(feed_finish(&offload->down));
    }
    WAITING(offload, offload->is_speculative ? WAIT_HOST : WAIT_DOWN);
    jobs_wait(offload);
    for (int i = 0; i < offload->worker_count; i++) {
        exact_sum_merge(sum, &offload->workers[i].squares);
        exact_sum_clear(&offload->workers[i].squares);
    }
    return offload_failure(offload);
}

static enum zd_status sum_blocks(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    struct offload *offload = worker->offload;
    const struct chunk *chunk = &offload->chunks[job->first + at];
    const struct offload_extent *extent =
            &offload->request.extents[chunk->extent];
    int64_t *sums = offload->block_sums[chunk->extent];
    if (sums)
        optim_add_block_sums(
                sums, extent->blocks, memory->slot,
                offload_grad_type(&offload->request),
                extent->begin + chunk->begin, counted(&offload->request, chunk),
                offload->norm);
    return ZD_OK;
}

enum zd_status offload_block_sums(
        struct offload *offload, int64_t *const *sums, double norm)
{
    WAITING(offload, WAIT_HOST);
    struct job job = job_over_all(
            offload, sum_blocks,
            store_slots(offload_grads_in_file(&offload->request)), 0);
    offload->block_sums = sums;
    offload->norm = norm;
    job_add(offload, &job);
    jobs_wait(offload);
    return offload_failure(offload);
}
