#include "saves.h"

#include "base/file/hash.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "zero/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { READ = 2048 }; /* elements at a time */

struct saver {
    struct zero *zero;
    struct zero_snapshot *snapshot;
    char *memory;
    uint64_t begun;
    pthread_t thread;
    bool has_thread;
    enum zd_status status;              /* of the thread */
    int wrong;                          /* snapshots that were not what was */
    char want[HASH_HEX], got[HASH_HEX]; /* all that is read */
};

/* Once in a while a reader takes its time. */
static void be_late(const struct saver *saver, uint64_t at)
{
    float u = rng_uniform(17, saver->begun, at);
    struct timespec time = {.tv_nsec = (long)(200000 * u)};
    if (u > 0.9F)
        nanosleep(&time, NULL);
}

static enum zd_status read_lane(
        const struct saver *saver, const struct zero_view *view, int i,
        int lane, struct hasher *hasher)
{
    char values[READ * sizeof(float)];
    float scales[READ / OPTIM_QBLOCK + 1];
    struct zero_range range = zero_range_at(saver->zero, ZERO_SAVES, i);
    for (size_t done = 0; done < range.count; done += READ) {
        size_t left = range.count - done, count = left < READ ? left : READ;
        size_t bytes =
                lane == ZERO_WEIGHTS
                        ? count * dtype_bytes(range.weight_type)
                        : optim_lane_bytes(range.layout.lane[lane], count);
        size_t scale_count =
                lane == ZERO_WEIGHTS
                        ? 0
                        : optim_scale_count(range.layout.lane[lane], count);
        if (!bytes)
            continue;
        ZD_TRY(view->read(
                view->ctx, i, lane, done, count, values,
                scale_count ? scales : NULL));
        hasher_update(hasher, values, bytes);
        hasher_update(hasher, scales, scale_count * sizeof *scales);
        if (view->ctx != saver->zero)
            be_late(saver, (uint64_t)i * 1000 + done);
    }
    return ZD_OK;
}

static enum zd_status read_blocks(
        const struct saver *saver, const struct zero_view *view, int i,
        struct hasher *hasher)
{
    struct zero_range range = zero_range_at(saver->zero, ZERO_SAVES, i);
    size_t count = zero_block_count(saver->zero, range.id);
    if (!count || range.begin)
        return ZD_OK;
    ZD_FREED float *values = calloc(count, sizeof *values);
    enum zd_status status = view->blocks(view->ctx, i, values);
    hasher_update(hasher, values, count * sizeof *values);
    return status;
}

/* As a file has them: an array of all ranges, then the next. */
static enum zd_status read_all(
        const struct saver *saver, struct zero_view view, char hex[HASH_HEX])
{
    struct hasher *hasher = hasher_create();
    enum zd_status status = ZD_OK;
    int count = zero_range_count(saver->zero, ZERO_SAVES);
    for (int lane = ZERO_WEIGHTS; lane >= 0; lane--)
        for (int i = 0; i < count && status == ZD_OK; i++)
            status = read_lane(saver, &view, i, lane, hasher);
    for (int i = 0; i < count && status == ZD_OK; i++)
        status = read_blocks(saver, &view, i, hasher);
    hasher_finish(hasher, hex);
    return status;
}

static void *run(void *ctx)
{
    struct saver *saver = ctx;
    saver->status =
            read_all(saver, zero_snapshot_view(saver->snapshot), saver->got);
    zero_snapshot_leave(saver->snapshot);
    return NULL;
}

enum zd_status saver_create(
        struct zero *zero, const struct zero_plan *plan, size_t eighths,
        struct saver **out)
{
    struct zero_snapshot_needs needs;
    struct saver *saver = calloc(1, sizeof *saver);
    saver->zero = zero;
    *out = saver;
    zero_snapshot_measure(plan, true, &needs);
    size_t bytes = needs.copied + needs.on_write * eighths / 8;
    saver->memory = malloc(bytes + 1);
    saver->snapshot = zero_snapshot_create(zero, true, saver->memory, bytes);
    zero_snapshot_help(saver->snapshot, (int)(eighths % 3));
    return ZD_OK;
}

enum zd_status saver_begin(struct saver *saver)
{
    ZD_TRY(saver_end(saver));
    ZD_TRY(zero_settle(saver->zero));
    ZD_TRY(read_all(saver, zero_view_live(saver->zero), saver->want));
    ZD_TRY(zero_snapshot_take(saver->snapshot));
    saver->begun++;
    pthread_create(&saver->thread, NULL, run, saver);
    saver->has_thread = true;
    return ZD_OK;
}

enum zd_status saver_end(struct saver *saver)
{
    if (!saver->has_thread)
        return ZD_OK;
    pthread_join(saver->thread, NULL);
    saver->has_thread = false;
    ZD_TRY(saver->status);
    saver->wrong += strcmp(saver->want, saver->got) != 0;
    return ZD_OK;
}

enum zd_status saver_judge(struct saver *saver)
{
    ZD_TRY(saver_end(saver));
    if (!saver->wrong)
        return ZD_OK;
    return ZD_BAD(
            "E0301", "%d of %d snapshots were not what was", saver->wrong,
            (int)saver->begun);
}

void saver_destroy(struct saver *saver)
{
    if (!saver)
        return;
    saver_end(saver);
    zero_snapshot_destroy(saver->snapshot);
    free(saver->memory);
    free(saver);
}
