#include "commands_case.h"

#include "tests/support/job_threads.h"
#include "train/checkpoint/checkpoint.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct curve curve_of(const char *dir)
{
    struct curve curve;
    curve.count = job_threads_column(dir, "loss", &curve.loss);
    job_threads_column(dir, "learning_rate", &curve.rate);
    return curve;
}

void curve_free(struct curve *curve)
{
    free(curve->loss);
    free(curve->rate);
}

bool same_curve(const char *a, const char *b)
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

bool verifies(const char *dir, int step)
{
    char path[PATH_MAX];
    struct checkpoint *checkpoint = NULL;
    ZD_PRINT(path, "%s/out/checkpoint-%06d", dir, step);
    bool ok = checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint) == ZD_OK &&
              checkpoint_state(checkpoint).step == step;
    checkpoint_close(checkpoint);
    return ok;
}

bool run(
        const char *dir, int world, const char *sets,
        struct commander *commander)
{
    return job_runs_observed(
            JOB, dir, world, commander ? &commander->observer : NULL,
            "train.max_steps=12 checkpoint.save_strategy=no %s", sets);
}

bool run_asked(
        const char *dir, int world, const char *sets, const char *commands)
{
    struct commander commander;
    commander_ask(&commander, commands);
    bool ran =
            run(dir, world, sets, &commander) && commander_all_done(&commander);
    commander_fini(&commander);
    return ran;
}

void add_set(
        struct commander *commander, int64_t step, enum train_setting_id id,
        double value)
{
    struct train_command *command = commander_add(commander, step, COMMAND_SET);
    command->given[id] = true;
    command->value[id] = value;
}
