/* test_commands.c - a run that is asked things: pauses, checkpoints,
 * evaluations and samples change no bit; what is set is kept; a stop leaves a
 * checkpoint; and each of it on all ranks at one step boundary. */
#include "base/fs.h"
#include "tests/support/commander.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* The exported weights of two runs, byte for byte. */
static bool same_model(const char *a, const char *b)
{
    char path[PATH_MAX], *x = NULL, *y = NULL;
    size_t x_bytes = 0, y_bytes = 0;
    snprintf(path, sizeof path, "%s/out/hf/model.safetensors", a);
    bool ok = fs_read_file(path, 1 << 28, &x, &x_bytes) == ZD_OK;
    snprintf(path, sizeof path, "%s/out/hf/model.safetensors", b);
    ok = ok && fs_read_file(path, 1 << 28, &y, &y_bytes) == ZD_OK;
    ok = ok && x_bytes == y_bytes && memcmp(x, y, x_bytes) == 0;
    free(x);
    free(y);
    return ok;
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

int main(void)
{
    for (int world = 1; world <= 3; world++)
        pauses_change_nothing(world);
    for (int world = 1; world <= 3; world++)
        stop_leaves_a_checkpoint(world);
    contradictions_are_told();
    return tap_done();
}
