/* test_commands.c - a run that is asked things: pauses, checkpoints,
 * evaluations and samples change no bit; a stop leaves a checkpoint; and each
 * of it on all ranks at one step boundary. */
#include "base/must.h"
#include "commands_case.h"
#include "tests/support/job_threads.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WORLD_MOST = 3 };

/* The folder of a run of the job as it is, which is never asked anything; NULL:
 * it failed. */
static const char *plain_run(int world)
{
    static const char *dirs[WORLD_MOST + 1];
    if (!dirs[world]) {
        const char *dir = job_threads_dir();
        dirs[world] = run(dir, world, "", NULL) ? dir : NULL;
    }
    return dirs[world];
}

/* Has the run in `dir` come to what the plain one has? */
static bool is_as_plain(const char *dir, int world)
{
    const char *plain = plain_run(world);
    return plain && same_curve(plain, dir) && same_model(plain, dir);
}

static void pauses_change_nothing(int world)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    const char *sets = "zero.stage=3";
    bool ran = run(plain, world, sets, NULL);
    commander_ask(
            &commander, "0 checkpoint, 3 pause, 3 checkpoint, 3 checkpoint, "
                        "3 resume, 7 pause, 7 resume");
    ran = ran && run(dir, world, sets, &commander);
    tap_ok(ran && commander_all_done(&commander),
           "world %d: all commands were done", world);
    tap_ok(same_curve(plain, dir) && same_model(plain, dir),
           "world %d: pauses and checkpoints change no bit", world);
    tap_ok(verifies(dir, 3) && commander_saw(&commander, RUN_PAUSED) &&
                   commander_saw(&commander, RUN_CHECKPOINTING) &&
                   commander.states[commander.state_count - 1] == RUN_DONE,
           "world %d: a checkpoint that verifies, with save_strategy no",
           world);
    commander_fini(&commander);
}

static void stop_leaves_a_checkpoint(int world)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_ask(&commander, "5 stop save");
    bool ran = run(dir, world, "", &commander);
    tap_ok(ran && commander_all_done(&commander) && verifies(dir, 5) &&
                   strcmp(commander.end.stopped_by, "request") == 0 &&
                   commander.end.step == 5 &&
                   commander.states[commander.state_count - 1] == RUN_STOPPED,
           "world %d: a stop ends well, with a checkpoint", world);
    commander_fini(&commander);
    ran = run(dir, world, "", NULL);
    tap_ok(ran && is_as_plain(dir, world),
           "world %d: the next start goes on from it, bit for bit", world);
}

/* A commander with something else to do at the moment that it is asked. */
struct meddler {
    struct commander commander;
    int asked_paused; /* times that it was asked while the run was held */
    int signal;
    struct rlimit before;
};

static bool next_then_signal(void *ctx, int64_t step, struct train_command *out)
{
    struct meddler *meddler = ctx;
    const struct commander *commander = &meddler->commander;
    bool is_held = commander->entries[0].done_count > 0;
    if (is_held && ++meddler->asked_paused == 2)
        kill(getpid(), meddler->signal); /* not to this thread alone */
    return !is_held &&
           commander->control.next(commander->control.ctx, step, out);
}

static void a_signal_ends_a_pause(int world, int signal)
{
    struct meddler meddler = {.signal = signal};
    struct commander *commander = &meddler.commander;
    const char *dir = job_threads_dir();
    commander_ask(commander, "5 pause");
    struct train_control control = {
            .ctx = &meddler,
            .next = next_then_signal,
            .done = commander->control.done};
    commander->observer.control = &control;
    run(dir, world, "", commander);
    tap_ok(zd_error_get()->status == ZD_OK && verifies(dir, 5) &&
                   commander->end.step == 5 &&
                   strcmp(commander->end.stopped_by, "signal") == 0,
           "world %d: a signal ends a run that is paused, with a checkpoint",
           world);
    bool ran = run(dir, world, "", NULL);
    tap_ok(ran && is_as_plain(dir, world), "world %d: which goes on from there",
           world);
    commander_fini(commander);
}

/* From the command on files may not grow; from its answer on they may. */
static bool next_on_full_disk(
        void *ctx, int64_t step, struct train_command *out)
{
    struct meddler *meddler = ctx;
    const struct train_control *control = &meddler->commander.control;
    struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    if (!control->next(control->ctx, step, out))
        return false;
    getrlimit(RLIMIT_FSIZE, &meddler->before);
    none.rlim_max = meddler->before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &none);
    return true;
}

static void done_on_full_disk(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct meddler *meddler = ctx;
    const struct train_control *control = &meddler->commander.control;
    setrlimit(RLIMIT_FSIZE, &meddler->before);
    control->done(control->ctx, command, step, error, result);
}

static void a_full_disk_is_told(int world)
{
    struct meddler meddler = {0};
    struct commander *commander = &meddler.commander;
    const char *dir = job_threads_dir();
    commander_init(commander);
    for (int i = 0; i < 4; i++) /* three in a row would end a run by itself */
        commander_add(commander, 5, COMMAND_CHECKPOINT);
    commander_add(commander, 7, COMMAND_STOP)->save = true;
    struct train_control control = {
            .ctx = &meddler,
            .next = next_on_full_disk,
            .done = done_on_full_disk};
    commander->observer.control = &control;
    bool ran = run(dir, world, "", commander);
    for (int i = 0; i < commander->count; i++)
        ran = ran && commander->entries[i].done_count == 1 &&
              commander->entries[i].error.status == ZD_ERR_IO;
    tap_ok(ran, "world %d: a checkpoint on a full disk is told: %s", world,
           commander->entries[0].error.what);
    tap_ok(is_as_plain(dir, world),
           "world %d: and the run goes on as it would have", world);
    commander_fini(commander);
}

static void contradictions_are_told(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_ask(&commander, "2 resume, 2 pause, 2 pause, 2 resume");
    bool ran = run(dir, 2, "", &commander);
    tap_ok(ran && strcmp(commander.entries[0].error.code, "E1003") == 0,
           "resume while running is told as wrong");
    tap_ok(ran && strcmp(commander.entries[2].error.code, "E1002") == 0,
           "pause while paused is told as wrong");
    commander_fini(&commander);
}

/* .. in the midst of a run and in a pause, at every world the same number, and
 * that which the job would have come to by itself. */
static void evaluates_and_samples(int world)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    const char *own =
            "data.val_split=0.25 eval.eval_strategy=steps eval.eval_steps=4 "
            "eval.eval_on_start=false control.socket=none zero.stage=3";
    const char *sets = "data.val_split=0.25 eval.eval_strategy=no "
                       "sample.max_new_tokens=8 zero.stage=3";
    bool ran = run(plain, world, own, NULL);
    commander_ask(
            &commander,
            "4 eval, 4 sample Once, 8 pause, 8 eval, 8 sample Once, "
            "8 resume");
    ran = ran && run(dir, world, sets, &commander);
    tap_ok(ran && commander_all_done(&commander) && same_curve(plain, dir) &&
                   same_model(plain, dir),
           "world %d: evaluations and samples on request change no bit", world);
    ZD_FREED double *theirs = NULL;
    int count = job_threads_column(plain, "eval_loss", &theirs);
    const struct commander_entry *e = commander.entries;
    tap_ok(count >= 2 &&
                   json_real_value(json_object_get(e[0].result, "eval_loss")) ==
                           theirs[0] &&
                   json_real_value(json_object_get(e[3].result, "eval_loss")) ==
                           theirs[1],
           "world %d: an evaluation on request is the job's own", world);
    json_t *samples = json_object_get(e[1].result, "samples");
    tap_ok(json_array_size(samples) == 1 &&
                   json_is_string(
                           json_object_get(json_array_get(samples, 0), "text")),
           "world %d: a sample is answered", world);
    commander_fini(&commander);
}

static void what_cannot_be_done_is_told(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_ask(&commander, "2 eval, 2 sample");
    memset(commander_add(&commander, 2, COMMAND_SAMPLE)->prompt, 'x',
           TRAIN_PROMPT_MAX - 1);
    bool ran = run(dir, 2, "", &commander);
    tap_ok(ran && strcmp(commander.entries[0].error.code, "E1010") == 0 &&
                   commander.entries[0].error.help[0],
           "no evaluation data: told, with what to do");
    tap_ok(ran && strcmp(commander.entries[1].error.code, "E1011") == 0,
           "no prompt: told");
    tap_ok(ran && strcmp(commander.entries[2].error.code, "E0463") == 0,
           "a prompt too long: told");
    tap_ok(is_as_plain(dir, 2), "and the run goes on as it would have");
    commander_fini(&commander);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__ /* ten times as slow */
    const int first = 3;
#else
    const int first = 1;
#endif
    for (int world = first; world <= WORLD_MOST; world++)
        pauses_change_nothing(world);
    for (int world = first; world <= WORLD_MOST; world++)
        stop_leaves_a_checkpoint(world);
    contradictions_are_told();
    if (first == 1) {
        a_signal_ends_a_pause(1, SIGTERM); /* a second one would kill */
        a_full_disk_is_told(1);
    }
    a_signal_ends_a_pause(3, SIGUSR1);
    a_full_disk_is_told(2);
    for (int world = first; world <= WORLD_MOST; world++)
        evaluates_and_samples(world);
    what_cannot_be_done_is_told();
    return tap_done();
}
