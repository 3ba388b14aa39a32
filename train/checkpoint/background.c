#include "train/checkpoint/background.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "train/checkpoint/saving.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum state { WRITING, WRITTEN, COMMITTING, COMMITTED };

struct background {
    struct saving saving;
    struct zero_snapshot *snapshot;
    struct zero_view copy; /* of it */
    struct background_retention retention;
    _Atomic int state;        /* enum state */
    _Atomic bool is_given_up; /* the thread is to end */
    pthread_t thread;
    bool has_thread;
    enum zd_status status; /* of the thread, and .. */
    struct zd_error error; /* .. its record */
    struct background_seconds seconds;
    char path[PATH_MAX];
    int64_t step;
};

/* --- the thread's part ---------------------------------------------------- */

static enum zd_status read_unless_given_up(
        const void *ctx, int range, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    const struct background *background = ctx;
    if (atomic_load(&background->is_given_up))
        return ZD_FAIL(ZD_ERR_PEER, "E0807", "the save was given up");
    return background->copy.read(
            background->copy.ctx, range, lane, begin, count, values, scales);
}

static enum zd_status read_blocks(const void *ctx, int range, float *values)
{
    const struct background *background = ctx;
    return background->copy.blocks(background->copy.ctx, range, values);
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
        zero_snapshot_leave(background->snapshot);
        return status;
    }
    return saving_commit(&background->saving);
}

static void *run(void *ctx)
{
    struct background *background = ctx;
    int state = atomic_load(&background->state);
    assert(state == WRITING || state == COMMITTING);
    struct comm_files *files =
            comm_files_begin(background->saving.writer.comm, "save");
    double began = clock_seconds();
    background->status = work(background);
    *(state == WRITING ? &background->seconds.shard
                       : &background->seconds.commit) = clock_seconds() - began;
    background->error = *zd_error_get();
    zd_error_clear();
    if (state == COMMITTING && background->status == ZD_OK)
        retain(background);
    comm_files_end(files);
    atomic_store(&background->state, state + 1);
    return NULL;
}

/* --- the trainer's -------------------------------------------------------- */

static enum zd_status start(struct background *background, enum state state)
{
    assert(!background->has_thread);
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

/* Its status, with its record as this thread's. */
static enum zd_status join(struct background *background)
{
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
    status = comm_agree(writer->comm, status);
    if (status == ZD_OK) {
        background->retention = *retention;
        status = begin(background, writer, state, snapshot);
    }
    if (status == ZD_OK)
        *out = background;
    else
        free(background);
    return status;
}

bool background_is_ready(const struct background *background)
{
    int state = atomic_load(&background->state);
    return state == WRITTEN || state == COMMITTED;
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

enum zd_status background_next(
        struct background *background, bool *committed_out)
{
    struct comm *comm = background->saving.writer.comm;
    enum zd_status status = comm_agree(comm, join(background));
    int state = atomic_load(&background->state);
    assert(status != ZD_OK || state == WRITTEN || state == COMMITTED);
    *committed_out = status == ZD_OK && state == COMMITTED;
    if (status == ZD_OK && state == WRITTEN)
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
    atomic_store(&background->is_given_up, true);
    join(background);
    zd_error_set(&cause);
    if (background->saving.step >= 0)
        saving_end(&background->saving, ZD_OK);
    free(background);
}
