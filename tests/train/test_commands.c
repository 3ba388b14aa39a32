/* test_commands.c - a run that is asked things: pauses, checkpoints,
 * evaluations and samples change no bit; what is set is kept; a stop leaves a
 * checkpoint; and each of it on all ranks at one step boundary. */
#include "base/fs.h"
#include "tests/support/commander.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { STEPS = 12, SETS = 16 };

struct curve {
    double *loss, *rate;
    int count;
};

static struct curve curve_of(const char *dir)
{
    struct curve curve;
    curve.count = job_threads_column(dir, "loss", &curve.loss);
    job_threads_column(dir, "learning_rate", &curve.rate);
    return curve;
}

static void curve_free(struct curve *curve)
{
    free(curve->loss);
    free(curve->rate);
}

static bool same_curve(const char *a, const char *b)
{
    struct curve x = curve_of(a), y = curve_of(b);
    size_t bytes = (size_t)x.count * sizeof(double);
    bool same = x.count == STEPS && x.count == y.count &&
                memcmp(x.loss, y.loss, bytes) == 0 &&
                memcmp(x.rate, y.rate, bytes) == 0;
    curve_free(&x);
    curve_free(&y);
    return same;
}

static bool verifies(const char *dir, int step)
{
    char path[PATH_MAX];
    struct checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s/out/checkpoint-%06d", dir, step);
    bool ok = checkpoint_open(path, true, &checkpoint) == ZD_OK &&
              checkpoint_state(checkpoint).step == step;
    checkpoint_close(checkpoint);
    return ok;
}

static bool run(
        const char *dir, int world, const char *const *more,
        struct commander *commander)
{
    const char *sets[SETS + 4] = {
            "train.max_steps=12", "checkpoint.save_strategy=no"};
    int count = 2;
    for (; more && *more; more++)
        sets[count++] = *more;
    enum zd_status status = job_threads_run_observed(
            JOB, sets, world, dir, commander ? &commander->observer : NULL);
    return status == ZD_OK;
}

static void pauses_change_nothing(int world)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    const char *sets[] = {"zero.stage=3", NULL};
    bool ran = run(plain, world, sets, NULL);
    commander_init(&commander);
    commander_add(&commander, 0, COMMAND_CHECKPOINT);
    commander_add(&commander, 3, COMMAND_PAUSE);
    commander_add(&commander, 3, COMMAND_CHECKPOINT);
    commander_add(&commander, 3, COMMAND_CHECKPOINT);
    commander_add(&commander, 3, COMMAND_RESUME);
    commander_add(&commander, 7, COMMAND_PAUSE);
    commander_add(&commander, 7, COMMAND_RESUME);
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
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, world, NULL, NULL);
    commander_init(&commander);
    commander_add(&commander, 5, COMMAND_STOP)->save = true;
    ran = ran && run(dir, world, NULL, &commander);
    tap_ok(ran && commander_all_done(&commander) && verifies(dir, 5) &&
                   commander.end.on_request && commander.end.step == 5 &&
                   commander.states[commander.state_count - 1] == RUN_STOPPED,
           "world %d: a stop ends well, with a checkpoint", world);
    commander_fini(&commander);
    ran = run(dir, world, NULL, NULL);
    tap_ok(ran && same_curve(plain, dir) && same_model(plain, dir),
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
        raise(meddler->signal);
    return !is_held &&
           commander->control.next(commander->control.ctx, step, out);
}

static void a_signal_ends_a_pause(int world, int signal)
{
    struct meddler meddler = {.signal = signal};
    struct commander *commander = &meddler.commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, world, NULL, NULL);
    commander_init(commander);
    commander_add(commander, 5, COMMAND_PAUSE);
    struct train_control control = {
            .ctx = &meddler,
            .next = next_then_signal,
            .done = commander->control.done};
    commander->observer.control = &control;
    run(dir, world, NULL, commander);
    tap_ok(ran && zd_error_get()->status == ZD_OK && verifies(dir, 5) &&
                   commander->end.step == 5 && !commander->end.on_request,
           "world %d: a signal ends a run that is paused, with a checkpoint",
           world);
    ran = run(dir, world, NULL, NULL);
    tap_ok(ran && same_curve(plain, dir) && same_model(plain, dir),
           "world %d: which goes on from there", world);
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
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, world, NULL, NULL);
    commander_init(commander);
    for (int i = 0; i < 4; i++) /* three in a row would end a run by itself */
        commander_add(commander, 5, COMMAND_CHECKPOINT);
    commander_add(commander, 7, COMMAND_STOP)->save = true;
    struct train_control control = {
            .ctx = &meddler,
            .next = next_on_full_disk,
            .done = done_on_full_disk};
    commander->observer.control = &control;
    ran = ran && run(dir, world, NULL, commander);
    for (int i = 0; i < commander->count; i++)
        ran = ran && commander->entries[i].done_count == 1 &&
              commander->entries[i].error.status == ZD_ERR_IO;
    tap_ok(ran, "world %d: a checkpoint on a full disk is told: %s", world,
           commander->entries[0].error.what);
    tap_ok(same_curve(plain, dir) && same_model(plain, dir),
           "world %d: and the run goes on as it would have", world);
    commander_fini(commander);
}

static void contradictions_are_told(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_init(&commander);
    commander_add(&commander, 2, COMMAND_RESUME);
    commander_add(&commander, 2, COMMAND_PAUSE);
    commander_add(&commander, 2, COMMAND_PAUSE);
    commander_add(&commander, 2, COMMAND_RESUME);
    bool ran = run(dir, 2, NULL, &commander);
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
    const char *own[] = {
            "data.val_split=0.25",
            "eval.eval_strategy=steps",
            "eval.eval_steps=4",
            "eval.eval_on_start=false",
            "control.socket=none",
            "zero.stage=3",
            NULL};
    const char *sets[] = {
            "data.val_split=0.25", "eval.eval_strategy=no",
            "sample.max_new_tokens=8", "zero.stage=3", NULL};
    bool ran = run(plain, world, own, NULL);
    commander_init(&commander);
    commander_add(&commander, 4, COMMAND_EVAL);
    strcpy(commander_add(&commander, 4, COMMAND_SAMPLE)->prompt, "Once");
    commander_add(&commander, 8, COMMAND_PAUSE);
    commander_add(&commander, 8, COMMAND_EVAL);
    strcpy(commander_add(&commander, 8, COMMAND_SAMPLE)->prompt, "Once");
    commander_add(&commander, 8, COMMAND_RESUME);
    ran = ran && run(dir, world, sets, &commander);
    tap_ok(ran && commander_all_done(&commander) && same_curve(plain, dir) &&
                   same_model(plain, dir),
           "world %d: evaluations and samples on request change no bit", world);
    double *theirs;
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
    free(theirs);
    commander_fini(&commander);
}

static void what_cannot_be_done_is_told(void)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, 2, NULL, NULL);
    commander_init(&commander);
    commander_add(&commander, 2, COMMAND_EVAL);
    commander_add(&commander, 2, COMMAND_SAMPLE);
    memset(commander_add(&commander, 2, COMMAND_SAMPLE)->prompt, 'x',
           TRAIN_PROMPT_MAX - 1);
    ran = ran && run(dir, 2, NULL, &commander);
    tap_ok(ran && strcmp(commander.entries[0].error.code, "E1010") == 0 &&
                   commander.entries[0].error.help[0],
           "no evaluation data: told, with what to do");
    tap_ok(ran && strcmp(commander.entries[1].error.code, "E1011") == 0,
           "no prompt: told");
    tap_ok(ran && strcmp(commander.entries[2].error.code, "E0463") == 0,
           "a prompt too long: told");
    tap_ok(same_curve(plain, dir) && same_model(plain, dir),
           "and the run goes on as it would have");
    commander_fini(&commander);
}

static void add_set(
        struct commander *commander, int64_t step, enum train_setting_id id,
        double value)
{
    struct train_command *command = commander_add(commander, step, COMMAND_SET);
    command->given[id] = true;
    command->value[id] = value;
}

static void a_rate_is_set_exactly(void)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, 2, NULL, NULL);
    commander_init(&commander);
    add_set(&commander, 4, SET_LEARNING_RATE, 1e-3 / 3);
    ran = ran && run(dir, 2, NULL, &commander);
    struct curve before = curve_of(plain), after = curve_of(dir);
    bool same = ran && after.count == STEPS;
    for (int i = 0; same && i < STEPS; i++) {
        double scale = i < 4 ? 1 : 1e-3 / 3 / before.rate[4];
        same = fabs(after.rate[i] / (before.rate[i] * scale) - 1) < 1e-14;
    }
    tap_ok(commander_all_done(&commander) && same && after.rate[4] == 1e-3 / 3,
           "the next step has the rate that was set, the rest is scaled");
    tap_ok(memcmp(before.loss, after.loss, 5 * sizeof(double)) == 0 &&
                   before.loss[6] != after.loss[6],
           "and it takes effect there");
    curve_free(&before);
    curve_free(&after);
    commander_fini(&commander);
}

/* The rest of the run is that of a job which has this batch from there on. */
static void accumulation_changes(int world, const char *stage)
{
    struct commander commander;
    const char *resumed = job_threads_dir(), *dir = job_threads_dir();
    const char *first[] = {stage, "run.stop_after=5", NULL};
    const char *rest[] = {
            stage, "train.global_batch_size=72",
            "train.gradient_accumulation_steps=3", NULL};
    const char *plain[] = {stage, NULL};
    bool ran =
            run(resumed, world, first, NULL) && run(resumed, world, rest, NULL);
    commander_init(&commander);
    add_set(&commander, 5, SET_ACCUMULATION, 3);
    ran = ran && run(dir, world, plain, &commander);
    tap_ok(ran && commander_all_done(&commander) && same_curve(resumed, dir) &&
                   same_model(resumed, dir),
           "world %d, %s: three micro-batches from step 6 on", world, stage);
    commander_fini(&commander);
}

/* Set, stop, start again: as if it had not stopped. */
static void settings_are_kept(int world)
{
    struct commander commander;
    const char *whole = job_threads_dir(), *dir = job_threads_dir();
    bool ran = true;
    for (int i = 0; i < 2; i++) {
        commander_init(&commander);
        add_set(&commander, 3, SET_LEARNING_RATE, 0.004);
        add_set(&commander, 3, SET_MAX_GRAD_NORM, 0.05);
        add_set(&commander, 6, SET_ACCUMULATION, 2);
        if (i == 1)
            commander_add(&commander, 6, COMMAND_STOP)->save = true;
        ran = ran && run(i ? dir : whole, world, NULL, &commander) &&
              commander_all_done(&commander);
        commander_fini(&commander);
    }
    ran = ran && run(dir, world, NULL, NULL);
    tap_ok(ran && same_curve(whole, dir) && same_model(whole, dir),
           "world %d: what was set is kept over stop and start", world);
}

/* .. also with another number of ranks: the same global batch, the same rate */
static void settings_move(int from, int to)
{
    struct commander commander;
    const char *whole = job_threads_dir(), *dir = job_threads_dir();
    bool ran = true;
    for (int i = 0; i < 2; i++) {
        commander_init(&commander);
        add_set(&commander, 3, SET_LEARNING_RATE, 0.004);
        add_set(&commander, 3, SET_ACCUMULATION, 2);
        if (i == 1)
            commander_add(&commander, 7, COMMAND_STOP)->save = true;
        ran = ran && run(i ? dir : whole, from, NULL, &commander);
        commander_fini(&commander);
    }
    ran = ran && run(dir, to, NULL, NULL);
    struct curve a = curve_of(whole), b = curve_of(dir);
    double worst = ran && a.count == STEPS && b.count == STEPS ? 0 : INFINITY;
    for (int i = 0; i < STEPS && worst < 1; i++) {
        worst = fmax(worst, fabs(a.loss[i] - b.loss[i]) / a.loss[i]);
        worst = fmax(worst, a.rate[i] == b.rate[i] ? 0 : 1);
    }
    tap_ok(worst < 1e-5, "set at %d ranks, resumed at %d: %.2g", from, to,
           worst);
    curve_free(&a);
    curve_free(&b);
}

/* The job file, when it is edited after that, holds again. */
static void an_edited_key_holds(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    const char *edited[] = {
            "optim.learning_rate=0.003", "optim.lr_scheduler_type=constant",
            NULL};
    commander_init(&commander);
    add_set(&commander, 3, SET_LEARNING_RATE, 0.004);
    add_set(&commander, 3, SET_MAX_GRAD_NORM, 0.05);
    commander_add(&commander, 7, COMMAND_STOP)->save = true;
    bool ran = run(dir, 1, NULL, &commander);
    commander_fini(&commander);
    commander_init(&commander);
    add_set(&commander, 9, SET_LOGGING_STEPS, 7);
    ran = ran && run(dir, 1, edited, &commander);
    struct curve curve = curve_of(dir);
    const json_t *settings = commander.entries[0].result;
    tap_ok(ran && curve.rate[7] == 0.003 && curve.rate[11] == 0.003,
           "a key that was edited since then holds again");
    tap_ok(json_real_value(json_object_get(settings, "max_grad_norm")) ==
                           0.05 &&
                   json_integer_value(
                           json_object_get(settings, "logging_steps")) == 7,
           "the others stay set");
    curve_free(&curve);
    commander_fini(&commander);
}

static void wrong_settings_are_told(void)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    static const char *const codes[] = {"E1005", "E1005", "E1006",
                                        "E1006", "E1008", "E1008"};
    const char *sets[] = {"train.dtype=bf16", NULL};
    bool ran = run(plain, 2, sets, NULL);
    commander_init(&commander);
    add_set(&commander, 2, SET_LEARNING_RATE, 0);
    add_set(&commander, 2, SET_LOGGING_STEPS, 1.5);
    add_set(&commander, 2, SET_SAVE_STEPS, 5);
    add_set(&commander, 2, SET_EVAL_STEPS, 5);
    add_set(&commander, 2, SET_ACCUMULATION, 2); /* gradients in bf16 */
    add_set(&commander, 2, SET_ACCUMULATION, 1 << 20);
    ran = ran && run(dir, 2, sets, &commander);
    for (int i = 0; i < commander.count; i++)
        tap_ok(ran && strcmp(commander.entries[i].error.code, codes[i]) == 0,
               "refused: %s", commander.entries[i].error.what);
    tap_ok(same_curve(plain, dir) && same_model(plain, dir),
           "what is refused changes nothing");
    commander_fini(&commander);
}

static const char *events_of(const char *dir)
{
    static char set[PATH_MAX];
    snprintf(set, sizeof set, "run.replay=%s/out/events.jsonl", dir);
    return set;
}

/* What was set while a run went on, over a stop and a start, is set again. */
static void a_run_is_replayed(int world)
{
    struct commander commander;
    const char *dir = job_threads_dir(), *again = job_threads_dir();
    const char *sets[] = {"data.val_split=0.25", "zero.stage=3", NULL};
    commander_init(&commander);
    commander_add(&commander, 2, COMMAND_CHECKPOINT);
    add_set(&commander, 4, SET_LEARNING_RATE, 0.001 / 7);
    commander_add(&commander, 5, COMMAND_EVAL);
    add_set(&commander, 6, SET_ACCUMULATION, 3);
    commander_add(&commander, 8, COMMAND_STOP)->save = true;
    bool ran = run(dir, world, sets, &commander);
    commander_fini(&commander);
    commander_init(&commander);
    add_set(&commander, 8, SET_MAX_GRAD_NORM, 0.02);
    ran = ran && run(dir, world, sets, &commander);
    commander_fini(&commander);
    const char *replay[] = {sets[0], sets[1], events_of(dir), NULL};
    ran = ran && run(again, world, replay, NULL);
    tap_ok(ran && same_curve(dir, again) && same_model(dir, again),
           "world %d: a replay comes to the same weights", world);
    tap_ok(verifies(again, 2), "world %d: and saves where it was saved", world);
}

/* A stop without a checkpoint loses what came after the last one. */
static void what_was_undone_is_not_replayed(void)
{
    struct commander commander;
    const char *dir = job_threads_dir(), *again = job_threads_dir();
    const char *plain = job_threads_dir();
    commander_init(&commander);
    add_set(&commander, 3, SET_LEARNING_RATE, 0.003);
    commander_add(&commander, 3, COMMAND_CHECKPOINT);
    add_set(&commander, 3, SET_MAX_GRAD_NORM, 0.02);
    add_set(&commander, 6, SET_LEARNING_RATE, 0.001);
    commander_add(&commander, 8, COMMAND_STOP);
    bool ran = run(dir, 2, NULL, &commander) && run(dir, 2, NULL, NULL);
    commander_fini(&commander);
    commander_init(&commander);
    add_set(&commander, 3, SET_LEARNING_RATE, 0.003);
    ran = ran && run(plain, 2, NULL, &commander);
    commander_fini(&commander);
    tap_ok(ran && same_curve(plain, dir) && same_model(plain, dir),
           "what came after the checkpoint is undone");
    const char *replay[] = {events_of(dir), NULL};
    ran = ran && run(again, 2, replay, NULL);
    tap_ok(ran && same_curve(dir, again) && same_model(dir, again),
           "and is not replayed");
}

static void bad_replays_are_told(void)
{
    char path[PATH_MAX], set[PATH_MAX + 16];
    const char *dir = job_threads_dir();
    const char *sets[] = {set, NULL};
    static const struct {
        const char *text, *code;
    } cases[] = {
            {NULL, "E1012"},
            {"{\"id\":1,\"event\":\"state\",\"step\":0}\nnot this\n", "E1013"},
            {"{\"id\":1,\"step\":0}\n", "E1013"},
            {"{\"id\":1,\"event\":\"command\",\"step\":0,"
             "\"command\":\"dance\"}\n",
             "E1013"},
            {"{\"id\":1,\"event\":\"command\",\"step\":0,"
             "\"command\":\"set\",\"learning_rate\":\"much\"}\n",
             "E1013"},
            {"{\"id\":1,\"event\":\"resumed\",\"step\":0}\n", "E1013"},
    };
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    snprintf(set, sizeof set, "run.replay=%s", path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].text)
            fs_write_file(path, cases[i].text, strlen(cases[i].text));
        bool ran = run(dir, 2, sets, NULL);
        tap_ok(!ran && strcmp(zd_error_get()->code, cases[i].code) == 0,
               "refused: %s %s", zd_error_get()->what,
               strncmp(zd_error_get()->where, dir, strlen(dir)) == 0
                       ? zd_error_get()->where + strlen(dir)
                       : "");
    }
    zd_error_clear();
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "replay") == 0) {
        a_run_is_replayed(1);
        a_run_is_replayed(3);
        what_was_undone_is_not_replayed();
        bad_replays_are_told();
        return tap_done();
    }
    if (strcmp(part, "set") == 0) {
        a_rate_is_set_exactly();
        for (int world = 1; world <= 3; world++)
            accumulation_changes(world, "zero.stage=3");
        accumulation_changes(2, "zero.stage=1");
        for (int world = 1; world <= 3; world++)
            settings_are_kept(world);
        settings_move(1, 2);
        settings_move(3, 2);
        an_edited_key_holds();
        wrong_settings_are_told();
        return tap_done();
    }
    for (int world = 1; world <= 3; world++)
        pauses_change_nothing(world);
    for (int world = 1; world <= 3; world++)
        stop_leaves_a_checkpoint(world);
    contradictions_are_told();
    a_signal_ends_a_pause(1, SIGTERM); /* a second one would kill */
    a_signal_ends_a_pause(3, SIGUSR1);
    a_full_disk_is_told(1);
    a_full_disk_is_told(2);
    for (int world = 1; world <= 3; world++)
        evaluates_and_samples(world);
    what_cannot_be_done_is_told();
    return tap_done();
}
