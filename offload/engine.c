/* engine.c - creation and destruction of the engine. */
#include "offload/engine.h"

#include "base/must.h"

#include <assert.h>
#include <stdlib.h>

static void take_tables(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    size_t extents = (size_t)request->extent_count;
    size_t segments = (size_t)request->segment_count;
    /* under way at once: arrivals of all segments, and a few more */
    size_t jobs = 2 * segments + 8;
    offload->chunks = chunks_cut(request, &offload->chunk_count);
    size_t chunks = (size_t)offload->chunk_count;
    offload->made = zd_array(chunks, sizeof *offload->made);
    offload->visits = zd_array(chunks, sizeof *offload->visits);
    offload->extent_chunks = zd_array(extents, sizeof *offload->extent_chunks);
    offload->records = zd_array(chunks, sizeof *offload->records);
    offload->segments = zd_array(segments, sizeof *offload->segments);
    offload->segment_offsets =
            zd_array(segments, sizeof *offload->segment_offsets);
    offload->jobs = zd_array(jobs, sizeof *offload->jobs);
    offload->workers = zd_array(
            (size_t)offload->place.worker_threads + VISITORS,
            sizeof *offload->workers);
    offload->job_capacity = (int)jobs;
}

/* Chunks are in the order of extents, and extents in the order of segments. */
static void fill_tables(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    size_t offset = 0;
    visits_choose(
            request, offload->chunks, offload->chunk_count, offload->visits);
    for (int s = 0; s < request->segment_count; s++) {
        offload->segment_offsets[s] = offset;
        offset += request->segment_counts[s];
    }
    for (int c = offload->chunk_count - 1; c >= 0; c--) {
        const struct chunk *chunk = &offload->chunks[c];
        offload->extent_chunks[chunk->extent] = c;
        offload->segments[chunk->segment].first_chunk = c;
        offload->segments[chunk->segment].chunk_count++;
        offload->segments[chunk->segment].elements += chunk->count;
    }
    offload->undo_segment = request->undo_first;
    while (offload->undo_chunk < offload->chunk_count &&
           offload->chunks[offload->undo_chunk].segment < offload->undo_segment)
        offload->undo_chunk++;
}

/* Lays out the records of the states, and of their old values followed by
 * gradients. */
static enum zd_status create_store(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    offload->store_request = (struct store_request){
            .request = request,
            .chunks = offload->chunks,
            .chunk_count = offload->chunk_count,
            .segment_offsets = offload->segment_offsets,
            .arena = offload->arena,
            .place = &offload->place,
    };
    if (request->options->optimizer == OFFLOAD_NVME)
        return store_file_create(&offload->store_request, &offload->file);
    uint64_t bytes = records_place(
            request, offload->chunks, offload->chunk_count, RECORD_ALIGN,
            offload->records);
    if (!bytes)
        return ZD_OK;
    offload->states = arena_span(offload->arena, "offload.states");
    if (offload->undo_chunk == offload->chunk_count)
        return ZD_OK;
    offload->undo = arena_span(offload->arena, "offload.undo");
    offload->undo_grads =
            offload->undo + bytes - offload->records[offload->undo_chunk];
    return ZD_OK;
}

static void create_stages(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    size_t grads = stage_grad_bytes(request);
    size_t params = stage_bytes(request) - grads;
    char *memory = grads + params
                           ? arena_span(offload->arena, "offload.staging")
                           : NULL;
    stage_init(&offload->grad_stage, memory, grads / STAGE_BUFFERS);
    stage_init(
            &offload->param_stage, memory ? memory + grads : NULL,
            params / STAGE_BUFFERS);
}

/* On a GPU a stream must not be held by a host function that waits for workers.
 * So feeds have a thread if gradients pass through buffers, or parameters are
 * on the host; parameters that stay on the device are queued as workers make
 * them. */
static enum zd_status create_feeds(struct offload *offload)
{
    const struct offload_request *request = &offload->request;
    bool is_gpu = device_backend() == DEVICE_CUDA;
    bool down = is_gpu && stage_grad_bytes(request) > 0;
    bool up = is_gpu || !request->params_on_host;
    ZD_TRY(feed_init(&offload->down, offload->place.down, down));
    return feed_init(&offload->up, offload->place.up, up);
}

static enum zd_status clear_states(struct offload *offload)
{
    struct job job = job_over_all(
            offload, chunk_clear, 0,
            CHUNK_STATES |
                    store_slots(offload_params_in_file(&offload->request)));
    job_add(offload, &job);
    jobs_wait(offload);
    return offload_failure(offload);
}

static enum zd_status begin(struct offload *offload)
{
    ZD_TRY(create_feeds(offload));
    ZD_TRY(segments_create(offload));
    ZD_TRY(create_store(offload));
    ZD_TRY(visits_begin(offload));
    ZD_TRY(workers_start(offload));
    return clear_states(offload);
}

enum zd_status offload_create(
        const struct offload_request *request, const struct arena *arena,
        const struct offload_place *place, struct offload **offload_out)
{
    assert(place->worker_threads > 0);
    struct offload *offload = zd_array(1, sizeof *offload);
    offload->request = *request;
    offload->place = *place;
    offload->arena = arena;
    pthread_mutex_init(&offload->lock, NULL);
    pthread_mutex_init(&offload->visitors.lock, NULL);
    pthread_cond_init(&offload->work, NULL);
    pthread_cond_init(&offload->progress, NULL);
    create_stages(offload);
    take_tables(offload);
    fill_tables(offload);
    enum zd_status status = begin(offload);
    if (status == ZD_OK)
        *offload_out = offload;
    else
        offload_destroy(offload);
    return status;
}

/* Waits until all jobs have ended, and all copies are queued and done. */
static enum zd_status settle(struct offload *offload)
{
    ZD_TRY(feed_finish(&offload->down));
    jobs_wait(offload);
    return feed_finish(&offload->up);
}

enum zd_status offload_finish(struct offload *offload)
{
    ZD_TRY(settle(offload));
    ZD_TRY(offload_failure(offload));
    segments_settle(offload);
    return offload->file ? store_file_finish(offload->file) : ZD_OK;
}

void offload_destroy(struct offload *offload)
{
    if (!offload)
        return;
    if (offload->worker_count)
        settle(offload);
    feed_fini(&offload->down);
    feed_fini(&offload->up);
    if (offload->worker_count)
        workers_stop(offload);
    visits_end(offload);
    store_file_destroy(offload->file);
    segments_destroy(offload);
    stage_fini(&offload->grad_stage);
    stage_fini(&offload->param_stage);
    pthread_cond_destroy(&offload->progress);
    pthread_cond_destroy(&offload->work);
    pthread_mutex_destroy(&offload->visitors.lock);
    pthread_mutex_destroy(&offload->lock);
    snapshot_destroy(offload->snapshot);
    free(offload->workers);
    free(offload->jobs);
    free(offload->segment_offsets);
    free(offload->segments);
    free(offload->records);
    free(offload->extent_chunks);
    free(offload->visits);
    free(offload->made);
    free(offload->chunks);
    free(offload);
}
