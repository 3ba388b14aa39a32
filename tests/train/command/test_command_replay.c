/* test_command_replay.c - the events of a run are replayed: what was set while
 * it went on is set again, at the same steps. */
#include "base/file/fs.h"
#include "commands_case.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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
    const char *sets = "data.val_split=0.25 zero.stage=3";
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
    char replay[PATH_MAX + 64];
    snprintf(replay, sizeof replay, "%s %s", sets, events_of(dir));
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
    bool ran = run(dir, 2, "", &commander) && run(dir, 2, "", NULL);
    commander_fini(&commander);
    commander_init(&commander);
    add_set(&commander, 3, SET_LEARNING_RATE, 0.003);
    ran = ran && run(plain, 2, "", &commander);
    commander_fini(&commander);
    tap_ok(ran && same_curve(plain, dir) && same_model(plain, dir),
           "what came after the checkpoint is undone");
    ran = ran && run(again, 2, events_of(dir), NULL);
    tap_ok(ran && same_curve(dir, again) && same_model(dir, again),
           "and is not replayed");
}

static void bad_replays_are_told(void)
{
    char path[PATH_MAX], set[PATH_MAX + 16];
    const char *dir = job_threads_dir();
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
        bool ran = run(dir, 2, set, NULL);
        tap_ok(!ran && strcmp(zd_error_get()->code, cases[i].code) == 0,
               "refused: %s %s", zd_error_get()->what,
               strncmp(zd_error_get()->where, dir, strlen(dir)) == 0
                       ? zd_error_get()->where + strlen(dir)
                       : "");
    }
    zd_error_clear();
}

int main(void)
{
    a_run_is_replayed(1);
    a_run_is_replayed(3);
    what_was_undone_is_not_replayed();
    bad_replays_are_told();
    return tap_done();
}
