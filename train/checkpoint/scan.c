/* scan.c - which checkpoints are in a folder, and which may go. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void checkpoint_name(char *out, size_t out_bytes, int64_t step)
{
    snprintf(out, out_bytes, "checkpoint-%06lld", (long long)step);
}

void checkpoint_place(char *out, const char *output_dir, int64_t step)
{
    char name[64];
    checkpoint_name(name, sizeof name, step);
    fs_join(out, PATH_MAX, output_dir, name);
}

enum zd_status checkpoint_unreadable(const char *path, enum zd_status status)
{
    struct zd_error cause = *zd_error_get();
    if (status != ZD_ERR_IO && status != ZD_ERR_DENIED)
        return status; /* it is wrong, or not there; or memory is short */
    zd_error_clear();
    ZD_FAIL(ZD_ERR_IO, "E0813", "%s cannot be read: %.400s", path, cause.what);
    if (cause.help[0])
        zd_fail_help("%s", cause.help);
    else
        zd_fail_help(
                "mend that and start again; to go on from an older checkpoint "
                "name it: --resume PATH");
    return ZD_ERR_IO;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* "checkpoint-000020" -> 20; -1 for any other name. */
static int64_t step_of_name(const char *name)
{
    char again[64], *end;
    if (strncmp(name, "checkpoint-", 11) != 0)
        return -1;
    errno = 0;
    long long step = strtoll(name + 11, &end, 10);
    if (*end || errno || step < 0)
        return -1;
    checkpoint_name(again, sizeof again, step);
    return strcmp(again, name) == 0 ? step : -1;
}

struct steps {
    int64_t *list;
    size_t count, capacity;
};

static enum zd_status take_step(void *ctx, const char *name)
{
    struct steps *steps = ctx;
    int64_t step = step_of_name(name);
    if (step < 0)
        return ZD_OK;
    steps->list =
            zd_grow(steps->list, &steps->capacity, steps->count + 1,
                    sizeof *steps->list);
    steps->list[steps->count++] = step;
    return ZD_OK;
}

enum zd_status checkpoint_list(
        const char *output_dir, int64_t **steps_out, int *count_out)
{
    struct steps steps = {0};
    bool is_there;
    *steps_out = NULL;
    *count_out = 0;
    ZD_TRY(fs_look(output_dir, &is_there));
    if (!is_there)
        return ZD_OK;
    enum zd_status status = fs_each_name(output_dir, take_step, &steps);
    if (status != ZD_OK) {
        free(steps.list);
        return status;
    }
    if (steps.count > 1)
        qsort(steps.list, steps.count, sizeof *steps.list, descending);
    *steps_out = steps.list;
    *count_out = (int)steps.count;
    return ZD_OK;
}

/* What a name must begin with to be a leftover of ours. */
static bool is_leftover(const char *name)
{
    return strncmp(name, ".tmp-checkpoint-", 16) == 0 ||
           strcmp(name, ".tmp-replaced") == 0 ||
           strcmp(name, ".tmp-export") == 0 ||
           strncmp(name, ".trash-checkpoint-", 18) == 0;
}

/* One that made way to another: it goes when that one is there. */
static enum zd_status sweep_away(const char *dir, const char *name)
{
    char away[PATH_MAX], place[PATH_MAX];
    bool is_taken;
    fs_join(away, sizeof away, dir, name);
    fs_join(place, sizeof place, dir, name + sizeof CHECKPOINT_AWAY - 1);
    ZD_TRY(fs_look(place, &is_taken));
    if (is_taken)
        return fs_remove_tree(away);
    if (rename(away, place) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot rename %s to %s: %s", away, place,
                strerror(errno));
    zd_log_info("%s is back: no other took its place", place);
    return fs_sync_dir(dir);
}

static enum zd_status sweep_name(void *ctx, const char *name)
{
    char path[PATH_MAX];
    if (strncmp(name, CHECKPOINT_AWAY, sizeof CHECKPOINT_AWAY - 1) == 0)
        return sweep_away(ctx, name);
    if (!is_leftover(name))
        return ZD_OK;
    fs_join(path, sizeof path, ctx, name);
    zd_log_debug("removing %s, left by an interrupted save", path);
    return fs_remove_tree(path);
}

enum zd_status checkpoint_sweep(const char *output_dir)
{
    return fs_each_name(output_dir, sweep_name, (char *)(uintptr_t)output_dir);
}

/* Is the checkpoint of a step sound (its files' digests too when `full`)? One
 * that cannot be read is neither: nothing follows from it. *eval_loss: of an
 * evaluation at that very step, else NaN. */
static enum zd_status verify(
        const struct train_job *job, int64_t step, bool full,
        bool *is_sound_out, double *eval_loss)
{
    char path[PATH_MAX];
    json_t *manifest;
    checkpoint_place(path, job->job.output_dir, step);
    *eval_loss = NAN;
    enum zd_status status = manifest_open(
            path, full ? CHECKPOINT_DIGESTS : CHECKPOINT_SIZES, &manifest);
    *is_sound_out = status == ZD_OK;
    if (status == ZD_ERR_DATA) {
        zd_error_clear();
        status = ZD_OK;
    }
    if (manifest) {
        struct train_state state = manifest_state(manifest);
        if (state.eval_step == state.step)
            *eval_loss = state.eval_loss;
        json_decref(manifest);
    }
    return status;
}

static enum zd_status remove_checkpoint(const char *output_dir, int64_t step)
{
    char name[64], hidden[80], path[PATH_MAX], trash[PATH_MAX];
    checkpoint_name(name, sizeof name, step);
    snprintf(hidden, sizeof hidden, ".trash-%s", name);
    fs_join(path, sizeof path, output_dir, name);
    fs_join(trash, sizeof trash, output_dir, hidden);
    if (rename(path, trash) != 0) /* first out of sight, whole */
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot remove %s: %s", path,
                strerror(errno));
    ZD_TRY(fs_sync_dir(output_dir));
    zd_log_info("removed %s (checkpoint.save_total_limit)", path);
    return fs_remove_tree(trash);
}

/* Is `a` better than `b`? NaN is never better. */
static bool better(double a, double b, bool greater)
{
    if (isnan(a))
        return false;
    return isnan(b) || (greater ? a > b : a < b);
}

/* The step of the best evaluation among `steps`; -1 when none was evaluated. */
static enum zd_status best_of(
        const struct train_job *job, const int64_t *steps, int count,
        int64_t *best_out)
{
    double best_loss = NAN, loss;
    bool is_sound, greater = job->checkpoint.greater_is_better;
    *best_out = -1;
    for (int i = 0; i < count; i++) {
        ZD_TRY(verify(job, steps[i], false, &is_sound, &loss));
        if (is_sound && better(loss, best_loss, greater)) {
            best_loss = loss;
            *best_out = steps[i];
        }
    }
    return ZD_OK;
}

static bool is_among(int64_t step, const int64_t *steps, int count)
{
    int i = 0;
    while (i < count && steps[i] != step)
        i++;
    return i < count;
}

static enum zd_status retain(
        const struct train_job *job, const int64_t *steps, int count,
        const int64_t *own, int own_count)
{
    enum { KEEP_SOUND = 2 };
    int sound = 0, limit = job->checkpoint.save_total_limit;
    int64_t best;
    double loss;
    if (limit <= 0 || count <= limit)
        return ZD_OK;
    ZD_TRY(best_of(job, steps, count, &best));
    for (int i = 0; i < count; i++) {
        bool is_needed = sound < KEEP_SOUND;
        if (is_needed && !is_among(steps[i], own, own_count))
            ZD_TRY(verify(job, steps[i], true, &is_needed, &loss));
        sound += is_needed;
        if (i >= limit && !is_needed && steps[i] != best)
            ZD_TRY(remove_checkpoint(job->job.output_dir, steps[i]));
    }
    return ZD_OK;
}

enum zd_status checkpoint_retain(
        const struct train_job *job, int64_t step, const int64_t *own,
        int own_count)
{
    int64_t *steps;
    int count, later = 0;
    ZD_TRY(checkpoint_list(job->job.output_dir, &steps, &count));
    while (later < count && steps[later] > step)
        later++;
    enum zd_status status =
            retain(job, steps + later, count - later, own, own_count);
    free(steps);
    return status;
}
