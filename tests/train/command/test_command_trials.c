/* test_command_trials.c - commands at random moments, under 1, 2 and 3 ranks.
 *
 * Whatever is asked, the run comes to its end: no deadlock, no step lost, every
 * command told once. Without `set` it has the bits of a run that was asked
 * nothing, with it those of its replay. argv: how many trials. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { STEPS = 12, STARTS_MAX = 12, COMMANDS_MAX = 14, SETS = 16 };

struct asker {
    unsigned seed;
    bool may_set;
    bool is_paused, is_stopped;
    int given, told, failed;
    char what[256]; /* of the first that failed */
    struct train_control control;
    struct train_observer observer;
};

static bool one_in(struct asker *asker, int n)
{
    return rand_r(&asker->seed) % n == 0;
}

static void choose_setting(struct asker *asker, struct train_command *command)
{
    command->kind = COMMAND_SET;
    if (one_in(asker, 2)) {
        command->given[SET_LEARNING_RATE] = true;
        command->value[SET_LEARNING_RATE] =
                1e-3 * (1 + rand_r(&asker->seed) % 7) / 3;
    }
    if (one_in(asker, 3)) {
        command->given[SET_ACCUMULATION] = true;
        command->value[SET_ACCUMULATION] = 1 + rand_r(&asker->seed) % 4;
    }
    command->given[SET_MAX_GRAD_NORM] = true;
    command->value[SET_MAX_GRAD_NORM] = 0.01 * (1 + rand_r(&asker->seed) % 100);
}

static void choose(struct asker *asker, struct train_command *command)
{
    switch (rand_r(&asker->seed) % (asker->may_set ? 8 : 6)) {
    case 0:
        command->kind = COMMAND_CHECKPOINT;
        return;
    case 1:
        command->kind = COMMAND_EVAL;
        return;
    case 2:
        command->kind = COMMAND_SAMPLE;
        strcpy(command->prompt, "a");
        command->max_new_tokens = 3;
        return;
    case 3:
    case 4:
        command->kind = asker->is_paused ? COMMAND_RESUME : COMMAND_PAUSE;
        return;
    case 5:
        command->kind = COMMAND_STOP;
        command->save = true;
        return;
    default:
        choose_setting(asker, command);
    }
}

static bool next(void *ctx, int64_t step, struct train_command *out)
{
    struct asker *asker = ctx;
    bool is_over = asker->given >= COMMANDS_MAX;
    if (asker->is_stopped || (is_over && !asker->is_paused) ||
        !one_in(asker, asker->is_paused ? 1 : 3))
        return false;
    memset(out, 0, sizeof *out);
    if (is_over)
        out->kind = COMMAND_RESUME;
    else
        choose(asker, out);
    out->id = asker->given++;
    return true;
}

static void done(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct asker *asker = ctx;
    asker->told++;
    if (error && !asker->failed++)
        snprintf(
                asker->what, sizeof asker->what, "%s at %lld: %.200s",
                train_command_name(command->kind), (long long)step,
                error->what);
    if (error)
        return;
    if (command->kind == COMMAND_PAUSE || command->kind == COMMAND_RESUME)
        asker->is_paused = command->kind == COMMAND_PAUSE;
    if (command->kind == COMMAND_STOP)
        asker->is_stopped = true;
}

/* Until the end, with a new start after each stop. */
static bool run(
        const char *dir, int world, struct asker *asker, const char *replay)
{
    char stage[32], file[PATH_MAX + 16];
    const char *sets[SETS] = {
            "train.max_steps=12", "data.val_split=0.25",
            "checkpoint.save_strategy=no", "eval.eval_strategy=no", stage};
    snprintf(stage, sizeof stage, "zero.stage=%d", world);
    snprintf(file, sizeof file, "run.replay=%s", replay ? replay : "");
    sets[5] = replay ? file : NULL;
    for (int start = 0; start < STARTS_MAX; start++) {
        if (asker)
            asker->is_stopped = asker->is_paused = false;
        if (job_threads_run_observed(
                    JOB, sets, world, dir, asker ? &asker->observer : NULL) !=
            ZD_OK)
            return false;
        if (!asker || !asker->is_stopped)
            return true;
    }
    return false;
}

static bool same_curve(const char *a, const char *b)
{
    double *x, *y;
    int m = job_threads_column(a, "loss", &x);
    int n = job_threads_column(b, "loss", &y);
    bool same = m == STEPS && n == STEPS &&
                memcmp(x, y, STEPS * sizeof(double)) == 0;
    free(x);
    free(y);
    return same;
}

static void try_once(int number, const char *const *plain)
{
    char events[PATH_MAX];
    int world = number % 3 + 1;
    const char *dir = job_threads_dir(), *again = job_threads_dir();
    struct asker asker = {
            .seed = (unsigned)number * 7919 + 1, .may_set = number / 3 % 2};
    asker.control =
            (struct train_control){.ctx = &asker, .next = next, .done = done};
    asker.observer = (struct train_observer){.control = &asker.control};
    bool ran = run(dir, world, &asker, NULL);
    snprintf(events, sizeof events, "%s/out/events.jsonl", dir);
    bool same = false;
    if (ran && !asker.may_set)
        same = same_curve(plain[world - 1], dir) &&
               same_model(plain[world - 1], dir);
    else if (ran)
        same = run(again, world, NULL, events) && same_curve(dir, again) &&
               same_model(dir, again);
    tap_ok(same && asker.told == asker.given && !asker.failed,
           "trial %d, world %d: %d commands%s, the same bits%s%s", number,
           world, asker.given, asker.may_set ? ", replayed" : "",
           asker.failed ? ": " : "", asker.what);
    fs_remove_tree(dir);
    fs_remove_tree(again);
}

int main(int argc, char **argv)
{
    int trials = argc > 1 ? atoi(argv[1]) : 12;
    const char *plain[3];
    for (int world = 1; world <= 3; world++) {
        plain[world - 1] = job_threads_dir();
        tap_ok(run(plain[world - 1], world, NULL, NULL),
               "world %d: a run that is asked nothing", world);
    }
    for (int i = 0; i < trials; i++)
        try_once(i, plain);
    return tap_done();
}
