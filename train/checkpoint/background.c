#include "train/checkpoint/background.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "train/checkpoint/saving.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum state { WRITING, WRITTEN, COMMITTING, COMMITTED, ABANDONED, GONE };

struct background {
    struct saving saving;
    struct zero_snapshot *snapshot;
    struct zero_view copy; /* of it */
    struct background_retention retention;
    _Atomic int state;       /* enum state */
    atomic_bool is_given_up; /* the thread is to end */
    pthread_mutex_t lock;    /* held to read the snapshot, and to abandon */
    bool is_waited_for;      /* under it: by the trainer */
    bool has_left;           /* under it: the snapshot */
    bool is_abandoned_anywhere;
    pthread_t thread;
    bool has_thread;
    enum zd_status status; /* of the thread, and .. */
    struct zd_error error; /* .. its record */
    struct background_seconds seconds;
    char path[PATH_MAX];
    int64_t step;
};

/* --- the thread's part ---------------------------------------------------- */

/* The snapshot is the thread's until read_end. */
static enum zd_status read_begin(struct background *background)
{
    pthread_mutex_lock(&background->lock);
    if (!atomic_load(&background->is_given_up)) {
        assert(!background->has_left);
        return ZD_OK;
    }
    pthread_mutex_unlock(&background->lock);
    return ZD_FAIL(ZD_ERR_PEER, "E0807", "the save was given up");
}

static enum zd_status read_end(
        struct background *background, enum zd_status status)
{
    pthread_mutex_unlock(&background->lock);
    return status;
}

static struct background *of(const void *ctx)
{
    return (struct background *)(uintptr_t)ctx;
}

static enum zd_status read_unless_given_up(
        const void *ctx, int range, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    struct background *background = of(ctx);
    const struct zero_view *copy = &background->copy;
    ZD_TRY(read_begin(background));
    return read_end(
            background,
            copy->read(copy->ctx, range, lane, begin, count, values, scales));
}

static enum zd_status read_blocks(const void *ctx, int range, float *values)
{
    struct background *background = of(ctx);
    ZD_TRY(read_begin(background));
    return read_end(
            background,
            background->copy.blocks(background->copy.ctx, range, values));
}

/* The snapshot is nobody's; once. The lock is held. */
static void leave(struct background *background)
{
    if (!background->has_left)
        zero_snapshot_leave(background->snapshot);
    background->has_left = true;
}

/* The new one is safe; old ones may stay a while. */
static void retain(const struct background *background)
{
    const struct train_job *job = background->saving.writer.job;
    const struct background_retention *retention = &background->retention;
    enum zd_status status = checkpoint_retain(
            job->job.output_dir, retention->limit, background->step, job,
            retention->own, sizeof retention->own / sizeof retention->own[0]);
    if (status != ZD_OK)
        zd_log_warning("old checkpoints stay: %s", zd_error_get()->what);
    zd_error_clear();
}

static enum zd_status work(struct background *background)
{
    const struct zero_view view = {
            .ctx = background,
            .read = read_unless_given_up,
            .blocks = read_blocks,
            .backwards = background->copy.backwards};
    if (atomic_load(&background->state) == WRITING) {
        enum zd_status status = saving_write(&background->saving, &view);
        pthread_mutex_lock(&background->lock);
        leave(background);
        pthread_mutex_unlock(&background->lock);
        return status;
    }
    return saving_commit(&background->saving);
}

/* On the watch's thread: nothing of its files is done. Unless the thread reads
 * the snapshot, or the trainer waits, the save is given up and not the job. */
static bool abandon(void *ctx)
{
    struct background *background = ctx;
    if (pthread_mutex_trylock(&background->lock) != 0)
        return false;
    int state = atomic_load(&background->state);
    bool is_ours = !background->is_waited_for &&
                   (state == WRITING || state == COMMITTING) &&
                   atomic_compare_exchange_strong(
                           &background->state, &state, ABANDONED);
    if (is_ours) {
        atomic_store(&background->is_given_up, true);
        leave(background);
    }
    pthread_mutex_unlock(&background->lock);
    return is_ours;
}

static void *run(void *ctx)
{
    struct background *background = ctx;
    int state = atomic_load(&background->state);
    assert(state == WRITING || state == COMMITTING);
    struct comm_files *files =
            comm_files_begin(background->saving.writer.comm, "save");
    comm_files_give_up(files, abandon, background);
    double began = clock_seconds();
    background->status = work(background);
    *(state == WRITING ? &background->seconds.shard
                       : &background->seconds.commit) = clock_seconds() - began;
    background->error = *zd_error_get();
    zd_error_clear();
    if (state == COMMITTING && background->status == ZD_OK &&
        !atomic_load(&background->is_given_up))
        retain(background);
    comm_files_end(files); /* from here on nobody abandons it */
    int before = state;
    if (!atomic_compare_exchange_strong(
                &background->state, &before, state + 1)) {
        assert(before == ABANDONED);
        atomic_store(&background->state, GONE);
    }
    return NULL;
}

/* --- the trainer's -------------------------------------------------------- */

static enum zd_status start(struct background *background, enum state state)
{
    assert(!background->has_thread);
    background->is_waited_for = false; /* no thread is there */
    atomic_store(&background->state, (int)state);
    int error =
            thread_start(&background->thread, "zerod-save", run, background);
    background->has_thread = error == 0;
    if (error)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "no thread for a checkpoint: %s",
                strerror(error));
    return ZD_OK;
}

/* From here on the save is one that the job waits for. */
static void wait_for(struct background *background)
{
    pthread_mutex_lock(&background->lock);
    background->is_waited_for = true;
    pthread_mutex_unlock(&background->lock);
}

static enum zd_status fail_abandoned(const struct background *background)
{
    struct comm *comm = background->saving.writer.comm;
    return ZD_FAIL(
            ZD_ERR_IO, "E0816",
            "the save of rank %d on %s is given up: no read, write or fsync of "
            "it was done for %.1f s (checkpoint.timeout)",
            comm_rank(comm), comm_host(comm),
            background->saving.writer.job->comm.files_timeout);
}

/* Its status, with its record as this thread's. */
static enum zd_status join(struct background *background)
{
    wait_for(background);
    if (background_is_abandoned(background))
        return fail_abandoned(background);
    if (background->has_thread)
        pthread_join(background->thread, NULL);
    background->has_thread = false;
    if (background->status != ZD_OK)
        zd_error_set(&background->error);
    return background->status;
}

static enum zd_status begin(
        struct background *background, const struct checkpoint_writer *writer,
        const struct train_state *state, struct zero_snapshot *snapshot)
{
    ZD_TRY(saving_begin(&background->saving, writer, state));
    background->saving.is_given_up = &background->is_given_up;
    strcpy(background->path, background->saving.final);
    background->step = state->step;
    background->snapshot = snapshot;
    background->copy = zero_snapshot_view(snapshot);
    enum zd_status status = zero_snapshot_take(snapshot);
    if (status == ZD_OK)
        status = start(background, WRITING);
    if (!background->has_thread)
        zero_snapshot_leave(snapshot);
    status = comm_agree(writer->comm, status);
    if (status != ZD_OK) {
        struct zd_error cause = *zd_error_get();
        atomic_store(&background->is_given_up, true);
        join(background);
        zd_error_set(&cause);
        saving_end(&background->saving, status);
    }
    return status;
}

static void release(struct background *background)
{
    if (background)
        pthread_mutex_destroy(&background->lock);
    free(background);
}

enum zd_status background_begin(
        const struct checkpoint_writer *writer, const struct train_state *state,
        struct zero_snapshot *snapshot,
        const struct background_retention *retention, struct background **out)
{
    struct background *background = calloc(1, sizeof *background);
    enum zd_status status = ZD_OK;
    *out = NULL;
    if (!background)
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    else
        pthread_mutex_init(&background->lock, NULL);
    status = comm_agree(writer->comm, status);
    if (status == ZD_OK) {
        background->retention = *retention;
        status = begin(background, writer, state, snapshot);
    }
    if (status == ZD_OK)
        *out = background;
    else
        release(background);
    return status;
}

bool background_is_ready(const struct background *background)
{
    int state = atomic_load(&background->state);
    return state != WRITING && state != COMMITTING;
}

bool background_is_abandoned(const struct background *background)
{
    int state = atomic_load(&background->state);
    return state == ABANDONED || state == GONE;
}

bool background_is_abandoned_anywhere(const struct background *background)
{
    return background->is_abandoned_anywhere;
}

bool background_is_gone(const struct background *background)
{
    return atomic_load(&background->state) == GONE;
}

/* All shards are written: rank 0 has somebody commit them. That it has nobody
 * is told with the next part, as what a thread failed at. */
static enum zd_status go_on(struct background *background)
{
    enum zd_status status = ZD_OK;
    ZD_TRY(saving_gather(&background->saving));
    if (comm_rank(background->saving.writer.comm) == 0)
        status = start(background, COMMITTING);
    if (background->has_thread) /* which tells by itself */
        return ZD_OK;
    background->status = status;
    background->error = *zd_error_get();
    zd_error_clear();
    atomic_store(&background->state, COMMITTED);
    return ZD_OK;
}

/* Whose files stand still anywhere is left alone: the next save sweeps. */
static enum zd_status fail(struct background *background, enum zd_status status)
{
    struct comm *comm = background->saving.writer.comm;
    struct zd_error cause = *zd_error_get();
    bool is_here = background_is_abandoned(background);
    int64_t anywhere = is_here;
    zd_error_clear();
    if (status != ZD_ERR_PEER)
        ZD_TRY(comm_all_reduce_i64(comm, &anywhere, 1, COMM_MAX));
    zd_error_set(&cause);
    background->is_abandoned_anywhere = anywhere;
    if (!is_here) /* else the thread's */
        saving_end(&background->saving, anywhere ? ZD_OK : status);
    return status;
}

enum zd_status background_next(
        struct background *background, bool *committed_out)
{
    struct comm *comm = background->saving.writer.comm;
    enum zd_status status = comm_agree(comm, join(background));
    int state = atomic_load(&background->state);
    assert(status != ZD_OK || state == WRITTEN || state == COMMITTED);
    if (status != ZD_OK)
        return fail(background, status);
    *committed_out = status == ZD_OK && state == COMMITTED;
    if (state == WRITTEN)
        status = go_on(background);
    if (status != ZD_OK || *committed_out)
        saving_end(&background->saving, status);
    return status;
}

const char *background_path(const struct background *background)
{
    return background->path;
}

int64_t background_step(const struct background *background)
{
    return background->step;
}

struct background_seconds background_seconds(
        const struct background *background)
{
    return background->seconds;
}

void background_end(struct background *background)
{
    if (!background)
        return;
    struct zd_error cause = *zd_error_get();
    struct comm *comm = background->saving.writer.comm;
    bool waits = background->has_thread && background->saving.step >= 0;
    struct comm_files *files = waits ? comm_files_begin(comm, "save") : NULL;
    atomic_store(&background->is_given_up, true);
    wait_for(background);
    if (background->has_thread)
        pthread_join(background->thread, NULL);
    comm_files_end(files);
    zd_error_set(&cause);
    if (background->saving.step >= 0)
        saving_end(&background->saving, ZD_OK);
    release(background);
}
