/* test_background.c - checkpoints that a thread writes while training goes on
 * are those of a save that everyone waits for, whatever is slow or fails
 * (wrapped_saves.h). */
#include "tests/support/job_threads.h"

#include "base/device/device.h"
#include "base/file/json.h"
#include "base/log.h"
#include "tests/support/commander.h"
#include "tests/train/checkpoint/wrapped_saves.h"

#include <limits.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_UNTIL = 7 };

static void on_step(void *ctx, const struct train_step_report *report)
{
    (void)ctx;
    int step_us = atomic_load(&save_asks.step_us);
    atomic_store(&save_seen.step_now, (int)report->step);
    if (report->step > 3 && report->step <= SLOW_UNTIL + 1)
        usleep((useconds_t)step_us);
    while (step_us && report->step == SLOW_UNTIL + 1 &&
           atomic_load(&save_seen.written) < 2)
        usleep(1000); /* the save that stood still is there before the next */
}

/* The words of `more` are settings too; `commander` may be NULL. */
static enum zd_status run_asked(
        const char *dir, int world, const char *more,
        struct commander *commander)
{
    struct train_observer observer = {0};
    if (commander)
        observer = commander->observer;
    observer.step = on_step;
    memset(&save_seen, 0, sizeof save_seen); /* no thread of a run is left */
    zd_error_clear();
    bool ran = job_runs_observed(
            "tests/train/bytes.toml", dir, world, &observer,
            "train.max_steps=6 checkpoint.save_steps=2 "
            "checkpoint.save_total_limit=0 checkpoint.export=none "
            "report.html=false %s",
            more);
    enum zd_status status = zd_error_get()->status;
    return ran ? ZD_OK : status != ZD_OK ? status : ZD_ERR_BUG;
}

static enum zd_status run(const char *dir, int world, const char *more)
{
    return run_asked(dir, world, more, NULL);
}

/* The manifests but for the ids of events, whose moments are their own. */
static bool same_manifest(const char *a, const char *b, int step)
{
    json_t *manifests[] = {job_manifest(a, step), job_manifest(b, step)};
    for (int i = 0; i < 2; i++) {
        json_object_del(manifests[i], "last_event");
        json_object_del(manifests[i], "manifest_xxh3_128");
    }
    bool same = manifests[0] && json_equal(manifests[0], manifests[1]);
    json_decref(manifests[0]);
    json_decref(manifests[1]);
    return same;
}

static bool same_checkpoints(const char *a, const char *b, int world)
{
    for (int step = 2; step <= 6; step += 2) {
        if (!same_manifest(a, b, step))
            return false;
        for (int r = 1; r <= world; r++) {
            char name[128];
            ZD_PRINT(
                    name, "checkpoint-%06d/shard-%05d-of-%05d.safetensors",
                    step, r, world);
            if (!same_output(a, b, name))
                return false;
        }
    }
    return true;
}

/* --- what is written ------------------------------------------------------ */

static const struct {
    int world;
    const char *sets;
} layouts[] = {
        {1, "zero.stage=0"},
        {2, "zero.stage=0"},
        {2, "zero.stage=1 optim.name=adamw_8bit"},
        {2, "zero.stage=2 train.dtype=bf16 optim.name=adam_mini"},
        {3, "zero.stage=3 train.dtype=bf16 optim.master=none"},
        {2, "zero.stage=3 offload.optimizer=cpu offload.params=cpu"},
        {2, "zero.stage=2 offload.optimizer=cpu offload.clipping=undo"},
        {2, "zero.stage=2 offload.optimizer=cpu offload.clipping=undo "
            "checkpoint.snapshot_memory=16KiB"},
        {2, "zero.stage=0 offload.optimizer=cpu optim.name=adam_mini "
            "checkpoint.snapshot_memory=48KiB"},
        {1, "offload.optimizer=cpu optim.name=adamw_8bit train.dtype=bf16"},
        {2, "zero.stage=1 optim.name=paged_adamw_8bit"},
        {2, "zero.stage=2 checkpoint.save_only_model=true"},
};

static void test_layouts(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        int world = layouts[i].world;
        const char *waiting = job_threads_dir(), *going = job_threads_dir();
        char sets[256];
        ZD_PRINT(sets, "checkpoint.async_save=false %s", layouts[i].sets);
        enum zd_status status = run(waiting, world, sets);
        bool none = atomic_load(&save_seen.writes) == 0;
        ZD_THEN(status, run(going, world, layouts[i].sets));
        /* the last is one that the end waits for */
        bool all = atomic_load(&save_seen.writes) >= 2 * world &&
                   atomic_load(&save_seen.commits) >= 2;
        tap_ok(status == ZD_OK && none && all,
               "%d ranks, %s: threads write (status %d, %d writes, %s)", world,
               layouts[i].sets, status, atomic_load(&save_seen.writes),
               zd_error_get()->what);
        tap_ok(same_checkpoints(waiting, going, world),
               "  the same checkpoints, byte for byte");
        tap_ok(same_column(waiting, going, "loss", 6), "  the same losses");
        bool down = strstr(layouts[i].sets, "clipping=undo");
        tap_ok(save_seen.disorder == 0 &&
                       (down ? save_seen.ups : save_seen.downs) == 0 &&
                       (down ? save_seen.downs : save_seen.ups) > 2,
               "  written as updates come to them (%d up, %d down, %d apart)",
               save_seen.ups, save_seen.downs, save_seen.disorder);
    }
}

/* CPUs that nothing computes on copy too. */
static void test_helpers(void)
{
    const char *waiting = job_threads_dir();
    int spare = device_affinity_cpus() - 1;
    spare = spare < 7 ? spare : 7;
    enum zd_status status =
            run(waiting, 1, "device.cpu_threads=1 checkpoint.async_save=false");
    for (int refuse = 0; refuse < 2 && status == ZD_OK; refuse++) {
        const char *dir = job_threads_dir();
        atomic_store(&save_asks.refuses_helpers, refuse);
        status = run(dir, 1, "device.cpu_threads=1");
        tap_ok(status == ZD_OK && save_seen.takes >= 2 &&
                       save_seen.helpers ==
                               (refuse ? 0 : save_seen.takes * spare),
               "%d copies by one thread that computes and %d on CPUs that it "
               "leaves free, in all",
               save_seen.takes, save_seen.helpers);
        tap_ok(same_checkpoints(waiting, dir, 1) &&
                       same_column(waiting, dir, "loss", 6),
               "  the same checkpoints and losses");
    }
    atomic_store(&save_asks.refuses_helpers, false);
}

/* --- training goes on ----------------------------------------------------- */

static void test_overlap(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    atomic_store(&save_asks.wants_step, 1);
    enum zd_status status = run(dir, 2, "train.max_steps=8");
    tap_ok(status == ZD_OK && atomic_load(&save_seen.step_seen) >= 2,
           "%d steps are made while the first shard is written",
           atomic_load(&save_seen.step_seen));
    tap_ok(save_seen.hardened == 2 * save_seen.commits &&
                   save_seen.hardened_early == 1,
           "whoever commits waits until rows and events are on the disk (%d "
           "times, %d commits), training at its end (%d)",
           save_seen.hardened, save_seen.commits, save_seen.hardened_early);
    status = run(plain, 2, "train.max_steps=8 checkpoint.async_save=false");
    tap_ok(status == ZD_OK && same_column(dir, plain, "loss", 8) &&
                   same_manifest(dir, plain, 2),
           "and it is what the model was before them");
}

/* Of a checkpoint's event; -1: there is none. */
static double stall_of(const char *dir, int step)
{
    char path[PATH_MAX], line[4096];
    double stall = -1;
    ZD_PRINT(path, "%s/out/events.jsonl", dir);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        json_auto_t *event = json_loads(line, 0, NULL);
        const char *kind = json_string_at(event, "event");
        if (kind && strcmp(kind, "checkpoint") == 0 &&
            json_integer_at(event, "step") == step)
            stall = json_number_value(json_object_get(event, "stall_seconds"));
    }
    if (file)
        fclose(file);
    return stall;
}

/* Offloaded states are copied as updates come to them, into what room there is.
 */
static void test_offloaded(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    atomic_store(&save_asks.wants_step, 1);
    enum zd_status status = run(dir, 1, "offload.optimizer=cpu");
    tap_ok(status == ZD_OK && atomic_load(&save_seen.step_seen) >= 2,
           "with room for offloaded states updates pass a writer that waits "
           "for them (%d steps)",
           atomic_load(&save_seen.step_seen));
    dir = job_threads_dir();
    atomic_store(&save_asks.wants_waiting, 1);
    atomic_store(&save_asks.tells_more, true);
    status = run(
            dir, 1, "offload.optimizer=cpu checkpoint.snapshot_memory=1KiB");
    atomic_store(&save_asks.tells_more, false);
    tap_ok(status == ZD_OK &&
                   stall_of(dir, 2) >= SAVE_MORE_WAIT + SAVE_LEAST_WAIT,
           "without, the update waits for the writer, and the save's event "
           "says how long: %.3f s",
           stall_of(dir, 2) - SAVE_MORE_WAIT);
    status = run(plain, 1, "offload.optimizer=cpu checkpoint.async_save=false");
    tap_ok(status == ZD_OK && same_checkpoints(plain, dir, 1) &&
                   same_column(plain, dir, "loss", 6),
           "and the files and losses are those of saves that all wait for");
}

static void test_no_room(void)
{
    const char *dir = job_threads_dir();
    enum zd_status status = run(dir, 2, "checkpoint.snapshot_memory=1KiB");
    char path[PATH_MAX];
    json_auto_t *plan = NULL;
    ZD_PRINT(path, "%s/out/plan.json", dir);
    const char *why = "";
    if (status == ZD_OK && json_parse_file(path, 1 << 20, &plan) == ZD_OK)
        why = json_string_at(json_object_get(plan, "snapshot"), "why_none");
    tap_ok(status == ZD_OK && atomic_load(&save_seen.writes) == 0,
           "without room for a copy training waits for its saves");
    tap_ok(why && strstr(why, "checkpoint.snapshot_memory"),
           "and the plan says why: %s", why ? why : "");
}

/* --- what fails ----------------------------------------------------------- */

static bool has(const char *dir, int step)
{
    char path[PATH_MAX];
    ZD_PRINT(path, "%s/out/checkpoint-%06d/manifest.json", dir, step);
    return access(path, R_OK) == 0;
}

static bool warns(const char *dir, const char *pattern)
{
    char path[PATH_MAX], line[4096];
    regex_t regex;
    bool found = false;
    ZD_PRINT(path, "%s/out/events.jsonl", dir);
    FILE *file = fopen(path, "re");
    regcomp(&regex, pattern, REG_NOSUB);
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, "\"event\":\"warning\"") &&
                regexec(&regex, line, 0, NULL, 0) == 0;
    regfree(&regex);
    if (file)
        fclose(file);
    return found;
}

static void test_failures(void)
{
    const char *dir = job_threads_dir(), *sound = job_threads_dir();
    atomic_store(&save_asks.failing, 1);
    enum zd_status status = run(dir, 2, "zero.stage=2");
    tap_ok(status == ZD_OK && !has(dir, 2) && has(dir, 4) && has(dir, 6),
           "a shard that cannot be written is one save less (status %d)",
           status);
    run(sound, 2, "zero.stage=2");
    tap_ok(same_column(dir, sound, "loss", 6), "and nothing else");
    for (int thread = 2; thread <= 3; thread++) {
        dir = job_threads_dir();
        atomic_store(&save_asks.refused, thread);
        status = run(dir, 2, "zero.stage=2");
        tap_ok(status == ZD_OK && has(dir, 2) && has(dir, 4) && has(dir, 6) &&
                       same_column(dir, sound, "loss", 6),
               "training waits for one without a thread that %s (status %d)",
               thread == 2 ? "writes" : "commits", status);
    }
    dir = job_threads_dir();
    atomic_store(&save_asks.failing, 100);
    status = run(dir, 2, "train.max_steps=60");
    tap_ok(status == ZD_ERR_IO &&
                   strstr(zd_error_get()->what, "the disk is full"),
           "the third in a row ends the run: %d, %s", status,
           zd_error_get()->what);
    /* two fail, and a third before bad data ends the run */
    dir = job_threads_dir();
    atomic_store(&save_asks.fails_waited, 1);
    atomic_store(&save_asks.bad_batch, 2 * 5); /* of step 5 */
    status = run(
            dir, 2, "train.max_steps=60 train.gradient_accumulation_steps=1");
    tap_ok(status == ZD_ERR_DATA && strstr(zd_error_get()->what, "a bad token"),
           "a failed save does not hide the error that ends the run: %d, %s",
           status, zd_error_get()->what);
    atomic_store(&save_asks.failing, 0);
}

/* The disk of rank 1 stands still for longer than checkpoint.timeout in the
 * save of step 3, and that of step 6 finds it so; then it goes on. */
static void test_stalls(void)
{
    const char *dir = job_threads_dir(), *sound = job_threads_dir();
    const char *sets = "zero.stage=2 offload.optimizer=cpu train.max_steps=12 "
                       "checkpoint.save_steps=3 checkpoint.timeout=2s";
    run(sound, 2, sets);
    atomic_store(&save_asks.stalls_until, SLOW_UNTIL);
    atomic_store(&save_asks.step_us, 800000);
    struct zd_log_options quiet = {.level = ZD_LOG_ERROR},
                          aloud = {.level = ZD_LOG_WARNING};
    zd_log_configure(&aloud); /* warnings are events */
    enum zd_status status = run(dir, 2, sets);
    zd_log_configure(&quiet);
    atomic_store(&save_asks.step_us, 0);
    tap_ok(status == ZD_OK && has(dir, 3) && !has(dir, 6) && has(dir, 9) &&
                   has(dir, 12),
           "no other save begins while a disk stands still (status %d, %s)",
           status, zd_error_get()->what);
    tap_ok(same_column(dir, sound, "loss", 12), "training goes on beside it");
    tap_ok(warns(dir,
                 "checkpoint at step 6 was not saved, training goes on: the "
                 "disk of .* still holds up the save of step 3"),
           "an event says so");
}

/* A run that goes on from one that was written so is the run that never
 * ended. */
static void test_resume(void)
{
    const char *dir = job_threads_dir(), *whole = job_threads_dir();
    enum zd_status status = run(whole, 2, "zero.stage=2");
    ZD_THEN(status, run(dir, 2, "zero.stage=2 run.stop_after=5"));
    ZD_THEN(status, run(dir, 3, "zero.stage=3 run.stop_after=5"));
    ZD_THEN(status, run(dir, 2, "zero.stage=2"));
    tap_ok(status == ZD_OK && same_checkpoints(whole, dir, 2),
           "resumed from one, it ends with the bits of the unbroken run");
}

/* --- what is asked for ---------------------------------------------------- */

/* A control that looks, when it is told, whether it is there. */
struct asker {
    struct commander commander;
    const char *dir;
    int early; /* answers before the commit */
};

static bool asker_next(void *ctx, int64_t step, struct train_command *out)
{
    struct asker *asker = ctx;
    const struct train_control *control = &asker->commander.control;
    return control->next(control->ctx, step, out);
}

static void asker_done(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct asker *asker = ctx;
    const struct train_control *control = &asker->commander.control;
    asker->early += command->kind == COMMAND_CHECKPOINT && !error &&
                    !has(asker->dir, (int)step);
    control->done(control->ctx, command, step, error, result);
}

static enum zd_status run_asker(struct asker *asker, const char *more)
{
    struct train_control control = {
            .ctx = asker, .next = asker_next, .done = asker_done};
    asker->commander.observer.control = &control;
    return run_asked(asker->dir, 2, more, &asker->commander);
}

#define ASKED "train.max_steps=10 checkpoint.save_steps=1000"

static void test_asked(void)
{
    const char *waiting = job_threads_dir();
    struct asker asker = {.dir = job_threads_dir()};
    const struct commander_entry *entries = asker.commander.entries;
    enum zd_status status =
            run(waiting, 2, "train.max_steps=10 checkpoint.async_save=false");
    commander_ask(
            &asker.commander,
            "2 checkpoint, 6 checkpoint, 6 checkpoint, 8 pause, "
            "8 checkpoint, 8 resume");
    atomic_store(&save_asks.wants_step, 1);
    ZD_THEN(status, run_asker(&asker, ASKED));
    tap_ok(status == ZD_OK && atomic_load(&save_seen.step_seen) >= 2,
           "%d steps are made while one that was asked for is written (%s)",
           atomic_load(&save_seen.step_seen), zd_error_get()->what);
    tap_ok(commander_all_done(&asker.commander) && asker.early == 0 &&
                   entries[0].done_step == 2 && entries[1].done_step == 6 &&
                   entries[2].done_step == 6 && entries[4].done_step == 8,
           "each is told of its step when it is there");
    bool same = true;
    for (int r = 1; r <= 2; r++) {
        char name[128];
        ZD_PRINT(name, "checkpoint-000006/shard-%05d-of-00002.safetensors", r);
        same = same && same_output(waiting, asker.dir, name);
    }
    tap_ok(same && same_column(waiting, asker.dir, "loss", 10),
           "with the bytes of one that everyone waits for, and no other bit");
    commander_fini(&asker.commander);
}

/* Three in a row would end a run that saves by itself. */
static void test_asked_failures(void)
{
    enum { FAIL = 4 };
    struct asker asker = {.dir = job_threads_dir()};
    const char *plain = job_threads_dir();
    bool told = true;
    run(plain, 2, ASKED);
    commander_init(&asker.commander);
    for (int i = 0; i < FAIL; i++)
        commander_add(&asker.commander, 2 + i / 2, COMMAND_CHECKPOINT);
    commander_add(&asker.commander, 7, COMMAND_CHECKPOINT);
    atomic_store(&save_asks.failing, FAIL);
    enum zd_status status = run_asker(&asker, ASKED);
    atomic_store(&save_asks.failing, 0);
    for (int i = 0; i <= FAIL; i++) {
        const struct commander_entry *entry = &asker.commander.entries[i];
        told = told && entry->done_count == 1 &&
               entry->error.status == (i < FAIL ? ZD_ERR_IO : ZD_OK);
    }
    tap_ok(status == ZD_OK && told,
           "four that cannot be written are told so, the fifth is there: %s",
           asker.commander.entries[0].error.what);
    tap_ok(same_column(plain, asker.dir, "loss", 10),
           "and the run goes on as it would have");
    commander_fini(&asker.commander);
}

static void test_asked_last(void)
{
    struct asker asker = {.dir = job_threads_dir()};
    commander_ask(&asker.commander, "3 checkpoint, 3 stop");
    enum zd_status status = run_asker(&asker, ASKED);
    tap_ok(status == ZD_OK && commander_all_done(&asker.commander) &&
                   asker.early == 0 && has(asker.dir, 3),
           "a stop waits for one that was asked for");
    commander_fini(&asker.commander);
}

int main(void)
{
    test_layouts();
    test_helpers();
    test_overlap();
    test_offloaded();
    test_no_room();
    test_failures();
    test_stalls();
    test_resume();
    test_asked();
    test_asked_failures();
    test_asked_last();
    return tap_done();
}
