/* workers.c - threads that run jobs; see engine.h. Workers wait on the
 * condition `work`, threads that wait for workers on `progress`. */
#include "offload/engine.h"

#include "base/clock.h"
#include "base/spans.h"

#include <sched.h>
#include <stdio.h>

void offload_set_spans(struct offload *offload, struct spans *spans)
{
    ZD_LOCKED(&offload->lock);
    offload->spans = spans;
}

/* --- jobs ----------------------------------------------------------------- */

static struct job *job_at(struct offload *offload, uint64_t number)
{
    return &offload->jobs[number % (uint64_t)offload->job_capacity];
}

uint64_t job_add(struct offload *offload, const struct job *job)
{
    if (!job->count)
        return 0;
    ZD_LOCKED(&offload->lock);
    while (offload->job_end - offload->job_begin ==
           (uint64_t)offload->job_capacity)
        pthread_cond_wait(&offload->progress, &offload->lock);
    uint64_t number = offload->job_end++;
    struct job *added = job_at(offload, number);
    *added = *job;
    added->ticket = number + 1;
    segments_note_begun(offload, added);
    if (offload->file) {
        added->alone = true; /* one list of the store at a time */
        if (job->reads || job->writes)
            added->list = LIST_WANTED;
    }
    pthread_cond_broadcast(&offload->work);
    return number + 1;
}

void job_raise(struct offload *offload, uint64_t ticket, int chunks)
{
    ZD_LOCKED(&offload->lock);
    job_at(offload, ticket - 1)->ready += chunks;
    if (chunks > 1 || offload->visitors.count)
        pthread_cond_broadcast(&offload->work);
    else
        pthread_cond_signal(&offload->work);
}

void jobs_wait(struct offload *offload)
{
    ZD_LOCKED(&offload->lock);
    while (offload->job_begin != offload->job_end)
        pthread_cond_wait(&offload->progress, &offload->lock);
}

bool jobs_have_ended(struct offload *offload)
{
    ZD_LOCKED(&offload->lock);
    return offload->job_begin == offload->job_end;
}

/* --- a worker ------------------------------------------------------------- */

/* Under the lock. Jobs before job_begin have ended. */
static bool has_ended(struct offload *offload, uint64_t number)
{
    if (number < offload->job_begin)
        return true;
    const struct job *job = job_at(offload, number);
    return job->finished == job->count;
}

/* Under the lock: the job's next chunk for this worker; may be past the end. */
static int *next_chunk(const struct worker *worker, struct job *job)
{
    bool is_visitor = worker->visitor != NULL;
    int *next = &job->taken[is_visitor];
    const bool *visits = worker->offload->visits;
    for (; *next < job->count; ++*next) {
        int chunk = job->first + *next;
        if ((chunk < job->shared_end && visits[chunk]) == is_visitor)
            break;
    }
    return next;
}

/* Under the lock: the job whose next chunk the worker may take now, or NULL. */
static struct job *job_next(const struct worker *worker)
{
    struct offload *offload = worker->offload;
    for (uint64_t n = offload->job_begin; n != offload->job_end; n++) {
        struct job *job = job_at(offload, n);
        if (job->alone && n != offload->job_begin)
            return NULL;
        if (job->after && !has_ended(offload, job->after - 1))
            return NULL;
        int next = *next_chunk(worker, job);
        if (next == job->count)
            continue;
        if (job->list == LIST_BEGINNING || next >= job->ready)
            return NULL;
        return job;
    }
    return NULL;
}

static void note_failure(struct offload *offload, enum zd_status status)
{
    if (status == ZD_OK)
        return;
    if (offload->status == ZD_OK) {
        offload->status = status;
        offload->error = *zd_error_get();
    }
    zd_error_clear();
}

/* Under the lock, which is released meanwhile. */
static void begin_list(struct offload *offload, struct job *job)
{
    job->list = LIST_BEGINNING;
    pthread_mutex_unlock(&offload->lock);
    double begin = clock_seconds();
    enum zd_status status = chunk_list_begin(
            offload, job->first, job->count, job->reads, job->writes);
    pthread_mutex_lock(&offload->lock);
    offload->busy_seconds += clock_seconds() - begin;
    note_failure(offload, status);
    job->list = LIST_BEGUN;
    pthread_cond_broadcast(&offload->work);
}

static void retire_jobs(struct offload *offload)
{
    uint64_t before = offload->job_begin;
    while (offload->job_begin != offload->job_end) {
        struct job *job = job_at(offload, offload->job_begin);
        if (job->finished < job->count)
            break;
        if (job->ends_update)
            offload->report.host_seconds +=
                    clock_seconds() - offload->update_begin;
        offload->job_begin++;
    }
    if (offload->job_begin != before)
        pthread_cond_broadcast(&offload->progress);
}

/* Not under the lock. A snapshot copies the states before they change. */
static enum zd_status work_on(
        struct worker *worker, const struct job *job, int at)
{
    struct offload *offload = worker->offload;
    int index = job->first + at;
    struct chunk_memory memory = {0};
    if (!(job->reads | job->writes)) {
        chunk_slots(&offload->store_request, &offload->chunks[index], &memory);
        return job->fn(worker, job, at, &memory);
    }
    ZD_TRY(chunk_acquire(offload, index, &memory));
    if (job->writes & CHUNK_STATES)
        snapshot_before_write(offload->snapshot, index, &memory);
    ZD_TRY(job->fn(worker, job, at, &memory));
    return chunk_release(offload, index);
}

/* Runs one chunk of a job. Under the lock, which is released meanwhile. After a
 * failure chunks are only counted, so that nothing waits forever. */
static void run_chunk(struct worker *worker, struct job *job)
{
    struct offload *offload = worker->offload;
    int at = (*next_chunk(worker, job))++;
    const struct job now = *job;
    bool has_failed = offload->status != ZD_OK;
    struct spans *spans = offload->spans;
    double begin = clock_seconds();
    enum zd_status status = ZD_OK;
    pthread_mutex_unlock(&offload->lock);
    if (!has_failed)
        status = work_on(worker, &now, at);
    if (now.is_staged)
        stage_note_emptied(
                &offload->grad_stage, now.stage_first + (uint64_t)at);
    if (now.fills_stage)
        stage_note_filled(
                &offload->param_stage, now.stage_first + (uint64_t)at);
    double end = clock_seconds(), seconds = end - begin;
    spans_add(
            spans, LANE_WORKERS + worker->index,
            now.updates ? "update" : "chunk", now.first + at, begin, end);
    pthread_mutex_lock(&offload->lock);
    note_failure(offload, status);
    if (!worker->visitor) {
        offload->report.worker_seconds += seconds;
        offload->busy_seconds += seconds;
    }
    if (now.updates)
        uploads_note(
                offload, now.first + at,
                worker->visitor && visit_is_home(offload, now.first + at)
                        ? PARAM_AT_HOME
                        : PARAM_ON_HOST);
    job->finished++;
    segments_note_chunk(offload, job, now.first + at);
    if (job->finished < job->count)
        return;
    retire_jobs(offload);
    pthread_cond_broadcast(&offload->work); /* jobs that waited for this one */
}

static void *work(void *ctx)
{
    struct worker *worker = ctx;
    struct offload *offload = worker->offload;
    if (worker->visitor)
        visitor_enter(worker);
    ZD_LOCKED(&offload->lock);
    while (!offload->is_stopping) {
        struct job *job = job_next(worker);
        if (!job)
            pthread_cond_wait(&offload->work, &offload->lock);
        else if (job->list == LIST_WANTED)
            begin_list(offload, job);
        else
            run_chunk(worker, job);
    }
    return NULL;
}

/* --- their beginning and end ---------------------------------------------- */

/* Bind to one CPU of this process's mask. A failure only costs speed. */
static void bind_worker(const struct worker *worker)
{
    const struct offload_place *place = &worker->offload->place;
    cpu_set_t mask, one;
    if (place->first_cpu < 0 || sched_getaffinity(0, sizeof mask, &mask) != 0)
        return;
    int skip = (place->first_cpu + worker->index) % CPU_COUNT(&mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(worker->thread, sizeof one, &one);
            return;
        }
}

enum zd_status workers_start(struct offload *offload)
{
    struct visits *visits = &offload->visitors;
    int updating = offload->place.worker_threads;
    for (int i = 0; i < updating + visits->count; i++) {
        struct worker *worker = &offload->workers[i];
        bool visits_device = i >= updating;
        char name[16];
        ZD_PRINT(
                name, visits_device ? "visit-%d" : "offload-%d",
                (visits_device ? i - updating : i) % 1000);
        worker->offload = offload;
        worker->index = i;
        if (visits_device)
            worker->visitor = &visits->visitors[i - updating];
        exact_sum_clear(&worker->squares);
        ZD_TRY(offload_thread_start(&worker->thread, name, work, worker));
        offload->worker_count++;
        if (!visits_device)
            bind_worker(worker);
    }
    return ZD_OK;
}

void workers_stop(struct offload *offload)
{
    pthread_mutex_lock(&offload->lock);
    offload->is_stopping = true;
    pthread_cond_broadcast(&offload->work);
    pthread_cond_broadcast(&offload->progress);
    pthread_mutex_unlock(&offload->lock);
    for (int i = 0; i < offload->worker_count; i++)
        pthread_join(offload->workers[i].thread, NULL);
}
