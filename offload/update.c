/* update.c - the optimizer's step on the host, early and undone if
 * necessary. */
#include "offload/engine.h"

#include "base/clock.h"

#include <assert.h>
#include <string.h>

enum zd_status chunk_update(
        const struct worker *worker, const struct optim_step *step,
        const struct chunk *chunk, const struct chunk_memory *memory,
        const float *block_v)
{
    const struct offload *offload = worker->offload;
    const struct offload_request *request = &offload->request;
    const struct offload_extent *extent = &request->extents[chunk->extent];
    struct optim_span span = {
            .master = memory->master,
            .master_type = offload_master_type(request->optim),
            .grad = memory->slot,
            .grad_type = offload_grad_type(request),
            .param = memory->param,
            .param_type = request->dtype,
            .layout = extent->layout,
            .lanes = memory->lanes,
            .block_v = block_v,
            .blocks = extent->blocks,
            .begin = extent->begin + chunk->begin,
            .count = chunk->count,
            .tensor = extent->tensor,
            .decays = extent->decays,
            .rate = extent->rate,
            .began = extent->began ? *extent->began : 0,
    };
    if (worker->visitor)
        return visit_update(worker, chunk, &span, step);
    optim_update(&span, step);
    return ZD_OK;
}

/* --- old values ----------------------------------------------------------- */

static struct chunk_memory old_values(
        const struct offload *offload, const struct chunk *chunk)
{
    const struct offload_request *request = &offload->request;
    size_t at = offload->segment_offsets[chunk->segment] -
                offload->segment_offsets[offload->undo_segment] +
                request->extents[chunk->extent].offset + chunk->begin;
    struct chunk_memory old = {0};
    record_memory(
            request, chunk, RECORD_ALIGN,
            offload->undo + offload->records[chunk - offload->chunks] -
                    offload->records[offload->undo_chunk],
            &old);
    old.slot =
            offload->undo_grads + at * dtype_bytes(offload_grad_type(request));
    return old;
}

static void copy_values(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from,
        copy_fn *copy)
{
    chunk_copy(request, chunk, to, from, true, copy);
    copy(to->slot, from->slot,
         chunk->count * dtype_bytes(offload_grad_type(request)));
}

void chunk_save(
        struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    struct chunk_memory old = old_values(offload, chunk);
    /* rarely read again */
    copy_values(&offload->request, chunk, &old, memory, copy_past_cache);
}

static void put_back(
        struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    struct chunk_memory old = old_values(offload, chunk);
    copy_values(&offload->request, chunk, memory, &old, copy_in_cache);
}

/* --- jobs over all chunks ------------------------------------------------- */

static const struct chunk *chunk_of(
        const struct worker *worker, const struct job *job, int at)
{
    return &worker->offload->chunks[job->first + at];
}

static enum zd_status update_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    const struct offload *offload = worker->offload;
    const struct chunk *chunk = chunk_of(worker, job, at);
    return chunk_update(
            worker, &offload->step, chunk, memory,
            offload->block_v ? offload->block_v[chunk->extent] : NULL);
}

static enum zd_status redo_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    if (job->first + at >= worker->offload->undo_chunk)
        put_back(worker->offload, chunk_of(worker, job, at), memory);
    return update_chunk(worker, job, at, memory);
}

static enum zd_status round_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    const struct offload_request *request = &worker->offload->request;
    dtype_convert(
            memory->param, request->dtype, memory->master,
            offload_master_type(request->optim),
            chunk_of(worker, job, at)->count);
    return ZD_OK;
}

static enum zd_status undo_chunk(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    if (job->first + at >= worker->offload->undo_chunk)
        put_back(worker->offload, chunk_of(worker, job, at), memory);
    return worker->offload->request.params_on_host
                   ? round_chunk(worker, job, at, memory)
                   : ZD_OK;
}

static enum zd_status clear_lanes(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    const struct chunk *chunk = chunk_of(worker, job, at);
    optim_lanes_clear(
            &worker->offload->request.extents[chunk->extent].layout,
            &memory->lanes, chunk->count);
    return ZD_OK;
}

/* Sets the state at the start of training. Its pages are first touched here, by
 * the threads that will use them. */
enum zd_status chunk_clear(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory)
{
    struct offload *offload = worker->offload;
    const struct offload_request *request = &offload->request;
    const struct chunk *chunk = chunk_of(worker, job, at);
    memset(memory->master, 0,
           chunk->count * dtype_bytes(offload_master_type(request->optim)));
    clear_lanes(worker, job, at, memory);
    memset(memory->slot, 0,
           chunk->count * dtype_bytes(offload_grad_type(request)));
    if (memory->param != memory->slot)
        memset(memory->param, 0, chunk->count * dtype_bytes(request->dtype));
    if (chunk->segment >= offload->undo_segment)
        chunk_save(offload, chunk, memory);
    return ZD_OK;
}

unsigned store_slots(bool in_file)
{
    return in_file ? CHUNK_SLOT : 0;
}

struct job job_over_all(
        const struct offload *offload, job_fn *fn, unsigned reads,
        unsigned writes)
{
    return (struct job){
            .fn = fn,
            .count = offload->chunk_count,
            .ready = offload->chunk_count,
            .alone = true,
            .reads = reads,
            .writes = writes,
            .is_over_all = true,
    };
}

/* --- the step ------------------------------------------------------------- */

void offload_step_begin(
        struct offload *offload, const struct optim_step *unclipped)
{
    if (offload->undo_segment == offload->request.segment_count)
        return;
    offload->unclipped = *unclipped;
    offload->is_speculative = true;
}

static bool steps_are_equal(
        const struct optim_step *a, const struct optim_step *b)
{
    return a->options == b->options && a->learning_rate == b->learning_rate &&
           a->t == b->t && a->grad_scale == b->grad_scale && a->seed == b->seed;
}

/* Adds a job over the first `segments` segments, between segments_take and
 * segments_leave. Early updates of the chunks after its own were right and
 * stay. `undone`: others are undone. */
static enum zd_status begin_over(
        struct offload *offload, const struct job *job, int segments,
        bool undone, const char *who)
{
    ZD_TRY(segments_take(offload, segments, who));
    if (job->updates)
        uploads_begin(offload, job->shared_end > 0);
    visits_count(offload, 0, job->shared_end);
    pthread_mutex_lock(&offload->lock);
    offload->update_begin = clock_seconds();
    offload->report.undone |= undone;
    for (int c = job->count; c < offload->chunk_count; c++)
        uploads_note(offload, c, PARAM_ON_HOST);
    pthread_mutex_unlock(&offload->lock);
    segments_taken(offload, segments, job_add(offload, job));
    return ZD_OK;
}

enum zd_status offload_update(
        struct offload *offload, const struct optim_step *step,
        const float *const *block_v)
{
    const struct offload_request *request = &offload->request;
    bool keeps = offload->is_speculative &&
                 steps_are_equal(&offload->unclipped, step);
    bool redoes = offload->is_speculative && !keeps;
    struct job job = job_over_all(
            offload, redoes ? redo_chunk : update_chunk,
            CHUNK_STATES | store_slots(offload_grads_in_file(request)),
            CHUNK_STATES | store_slots(offload_params_in_file(request)));
    if (keeps)
        job.count = job.ready = offload->undo_chunk;
    job.updates = true;
    /* early updates by visitors are repeated on the host */
    job.shared_end = offload->undo_chunk;
    job.ends_update = true;
    ZD_TRY(offload_failure(offload));
    assert(jobs_have_ended(offload)); /* offload_squares has waited */
    offload->is_speculative = false;
    offload->has_states = true;
    offload->step = *step;
    offload->block_v = block_v;
    ZD_TRY(begin_over(
            offload, &job,
            keeps ? offload->undo_segment : request->segment_count, redoes,
            redoes ? "redo" : "update"));
    return segments_leave(offload, true, "update");
}

enum zd_status offload_skip(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    bool was_updated = offload->is_speculative;
    struct job job = job_over_all(
            offload, was_updated ? undo_chunk : round_chunk,
            was_updated ? CHUNK_STATES : CHUNK_MASTER,
            store_slots(offload_params_in_file(request)) |
                    (was_updated ? CHUNK_STATES : 0));
    ZD_TRY(offload_failure(offload));
    assert(jobs_have_ended(offload));
    offload->is_speculative = false;
    /* gradients have overwritten parameters */
    bool lost = request->params_on_host && !request->accumulates;
    if (was_updated || lost) {
        job.ends_update = true;
        job.updates = request->params_on_host;
        ZD_TRY(begin_over(
                offload, &job, request->segment_count, was_updated,
                was_updated ? "undo" : "round"));
    }
    return segments_leave(offload, false, "skip");
}

enum zd_status offload_masters_written(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    struct job job = job_over_all(
            offload, round_chunk, CHUNK_MASTER,
            store_slots(offload_params_in_file(request)));
    job.updates = true;
    ZD_TRY(offload_finish(offload));
    ZD_TRY(begin_over(offload, &job, request->segment_count, false, "round"));
    return segments_leave(offload, true, "round");
}

enum zd_status offload_states_clear(struct offload *offload)
{
    struct job job = job_over_all(offload, clear_lanes, 0, CHUNK_M | CHUNK_V);
    ZD_TRY(offload_finish(offload));
    if (!offload->has_states)
        return ZD_OK;
    offload->has_states = false;
    job_add(offload, &job);
    return offload_finish(offload);
}
