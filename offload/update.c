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

/* Update a chunk now, as offload_update asked. */
static enum zd_status update_now(
        const struct worker *worker, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    const struct offload *offload = worker->offload;
    return chunk_update(
            worker, &offload->step, chunk, memory,
            offload->block_v ? offload->block_v[chunk->extent] : NULL);
}

/* --- old values ----------------------------------------------------------- */

static struct chunk_memory old_values(
        const struct offload *offload, const struct chunk *chunk)
{
    struct chunk_memory old = {0};
    record_memory(
            &offload->request, chunk, RECORD_ALIGN,
            offload->undo + offload->records[chunk - offload->chunks] -
                    offload->records[offload->undo_chunk],
            &old);
    return old;
}

/* Where the gradient of a chunk is saved for undo. */
static void *saved_grad(
        const struct offload *offload, const struct chunk *chunk)
{
    const struct offload_request *request = &offload->request;
    size_t at = offload->segment_offsets[chunk->segment] -
                offload->segment_offsets[offload->undo_segment] +
                request->extents[chunk->extent].offset + chunk->begin;
    return offload->undo_grads + at * dtype_bytes(offload_grad_type(request));
}

void chunk_save(
        struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    const struct offload_request *request = &offload->request;
    struct chunk_memory old = old_values(offload, chunk);
    /* rarely read again */
    chunk_copy(request, chunk, &old, memory, true, copy_past_cache);
    copy_past_cache(
            saved_grad(offload, chunk), memory->slot,
            chunk->count * dtype_bytes(offload_grad_type(request)));
}

static void put_back(
        struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    const struct offload_request *request = &offload->request;
    struct chunk_memory old = old_values(offload, chunk);
    chunk_copy(request, chunk, memory, &old, true, copy_in_cache);
    memcpy(memory->slot, saved_grad(offload, chunk),
           chunk->count * dtype_bytes(offload_grad_type(request)));
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
    return update_now(worker, chunk_of(worker, job, at), memory);
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

/* Parts of the store for a job that makes parameters. */
static unsigned slots_of(bool in_file)
{
    return in_file ? CHUNK_SLOT : 0;
}

static struct job job_over_all(const struct offload *offload, job_fn *fn)
{
    return (struct job){
            .fn = fn,
            .count = offload->chunk_count,
            .ready = offload->chunk_count,
            .alone = true,
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

static void note_begin(struct offload *offload, bool undone)
{
    ZD_LOCKED(&offload->lock);
    offload->update_begin = clock_seconds();
    offload->report.undone |= undone;
}

/* Between segments_take and segments_leave. */
static void add_over_all(struct offload *offload, const struct job *job)
{
    segments_taken(
            offload, offload->request.segment_count, job_add(offload, job));
}

/* Early updates were right and stay; the job updates the other segments. */
static enum zd_status keep_updates(struct offload *offload, struct job *job)
{
    job->count = job->ready = offload->undo_chunk;
    ZD_TRY(segments_take(offload, offload->undo_segment, "update"));
    uploads_begin(offload, true);
    visits_count(offload, 0, offload->undo_chunk);
    note_begin(offload, false);
    pthread_mutex_lock(&offload->lock);
    for (int c = offload->undo_chunk; c < offload->chunk_count; c++)
        uploads_note(offload, c, PARAM_ON_HOST);
    pthread_mutex_unlock(&offload->lock);
    segments_taken(offload, offload->undo_segment, job_add(offload, job));
    return ZD_OK;
}

static enum zd_status update_all(
        struct offload *offload, const struct job *job, bool undone)
{
    ZD_TRY(segments_take(
            offload, offload->request.segment_count,
            undone ? "redo" : "update"));
    uploads_begin(offload, true);
    visits_count(offload, 0, offload->undo_chunk);
    note_begin(offload, undone);
    add_over_all(offload, job);
    return ZD_OK;
}

enum zd_status offload_update(
        struct offload *offload, const struct optim_step *step,
        const float *const *block_v)
{
    const struct offload_request *request = &offload->request;
    bool was_updated = offload->is_speculative;
    bool keeps = was_updated && steps_are_equal(&offload->unclipped, step);
    struct job job = job_over_all(
            offload, was_updated && !keeps ? redo_chunk : update_chunk);
    job.updates = true;
    /* early updates by visitors are repeated on the host */
    job.shared_end = offload->undo_chunk;
    job.ends_update = true;
    job.reads = CHUNK_STATES | slots_of(offload_grads_in_file(request));
    job.writes = CHUNK_STATES | slots_of(offload_params_in_file(request));
    ZD_TRY(offload_failure(offload));
    assert(jobs_have_ended(offload)); /* offload_squares has waited */
    offload->is_speculative = false;
    offload->has_states = true;
    offload->step = *step;
    offload->block_v = block_v;
    if (keeps)
        ZD_TRY(keep_updates(offload, &job));
    else
        ZD_TRY(update_all(offload, &job, was_updated));
    return segments_leave(offload, true, "update");
}

enum zd_status offload_skip(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    bool was_updated = offload->is_speculative;
    struct job job =
            job_over_all(offload, was_updated ? undo_chunk : round_chunk);
    ZD_TRY(offload_failure(offload));
    assert(jobs_have_ended(offload));
    offload->is_speculative = false;
    /* gradients have overwritten parameters */
    bool lost = request->params_on_host && !request->accumulates;
    if (was_updated || lost) {
        job.ends_update = true;
        job.reads = was_updated ? CHUNK_STATES : CHUNK_MASTER;
        job.writes = slots_of(offload_params_in_file(request)) |
                     (was_updated ? CHUNK_STATES : 0);
        job.updates = request->params_on_host;
        ZD_TRY(segments_take(
                offload, request->segment_count,
                was_updated ? "undo" : "round"));
        if (job.updates)
            uploads_begin(offload, false);
        note_begin(offload, was_updated);
        add_over_all(offload, &job);
    }
    return segments_leave(offload, false, "skip");
}

enum zd_status offload_masters_written(struct offload *offload)
{
    struct job job = job_over_all(offload, round_chunk);
    job.updates = true;
    job.reads = CHUNK_MASTER;
    job.writes = slots_of(offload_params_in_file(&offload->request));
    ZD_TRY(offload_finish(offload));
    ZD_TRY(segments_take(offload, offload->request.segment_count, "round"));
    uploads_begin(offload, false);
    add_over_all(offload, &job);
    return segments_leave(offload, true, "round");
}

enum zd_status offload_states_clear(struct offload *offload)
{
    struct job job = job_over_all(offload, clear_lanes);
    job.writes = CHUNK_M | CHUNK_V;
    ZD_TRY(offload_finish(offload));
    if (!offload->has_states)
        return ZD_OK;
    offload->has_states = false;
    job_add(offload, &job);
    return offload_finish(offload);
}
