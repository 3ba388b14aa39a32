/* test_deadline.c - a run that must end in time: it saves, ends with 75, and
 * the next start goes on. */
#include "base/clock.h"
#include "base/file/fs.h"
#include "tests/support/commander.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/deadline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/deep.toml"

static void unit(void)
{
    struct deadline d;
    struct run_options none = {0}, after = {.deadline = 100},
                       given = {.deadline = 4000, .deadline_margin = 7};
    unsetenv("SLURM_JOB_END_TIME");
    deadline_init(&none, 1000, &d);
    tap_ok(d.at == 0 && !deadline_has_come(&d, 1e12, 1e6, 1e6),
           "no deadline never comes");
    deadline_init(&after, 1000, &d);
    tap_ok(d.at == 1100 && !deadline_has_come(&d, 1075, 10, 2) &&
                   deadline_has_come(&d, 1076, 10, 2),
           "by itself it comes two saves and two steps early");
    deadline_init(&given, 1000, &d);
    tap_ok(d.at == 5000 && !deadline_has_come(&d, 4992.5, 1e6, 1e6) &&
                   deadline_has_come(&d, 4993, 0, 0),
           "a margin that is given holds");
    setenv("SLURM_JOB_END_TIME", "2000", 1);
    deadline_init(&none, 1000, &d);
    bool is_slurm = d.at == 2000 && d.is_slurm;
    deadline_init(&given, 1000, &d);
    tap_ok(is_slurm && d.at == 5000 && !d.is_slurm,
           "Slurm's holds where the job has none");
    deadline_init(&none, 2000, &d);
    tap_ok(d.at == 0, "one of Slurm's that has passed is none");
    setenv("SLURM_JOB_END_TIME", "12:00", 1);
    deadline_init(&none, 1000, &d);
    tap_ok(d.at == 0, "nor is what makes no sense");
    unsetenv("SLURM_JOB_END_TIME");
    char met[128], missed[128];
    deadline_init(&after, 1000, &d);
    deadline_print(&d, 1099.5, met, sizeof met);
    deadline_print(&d, 1102.5, missed, sizeof missed);
    tap_ok(strcmp(met, "in time for the deadline 1970-01-01T00:18:20Z") == 0 &&
                   strcmp(missed,
                          "2.5 s after the deadline 1970-01-01T00:18:20Z") == 0,
           "a deadline that was missed is told as such: %s", missed);
}

/* Steps that the newest checkpoint of a stopped run holds; -1: none is sound.
 */
static int64_t steps_saved(const char *dir)
{
    char path[PATH_MAX], name[64];
    int64_t *steps, step = -1;
    int count;
    struct checkpoint *checkpoint = NULL;
    ZD_PRINT(path, "%s/out", dir);
    if (checkpoint_list(path, &steps, &count) != ZD_OK || count == 0)
        return -1;
    checkpoint_name(name, sizeof name, steps[0]);
    free(steps);
    ZD_PRINT(path, "%s/out/%s", dir, name);
    if (checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint) == ZD_OK)
        step = checkpoint_state(checkpoint).step;
    checkpoint_close(checkpoint);
    return step;
}

static enum zd_status run(
        const char *dir, int world, const char *deadline, const char *margin,
        struct commander *commander)
{
    const char *sets[] = {
            "train.max_steps=1000000",
            "checkpoint.save_steps=900000",
            "eval.eval_strategy=no",
            margin,
            deadline,
            NULL};
    return job_threads_run_observed(
            JOB, sets, world, dir, commander ? &commander->observer : NULL);
}

static void slurm_ends_it(void)
{
    char text[32];
    const char *dir = job_threads_dir();
    ZD_PRINT(text, "%.0f", clock_wall_seconds() + 100);
    setenv("SLURM_JOB_END_TIME", text, 1);
    bool stopped = run(dir, 2, NULL, "run.deadline_margin=200s", NULL) ==
                   ZD_ERR_STOPPED;
    tap_ok(stopped && steps_saved(dir) == 0,
           "SLURM_JOB_END_TIME within the margin: saved and stopped");
    unsetenv("SLURM_JOB_END_TIME");
}

enum { TRIES = 4 };

static const char *const deadlines[TRIES] = {
        "run.deadline=2s", "run.deadline=6s", "run.deadline=20s",
        "run.deadline=60s"};

/* A second of training; where that makes no step, on a machine that does other
 * things too, another run has more. */
static void it_comes_between_steps(int world)
{
    const char *dir = NULL;
    bool stopped = true;
    int64_t steps = 0;
    for (int try = 0; try < TRIES && stopped && steps == 0; try++) {
        if (try > 0)
            tap_again("world %d: no step within %s", world, deadlines[try - 1]);
        dir = job_threads_dir();
        stopped = run(dir, world, deadlines[try], "run.deadline_margin=1s",
                      NULL) == ZD_ERR_STOPPED;
        steps = steps_saved(dir);
    }
    double *loss;
    int rows = job_threads_column(dir, "loss", &loss);
    free(loss);
    tap_ok(stopped && steps > 0 && steps == rows,
           "world %d: saved after all of %lld steps", world, (long long)steps);
}

/* Here that second must reach the pause. */
static void it_comes_while_paused(void)
{
    struct commander commander;
    const char *dir = NULL;
    bool stopped = true, paused = false;
    for (int try = 0; try < TRIES && stopped && !paused; try++) {
        if (try > 0) {
            tap_again("no pause within %s", deadlines[try - 1]);
            commander_fini(&commander);
        }
        commander_ask(&commander, "3 pause");
        dir = job_threads_dir();
        stopped = run(dir, 2, deadlines[try], "run.deadline_margin=1s",
                      &commander) == ZD_ERR_STOPPED;
        paused = commander_saw(&commander, RUN_PAUSED);
    }
    tap_ok(stopped && paused && commander_all_done(&commander) &&
                   steps_saved(dir) == 3,
           "paused: saved where it held");
    commander_fini(&commander);
}

int main(void)
{
    job_threads_dir();
    unit();
    slurm_ends_it();
    it_comes_between_steps(1);
    it_comes_between_steps(3);
    it_comes_while_paused();
    return tap_done();
}
