/* scan.c - lists the checkpoints of a folder and deletes old ones; verifies
 * files against the manifest (sizes, digests of every byte) and finds the
 * damaged part of a shard. */
#include "base/device/device.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what of a shard is damaged ------------------------------------------- */

enum { DAMAGE_TEXT = PARAM_NAME_MAX + 32 };

/* Is an array of the entry damaged or missing? Names the first. */
static bool is_damaged(
        const struct st_file *file, const struct held *held,
        char out[DAMAGE_TEXT])
{
    char name[ARRAY_NAME], hex[HASH_HEX];
    ZD_EACH(array, held->arrays, held->array_count) {
        array_name(name, array->kind, held->name, &held->columns, held->begin);
        const struct st_tensor *tensor = st_find(file, name);
        if (!tensor || strcmp(tensor->dtype, array->type) != 0 ||
            st_tensor_digest(file, tensor, hex) != ZD_OK)
            return true;
        if (strncmp(hex, array->digest, HELD_DIGEST) == 0)
            continue;
        snprintf(
                out, DAMAGE_TEXT, " in %s of %s", array_kind_name(array->kind),
                held->name);
        return true;
    }
    return false;
}

/* Finds the damage in a file with a wrong digest: an array, or else the header;
 * "" if the manifest does not list its contents. */
static void find_damage(
        const char *path, const json_t *entry, char out[DAMAGE_TEXT])
{
    struct held held;
    struct st_file *file = NULL;
    const json_t *holds = json_object_get(entry, "holds");
    strcpy(out, holds ? " in its header" : "");
    if (holds && st_open(path, &file) == ZD_OK)
        JSON_EACH(text, holds)
            if (!held_parse(json_string_value(text), &held) ||
                is_damaged(file, &held, out))
                break;
    st_close(file);
    zd_error_clear();
}

/* --- one file ------------------------------------------------------------- */

enum zd_status manifest_check_bytes(
        const char *path, uint64_t bytes, uint64_t expected)
{
    if (bytes == expected)
        return ZD_OK;
    return ZD_BAD(
            "E0804", "%s has %llu bytes, the manifest says %llu", path,
            (unsigned long long)bytes, (unsigned long long)expected);
}

static enum zd_status check_length(const char *path, const json_t *entry)
{
    int fd;
    uint64_t bytes;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    close(fd);
    return manifest_check_bytes(
            path, bytes, (uint64_t)json_integer_at(entry, "bytes"));
}

/* If the header is damaged, the digest stays empty. */
static enum zd_status digest_parts(const char *path, char hex[HASH_HEX])
{
    enum zd_status status = st_digest(path, hex);
    if (status != ZD_ERR_DATA)
        return status;
    zd_error_clear();
    return ZD_OK;
}

static enum zd_status check_digest(const char *path, const json_t *entry)
{
    char hex[HASH_HEX] = "", damage[DAMAGE_TEXT];
    uint64_t bytes;
    const char *parts = json_string_at(entry, MANIFEST_PARTS_DIGEST);
    const char *digest = parts ? parts : json_string_at(entry, MANIFEST_DIGEST);
    ZD_TRY(parts ? digest_parts(path, hex) : hash_file(path, hex, &bytes));
    if (digest && strcmp(digest, hex) == 0)
        return ZD_OK;
    find_damage(path, entry, damage);
    ZD_BAD("E0805", "%s is damaged%s: %s%s, the manifest says %s", path, damage,
           hex[0] ? "its digest is " : "no digest can be taken of it", hex,
           digest ? digest : "none");
    return zd_fail_help("use another checkpoint; a run resumes from one with "
                        "run.resume = \"PATH\"");
}

static enum zd_status verify_file(
        const char *dir, const json_t *entry, bool full)
{
    const struct fs_path path = fs_in(dir, json_string_at(entry, "name"));
    enum zd_status status = check_length(path.text, entry);
    if (status == ZD_OK && full)
        status = check_digest(path.text, entry);
    if (status == ZD_ERR_NO_INPUT) { /* a missing file is damage */
        struct zd_error error = *zd_error_get();
        error.status = status = ZD_ERR_DATA;
        zd_error_set(&error);
    }
    return status;
}

/* --- by threads ----------------------------------------------------------- */

enum { THREADS_MAX = 16 };

struct work {
    const char *dir;
    const json_t *files;
    int of; /* this rank has every `of`-th file */
    struct progress *progress;
    _Atomic int next; /* the next file for a thread */
    pthread_mutex_t lock;
    /* guarded by the mutex */
    int failed; /* index of the first damaged file */
    struct zd_error error;
};

static void *work_on(void *ctx)
{
    struct work *work = ctx;
    struct progress *before = progress_use(work->progress);
    int count = (int)json_array_size(work->files);
    for (;;) {
        int i = atomic_fetch_add(&work->next, work->of);
        if (i >= count || i < 0)
            break;
        const json_t *entry = json_array_get(work->files, (size_t)i);
        if (verify_file(work->dir, entry, true) == ZD_OK)
            continue;
        pthread_mutex_lock(&work->lock);
        if (i < work->failed) {
            work->failed = i;
            work->error = *zd_error_get();
        }
        pthread_mutex_unlock(&work->lock);
        zd_error_clear();
        atomic_store(&work->next, count); /* stops; earlier files are already
                                             taken */
    }
    progress_use(before);
    return NULL;
}

/* Verifies every byte of each `of`-th file from `first` on; threads 0: one per
 * CPU. A thread has one file open at a time. */
static enum zd_status verify_files(
        const char *dir, const json_t *manifest, int first, int of, int threads)
{
    pthread_t helpers[THREADS_MAX];
    struct progress *progress = progress_use(NULL);
    struct work work = {
            .dir = dir,
            .files = json_object_get(manifest, "files"),
            .of = of,
            .progress = progress,
            .next = first,
            .failed = INT_MAX};
    int files = (int)json_array_size(work.files) / of, started = 0;

    progress_use(progress);
    threads = threads ? threads : device_affinity_cpus();
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    pthread_mutex_init(&work.lock, NULL);
    while (started + 1 < threads && started < files &&
           thread_start(&helpers[started], "zerod-verify", work_on, &work) == 0)
        started++;
    work_on(&work);
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_destroy(&work.lock);
    if (work.failed == INT_MAX)
        return ZD_OK;
    zd_error_set(&work.error);
    return work.error.status;
}

enum zd_status manifest_open(
        const char *dir, enum checkpoint_check check, json_t **manifest_out)
{
    *manifest_out = NULL;
    ZD_TRY(manifest_read(dir, manifest_out));
    if (check == CHECKPOINT_DIGESTS)
        return verify_files(dir, *manifest_out, 0, 1, 0);
    if (check == CHECKPOINT_SIZES)
        JSON_EACH(entry, json_object_get(*manifest_out, "files"))
            ZD_TRY(verify_file(dir, entry, false));
    return ZD_OK;
}

/* --- by ranks ------------------------------------------------------------- */

enum zd_status checkpoint_verify_ranks(
        struct comm *comm, const char *dir, int threads)
{
    void *gathered;
    json_t *manifest;
    int size = comm_size(comm);
    struct zd_error own = {.status = ZD_OK}, worst = {.status = ZD_OK};
    enum zd_status status = manifest_open(dir, CHECKPOINT_TRUSTED, &manifest);
    ZD_THEN(status,
            verify_files(dir, manifest, comm_rank(comm), size, threads));
    json_decref(manifest);
    if (status != ZD_OK)
        own = *zd_error_get();
    zd_error_clear();
    ZD_TRY(comm_gather_new(comm, &own, sizeof own, &gathered));
    const struct zd_error *all = gathered;
    for (int r = 0; r < size; r++)
        if (worst.status == ZD_OK ||
            (worst.status != ZD_ERR_DATA && all[r].status == ZD_ERR_DATA))
            worst = all[r];
    free(gathered);
    if (comm_rank(comm) == 0 && worst.status != ZD_OK)
        zd_error_set(&worst);
    return worst.status;
}

/* --- a folder of checkpoints ---------------------------------------------- */

void checkpoint_name(char *out, size_t out_bytes, int64_t step)
{
    snprintf(out, out_bytes, "checkpoint-%06lld", (long long)step);
}

struct fs_path checkpoint_place(
        const char *output_dir, const char *prefix, int64_t step)
{
    char name[64], whole[80];
    checkpoint_name(name, sizeof name, step);
    ZD_PRINT(whole, "%s%s", prefix, name);
    return fs_in(output_dir, whole);
}

enum zd_status checkpoint_unreadable(const char *path, enum zd_status status)
{
    struct zd_error cause = *zd_error_get();
    if (status != ZD_ERR_IO && status != ZD_ERR_DENIED)
        return status; /* damaged or missing; or out of memory */
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
    ZD_GROW(steps->list, steps->capacity, steps->count + 1);
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

/* Is the name that of a leftover of ours? */
static bool is_leftover(const char *name)
{
    return strncmp(name, ".tmp-checkpoint-", 16) == 0 ||
           strcmp(name, ".tmp-replaced") == 0 ||
           strcmp(name, ".tmp-export") == 0 ||
           strncmp(name, ".trash-checkpoint-", 18) == 0;
}

/* A replaced checkpoint that was moved away: removed if the new one exists,
 * else restored. */
static enum zd_status sweep_away(const char *dir, const char *name)
{
    bool is_taken;
    const struct fs_path away = fs_in(dir, name);
    const struct fs_path place = fs_in(dir, name + sizeof CHECKPOINT_AWAY - 1);
    ZD_TRY(fs_look(place.text, &is_taken));
    if (is_taken)
        return fs_remove_tree(away.text);
    if (rename(away.text, place.text) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot rename %s to %s: %s", away.text,
                place.text, strerror(errno));
    zd_log_info("%s is back: no other took its place", place.text);
    return fs_sync_dir(dir);
}

static enum zd_status sweep_name(void *ctx, const char *name)
{
    if (strncmp(name, CHECKPOINT_AWAY, sizeof CHECKPOINT_AWAY - 1) == 0)
        return sweep_away(ctx, name);
    if (!is_leftover(name))
        return ZD_OK;
    const struct fs_path path = fs_in(ctx, name);
    zd_log_debug("removing %s, left by an interrupted save", path.text);
    return fs_remove_tree(path.text);
}

enum zd_status checkpoint_sweep(const char *output_dir)
{
    return fs_each_name(output_dir, sweep_name, (char *)(uintptr_t)output_dir);
}

/* Is the checkpoint of a step valid (with `full`, also its files' digests)? An
 * error means that it could not be read, so neither. *eval_loss: of an
 * evaluation at that step, else NaN. */
static enum zd_status look_at(
        const struct train_job *job, int64_t step, bool full,
        bool *is_sound_out, double *eval_loss)
{
    json_auto_t *manifest = NULL;
    *eval_loss = NAN;
    enum zd_status status = manifest_open(
            checkpoint_place(job->job.output_dir, "", step).text,
            full ? CHECKPOINT_DIGESTS : CHECKPOINT_SIZES, &manifest);
    *is_sound_out = status == ZD_OK;
    if (status == ZD_ERR_DATA) {
        zd_error_clear();
        status = ZD_OK;
    }
    if (manifest) {
        struct train_state state = manifest_state(manifest);
        if (state.eval_step == state.step)
            *eval_loss = state.eval_loss;
    }
    return status;
}

static enum zd_status remove_checkpoint(const char *output_dir, int64_t step)
{
    struct fs_path path = checkpoint_place(output_dir, "", step);
    struct fs_path trash = checkpoint_place(output_dir, ".trash-", step);
    if (rename(path.text, trash.text) != 0) /* first renamed, so that no partial
                                               checkpoint is visible */
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot remove %s: %s", path.text,
                strerror(errno));
    ZD_TRY(fs_sync_dir(output_dir));
    zd_log_info("removed %s (checkpoint.save_total_limit)", path.text);
    return fs_remove_tree(trash.text);
}

/* Is `a` better than `b`? NaN is never better. */
static bool better(double a, double b, bool greater)
{
    if (isnan(a))
        return false;
    return isnan(b) || (greater ? a > b : a < b);
}

/* The step of the best evaluation among `steps`; -1: none was evaluated. */
static enum zd_status best_of(
        const struct train_job *job, const int64_t *steps, int count,
        int64_t *best_out)
{
    double best_loss = NAN, loss;
    bool is_sound, greater = job->checkpoint.greater_is_better;
    *best_out = -1;
    for (int i = 0; i < count; i++) {
        ZD_TRY(look_at(job, steps[i], false, &is_sound, &loss));
        if (is_sound && better(loss, best_loss, greater)) {
            best_loss = loss;
            *best_out = steps[i];
        }
    }
    return ZD_OK;
}

static bool is_own(
        int64_t step, int64_t last, const int64_t own[CHECKPOINTS_OWN])
{
    bool found = step == last;
    for (int i = 0; i < CHECKPOINTS_OWN; i++)
        found |= own[i] == step;
    return found;
}

static enum zd_status retain(
        const struct train_job *job, const int64_t *steps, int count,
        int64_t last, const int64_t own[CHECKPOINTS_OWN])
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
        if (is_needed && !is_own(steps[i], last, own))
            ZD_TRY(look_at(job, steps[i], true, &is_needed, &loss));
        sound += is_needed;
        if (i >= limit && !is_needed && steps[i] != best)
            ZD_TRY(remove_checkpoint(job->job.output_dir, steps[i]));
    }
    return ZD_OK;
}

enum zd_status checkpoint_retain(
        const struct train_job *job, int64_t step,
        const int64_t own[CHECKPOINTS_OWN])
{
    ZD_FREED int64_t *steps = NULL;
    int count, later = 0;
    ZD_TRY(checkpoint_list(job->job.output_dir, &steps, &count));
    while (later < count && steps[later] > step)
        later++;
    return retain(job, steps + later, count - later, step, own);
}
