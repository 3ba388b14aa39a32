/* scan.c - which checkpoints are in a folder, and which may go. */
#include "base/file/fs.h"
#include "base/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

enum zd_status checkpoint_list(
        const char *output_dir, int64_t **steps_out, int *count_out)
{
    int64_t *steps = NULL;
    int count = 0, capacity = 0;
    struct dirent *entry;
    DIR *dir = opendir(output_dir);

    *steps_out = NULL;
    *count_out = 0;
    if (!dir)
        return errno == ENOENT
                       ? ZD_OK
                       : ZD_FAIL(ZD_ERR_IO, "E0807", "cannot read %s: %s",
                                 output_dir, strerror(errno));
    while ((entry = readdir(dir))) {
        int64_t step = step_of_name(entry->d_name);
        if (step < 0)
            continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int64_t *more = realloc(steps, (size_t)capacity * sizeof *more);
            if (!more) {
                free(steps);
                closedir(dir);
                return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
            }
            steps = more;
        }
        steps[count++] = step;
    }
    closedir(dir);
    if (count > 1)
        qsort(steps, (size_t)count, sizeof *steps, descending);
    *steps_out = steps;
    *count_out = count;
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

enum zd_status checkpoint_sweep(const char *output_dir)
{
    enum zd_status status = ZD_OK;
    struct dirent *entry;
    char path[PATH_MAX];
    DIR *dir = opendir(output_dir);

    if (!dir)
        return ZD_OK;
    while (status == ZD_OK && (entry = readdir(dir))) {
        if (!is_leftover(entry->d_name))
            continue;
        fs_join(path, sizeof path, output_dir, entry->d_name);
        zd_log_debug("removing %s, left by an interrupted save", path);
        status = fs_remove_tree(path);
    }
    closedir(dir);
    return status;
}

/* The manifest of a step, and its files' digests when `full`; the record of a
 * failure is cleared. *eval_loss: of an evaluation at that very step, else NaN.
 */
static bool verifies(
        const char *output_dir, int64_t step, bool full, double *eval_loss)
{
    char name[64], path[PATH_MAX];
    json_t *manifest;
    checkpoint_name(name, sizeof name, step);
    fs_join(path, sizeof path, output_dir, name);
    *eval_loss = NAN;
    if (manifest_read(path, &manifest) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    bool ok = manifest_check_files(path, manifest, full) == ZD_OK;
    struct train_state state = manifest_state(manifest);
    if (state.eval_step == state.step)
        *eval_loss = state.eval_loss;
    json_decref(manifest);
    zd_error_clear();
    return ok;
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
static int64_t best_of(
        const char *output_dir, const int64_t *steps, int count, bool greater)
{
    int64_t best = -1;
    double best_loss = NAN, loss;
    for (int i = 0; i < count; i++)
        if (verifies(output_dir, steps[i], false, &loss) &&
            better(loss, best_loss, greater)) {
            best_loss = loss;
            best = steps[i];
        }
    return best;
}

enum zd_status checkpoint_retain(
        const char *output_dir, int limit, const struct train_job *job)
{
    enum { KEEP_SOUND = 2 };
    enum zd_status status = ZD_OK;
    int64_t *steps;
    int count, sound = 0;
    double loss;

    ZD_TRY(checkpoint_list(output_dir, &steps, &count));
    if (limit <= 0 || count <= limit) {
        free(steps);
        return ZD_OK;
    }
    int64_t best = best_of(
            output_dir, steps, count, job->checkpoint.greater_is_better);
    for (int i = 0; i < count && status == ZD_OK; i++) {
        bool needed = sound < KEEP_SOUND;
        if (needed)
            sound += needed = verifies(output_dir, steps[i], true, &loss);
        if (i >= limit && !needed && steps[i] != best)
            status = remove_checkpoint(output_dir, steps[i]);
    }
    free(steps);
    return status;
}
