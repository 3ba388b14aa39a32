/* test_release.c - pause --release: the device's memory goes to files and back,
 * and the run with it equals the run without, bit for bit.
 *
 *   runs     stages, ranks, offload, paged states; commands while released
 *   memory   what a released process holds; what a full disk, a changed file
 *            and a crash do */
#include "base/file/fs.h"
#include "tests/support/commander.h"
#include "tests/support/job_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define JOB "tests/fixtures/deep.toml"
enum { SETS = 20 };

/* A commander whose `look` is called at rank 0's boundary before the command
 * numbered `at`: the run holds there. */
struct watcher {
    struct commander commander;
    bool (*next)(void *, int64_t, struct train_command *);
    const char *dir;
    int at, world, looks;
    bool is_good;
    bool (*look)(struct watcher *watcher);
    struct train_rank_report report; /* the last of rank 0 */
};

static bool watch(void *ctx, int64_t step, struct train_command *out)
{
    struct watcher *watcher = ctx;
    if (watcher->look && watcher->commander.given == watcher->at &&
        watcher->commander.entries[watcher->at].step <= step)
        watcher->is_good = watcher->looks++ == 0 && watcher->look(watcher);
    return watcher->next(&watcher->commander, step, out);
}

static void told(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct commander_entry *entry =
            &((struct watcher *)ctx)->commander.entries[command->id];
    entry->done_step = step;
    entry->done_count++;
    if (error)
        entry->error = *error;
    entry->result = json_deep_copy(result);
}

static void on_ranks(
        void *ctx, const struct train_rank_report *ranks, int count)
{
    ((struct watcher *)ctx)->report = ranks[0];
}

static void watcher_init(
        struct watcher *watcher, const char *dir, int world,
        bool (*look)(struct watcher *))
{
    memset(watcher, 0, sizeof *watcher);
    commander_init(&watcher->commander);
    watcher->next = watcher->commander.control.next;
    watcher->commander.control =
            (struct train_control){.ctx = watcher, .next = watch, .done = told};
    watcher->commander.observer.ranks = on_ranks;
    watcher->dir = dir;
    watcher->world = world;
    watcher->look = look;
}

static void add(
        struct watcher *watcher, int64_t step, enum train_command_kind kind)
{
    struct train_command *command =
            commander_add(&watcher->commander, step, kind);
    command->release = kind == COMMAND_PAUSE;
    command->save = true;
}

static uint64_t file_bytes(const char *dir, int rank)
{
    int fd;
    char path[PATH_MAX];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s/out/.released-rank-%05d", dir, rank);
    if (!fs_exists(path) || fs_open_read(path, &fd, &bytes) != ZD_OK)
        return 0;
    close(fd);
    return bytes;
}

static bool all_have_files(struct watcher *watcher)
{
    bool all = true;
    for (int r = 0; r < watcher->world; r++)
        all = all && file_bytes(watcher->dir, r) > 0;
    return all;
}

static bool same_run(const char *a, const char *b)
{
    return same_column(a, b, "loss", 0) && same_column(a, b, "grad_norm", 0) &&
           same_column(a, b, "eval_loss", 0) && same_model(a, b);
}

static enum zd_status run(
        const char *const *given, const char *dir, int world,
        struct watcher *watcher)
{
    const char *sets[SETS] = {"checkpoint.save_strategy=no"};
    for (int i = 0; given && given[i]; i++)
        sets[i + 1] = given[i];
    return job_threads_run_observed(
            JOB, sets, world, dir,
            watcher ? &watcher->commander.observer : NULL);
}

/* --- runs ------------------------------------------------------------------
 */

static void same_bits(const char *what, int world, const char *const *sets)
{
    struct watcher watcher;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(sets, plain, world, NULL) == ZD_OK;
    watcher_init(&watcher, dir, world, all_have_files);
    add(&watcher, 0, COMMAND_PAUSE);
    add(&watcher, 0, COMMAND_RESUME);
    add(&watcher, 2, COMMAND_PAUSE);
    add(&watcher, 2, COMMAND_CHECKPOINT);
    add(&watcher, 2, COMMAND_RESUME);
    watcher.at = 4; /* the files are there again after the checkpoint */
    ran = ran && run(sets, dir, world, &watcher) == ZD_OK;
    json_int_t released = json_integer_value(json_object_get(
            watcher.commander.entries[0].result, "released_bytes"));
    tap_ok(ran && commander_all_done(&watcher.commander) && released > 0,
           "%s: released and resumed twice (%lld bytes)", what,
           (long long)released);
    tap_ok(watcher.is_good, "%s: every rank has a file while released", what);
    bool gone = true;
    for (int r = 0; r < world; r++)
        gone = gone && file_bytes(dir, r) == 0;
    tap_ok(ran && gone && same_run(plain, dir),
           "%s: the same bits as without, no file is left", what);
    commander_fini(&watcher.commander);
}

static void all_runs(void)
{
    same_bits("one rank", 1, NULL);
    same_bits(
            "two ranks, stage 3", 2,
            (const char *const[]){"zero.stage=3", NULL});
    same_bits(
            "two ranks, stage 2, bf16", 2,
            (const char *const[]){"zero.stage=2", "train.dtype=bf16", NULL});
    same_bits(
            "three ranks, stage 1, adam_mini_8bit", 3,
            (const char *const[]){
                    "zero.stage=1", "optim.name=adam_mini_8bit",
                    "train.global_batch_size=6",
                    "train.gradient_accumulation_steps=1", NULL});
    same_bits(
            "two ranks, all offloaded", 2,
            (const char *const[]){
                    "zero.stage=3", "offload.optimizer=cpu",
                    "offload.params=cpu", "offload.activations=cpu",
                    "train.gradient_checkpointing=full",
                    "offload.chunk_bytes=2048", "device.streams=threads",
                    NULL});
    same_bits(
            "one rank, paged states", 1,
            (const char *const[]){
                    "optim.name=paged_adamw_8bit", "offload.chunk_bytes=2048",
                    "train.gradient_checkpointing=full",
                    "device.memory_limit=1100000", NULL});
}

/* --- memory ----------------------------------------------------------------
 */

static uint64_t resident(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %llu", &kilobytes) == 1)
            break;
    fclose(file);
    return kilobytes * 1024;
}

static uint64_t resident_released, resident_running;

static bool look_at_memory(struct watcher *watcher)
{
    const struct train_rank_report *report = &watcher->report;
    resident_released = resident();
    return all_have_files(watcher) && report->step == 1 &&
           report->planned[ARENA_DEVICE] > 0 &&
           report->taken[ARENA_DEVICE] == 0 && report->resident < 200000000;
}

static bool look_before(struct watcher *watcher)
{
    resident_running = resident();
    watcher->at = 1;
    watcher->looks = 0;
    watcher->look = look_at_memory;
    return true;
}

/* Mostly embedding: hundreds of megabytes that a step soon went through. */
static void little_stays(void)
{
    struct watcher watcher;
    const char *dir = job_threads_dir();
    const char *sets[] = {
            "train.max_steps=2",
            "checkpoint.export=none",
            "model.config.vocab_size=40000",
            "model.config.hidden_size=384",
            "train.gradient_accumulation_steps=1",
            "eval.eval_strategy=no",
            NULL};
    watcher_init(&watcher, dir, 1, look_before);
    add(&watcher, 1, COMMAND_PAUSE);
    add(&watcher, 1, COMMAND_RESUME);
    bool ran = run(sets, dir, 1, &watcher) == ZD_OK;
    tap_ok(ran && commander_all_done(&watcher.commander) && watcher.is_good &&
                   resident_running > 400000000,
           "a run that holds %llu MB",
           (unsigned long long)resident_running / 1000000);
    tap_ok(ran && resident_released < 200000000, "released it holds %llu MB",
           (unsigned long long)resident_released / 1000000);
    commander_fini(&watcher.commander);
    fs_remove_tree(dir);
}

static bool change_file(struct watcher *watcher)
{
    char path[PATH_MAX], byte;
    snprintf(
            path, sizeof path, "%s/out/.released-rank-%05d", watcher->dir,
            watcher->world - 1);
    int fd = open(path, O_RDWR);
    bool ok = fd >= 0 && pread(fd, &byte, 1, 5000) == 1;
    byte ^= 1;
    ok = ok && pwrite(fd, &byte, 1, 5000) == 1;
    close(fd);
    return ok;
}

/* A file that was changed is told on resume; the run stays paused, and can be
 * stopped. */
static void changed_files_are_refused(void)
{
    struct watcher watcher;
    const char *dir = job_threads_dir();
    watcher_init(&watcher, dir, 2, change_file);
    add(&watcher, 2, COMMAND_PAUSE);
    add(&watcher, 2, COMMAND_RESUME);
    add(&watcher, 2, COMMAND_CHECKPOINT);
    add(&watcher, 2, COMMAND_STOP);
    watcher.commander.entries[3].command.save = false;
    watcher.at = 1;
    bool ran = run(NULL, dir, 2, &watcher) == ZD_OK;
    const struct commander_entry *entries = watcher.commander.entries;
    tap_ok(ran && watcher.is_good &&
                   strcmp(entries[1].error.code, "E1021") == 0 &&
                   strcmp(entries[2].error.code, "E1021") == 0,
           "a changed file is refused");
    tap_ok(ran && entries[3].error.status == ZD_OK &&
                   watcher.commander.end.on_request &&
                   file_bytes(dir, 0) + file_bytes(dir, 1) == 0,
           "the run can still be stopped, and leaves no file");
    commander_fini(&watcher.commander);
}

/* A disk of 300 KB, by root alone. */
static void small_disk(void)
{
    struct watcher watcher;
    char out[PATH_MAX];
    const char *dir = job_threads_dir();
    snprintf(out, sizeof out, "%s/out", dir);
    fs_make_dirs(out);
    if (mount("tmpfs", out, "tmpfs", 0, "size=300k") != 0) {
        tap_ok(true, "a disk that is too small # SKIP mount: %s",
               strerror(errno));
        return;
    }
    const char *sets[] = {"checkpoint.export=none", NULL};
    watcher_init(&watcher, dir, 2, NULL);
    add(&watcher, 2, COMMAND_PAUSE);
    add(&watcher, 2, COMMAND_RESUME);
    bool ran = run(sets, dir, 2, &watcher) == ZD_OK ||
               strcmp(zd_error_get()->code, "E0806") == 0;
    const struct commander_entry *entries = watcher.commander.entries;
    tap_ok(ran && strcmp(entries[0].error.code, "E1020") == 0 &&
                   entries[0].done_count == 1 && entries[1].done_count == 1 &&
                   strcmp(entries[1].error.code, "E1003") == 0,
           "without room on the disk the run goes on, not paused (%s)",
           entries[0].error.what);
    commander_fini(&watcher.commander);
    umount2(out, MNT_DETACH);
    zd_error_clear();
}

/* What a crash left goes at the next start. */
static void leftovers_go(void)
{
    char path[PATH_MAX];
    const char *dir = job_threads_dir();
    snprintf(path, sizeof path, "%s/out", dir);
    fs_make_dirs(path);
    snprintf(path, sizeof path, "%s/out/.released-rank-00007", dir);
    bool ran = fs_write_file(path, "old", 3) == ZD_OK &&
               run(NULL, dir, 1, NULL) == ZD_OK;
    tap_ok(ran && !fs_exists(path), "files of a crash go at the next start");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "runs") == 0) {
        all_runs();
    } else if (argc == 2 && strcmp(argv[1], "memory") == 0) {
        little_stays();
        changed_files_are_refused();
        small_disk();
        leftovers_go();
    } else {
        return 64;
    }
    return tap_done();
}
