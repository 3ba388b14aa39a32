/* test_command_settings.c - what is set while a run goes on takes effect at a
 * step boundary, is kept over stop and start, and holds until its key is
 * edited. */
#include "commands_case.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <math.h>
#include <string.h>

static void a_rate_is_set_exactly(void)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, 2, "", NULL);
    commander_init(&commander);
    add_set(&commander, 4, SET_LEARNING_RATE, 1e-3 / 3);
    ran = ran && run(dir, 2, "", &commander);
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

/* Is the sentence under that key of the command's result this one? NULL: there
 * is none. */
static bool tells(
        const struct commander *commander, int at, const char *key,
        const char *wanted)
{
    const json_t *result = commander->entries[at].result;
    const char *note = json_string_at(result, key);
    bool same = wanted ? note && strcmp(note, wanted) == 0 : !note;
    if (!same)
        printf("# %s\n# not %s\n", note ? note : "none",
               wanted ? wanted : "none");
    return same;
}

/* During the warm-up the peak is set; the run may be resumed in between. */
static void a_peak_is_set_in_the_warmup(void)
{
    struct commander commander;
    char rises[256], tenfold[160];
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    const char *warm = "optim.warmup_steps=6";
    const char *part = "optim.warmup_steps=6 run.stop_after=4";
    bool ran = run(plain, 1, warm, NULL);
    struct curve before = curve_of(plain);
    ran = ran && before.count == STEPS;
    double peak = ran ? 20 * before.rate[5] : 0;
    commander_init(&commander);
    add_set(&commander, 1, SET_LEARNING_RATE, 3e-4);
    add_set(&commander, 2, SET_LEARNING_RATE, peak);
    add_set(&commander, 3, SET_MAX_GRAD_NORM, 0.5);
    ran = ran && run(dir, 1, part, &commander) && run(dir, 1, warm, NULL);
    struct curve curve = curve_of(dir);
    ran = ran && curve.count == STEPS;
    bool scaled = ran && curve.rate[5] == peak;
    for (int i = 2; scaled && i < STEPS; i++)
        scaled = fabs(curve.rate[i] / (20 * before.rate[i]) - 1) < 1e-14;
    tap_ok(scaled && fabs(curve.rate[1] - 3e-4 / 3) < 1e-18,
           "a rate set in the warm-up is its peak, also after a resume");
    ZD_PRINT(
            rises,
            "learning_rate is %.4g at step 3, warms up to %.4g at step 6, "
            "decays to %.4g at step 12",
            ran ? curve.rate[2] : 0, peak, ran ? curve.rate[11] : 0);
    ZD_PRINT(
            tenfold, "learning_rate rises %.3g-fold, from 0.0003 to %.4g",
            peak / 3e-4, peak);
    const json_t *result = commander.entries[1].result;
    tap_ok(ran && tells(&commander, 1, "note", rises) &&
                   json_number_value(json_object_get(
                           result, "peak_learning_rate")) == peak &&
                   tells(&commander, 1, "warning", tenfold) &&
                   tells(&commander, 0, "warning", NULL) &&
                   tells(&commander, 2, "note", NULL),
           "the next rate, the peak and the last are told, and a tenfold rise");
    curve_free(&before);
    curve_free(&curve);
    commander_fini(&commander);
}

/* What is said of the rates is what the steps have. */
static void the_answer_tells_what_the_schedule_makes_of_it(void)
{
    struct commander commander;
    char falls[256];
    const char *dir = job_threads_dir();
    const char *constant = "optim.lr_scheduler_type=constant";
    commander_ask(&commander, "9 learning_rate 3e-4");
    bool ran = run(dir, 1, "", &commander);
    struct curve curve = curve_of(dir);
    ran = ran && curve.count == STEPS;
    ZD_PRINT(
            falls,
            "learning_rate is 0.0003 at step 10, decays to %.4g at step 12",
            ran ? curve.rate[11] : 0);
    const json_t *result = commander.entries[0].result;
    tap_ok(ran && curve.rate[11] < curve.rate[9] &&
                   tells(&commander, 0, "note", falls) &&
                   json_is_null(json_object_get(result, "peak_learning_rate")),
           "after the warm-up, the next and the last");
    curve_free(&curve);
    commander_fini(&commander);

    commander_ask(&commander, "9 learning_rate 3e-4");
    tap_ok(run(job_threads_dir(), 1, constant, &commander) &&
                   tells(&commander, 0, "note", NULL),
           "a rate that stays needs no word");
    commander_fini(&commander);
}

static void the_answer_tells_the_global_batch(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_ask(&commander, "5 gradient_accumulation_steps 3");
    bool ran = run(dir, 2, "", &commander);
    const json_t *result = commander.entries[0].result;
    tap_ok(ran && json_integer_at(result, "global_batch_size") ==
                           3 * json_integer_at(
                                       json_object_get(result, "before"),
                                       "global_batch_size"),
           "three micro-batches: the global batch before and after");
    commander_fini(&commander);
}

/* The rest of the run is that of a job which has this batch from there on. */
static void accumulation_changes(int world, const char *stage)
{
    const char *resumed = job_threads_dir(), *dir = job_threads_dir();
    char first[64], rest[160];
    ZD_PRINT(first, "%s run.stop_after=5", stage);
    ZD_PRINT(
            rest,
            "%s train.global_batch_size=72 "
            "train.gradient_accumulation_steps=3",
            stage);
    bool ran = run(resumed, world, first, NULL) &&
               run(resumed, world, rest, NULL) &&
               run_asked(dir, world, stage, "5 gradient_accumulation_steps 3");
    tap_ok(ran && same_curve(resumed, dir) && same_model(resumed, dir),
           "world %d, %s: three micro-batches from step 6 on", world, stage);
}

/* Set, stop, start again: as if it had not stopped. */
static void settings_are_kept(int world)
{
#define SET                                                                    \
    "3 learning_rate 0.004, 3 max_grad_norm 0.05, "                            \
    "6 gradient_accumulation_steps 2"
    const char *whole = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run_asked(whole, world, "", SET) &&
               run_asked(dir, world, "", SET ", 6 stop save") &&
               run(dir, world, "", NULL);
#undef SET
    tap_ok(ran && same_curve(whole, dir) && same_model(whole, dir),
           "world %d: what was set is kept over stop and start", world);
}

/* By layer a step has room for as many micro-batches as are planned. */
static void more_micro_batches_than_by_layer(void)
{
#define SET "3 gradient_accumulation_steps 18"
    const char *whole = job_threads_dir(), *dir = job_threads_dir();
    const char *alone = job_threads_dir();
    const char *sets = "offload.optimizer=cpu offload.params=cpu "
                       "train.gradient_checkpointing=full "
                       "train.global_batch_size=16 data.cutoff_len=8 "
                       "train.gradient_accumulation_steps=16";
    char first[300];
    ZD_PRINT(first, "%s train.accumulation_order=depth_first", sets);
    bool ran = run_asked(whole, 1, first, SET) &&
               run_asked(dir, 1, first, SET ", 6 stop save") &&
               run(dir, 1, sets, NULL) && run(alone, 1, sets, NULL);
#undef SET
    json_auto_t *plan = plan_check_open(alone);
    const char *order = json_string_at(
            json_object_get(plan, "layout"), "accumulation_order");
    tap_ok(ran && order && strcmp(order, "breadth_first") == 0 &&
                   same_curve(whole, dir) && same_model(whole, dir),
           "a run whose micro-batches were set resumes by any order");
}

/* .. also with another number of ranks: the same global batch, the same rate */
static void settings_move(
        int from, int to, const char *sets, const char *set, double most)
{
    const char *whole = job_threads_dir(), *dir = job_threads_dir();
    char asked[128];
    ZD_PRINT(asked, "%s, 7 stop save", set);
    bool ran = run_asked(whole, from, sets, set) &&
               run_asked(dir, from, sets, asked) && run(dir, to, sets, NULL);
    double worst = column_difference(whole, dir, "loss");
    tap_ok(ran && worst < most &&
                   same_column(whole, dir, "learning_rate", STEPS),
           "set at %d ranks, resumed at %d: %.2g", from, to, worst);
}

/* The job alone would make one micro-batch of a step there, whose gradients are
 * bf16. */
static void settings_move_in_bf16(void)
{
    settings_move(
            1, 3,
            "train.dtype=bf16 train.global_batch_size=12 "
            "train.per_device_train_batch_size=4",
            "3 gradient_accumulation_steps 6", 1e-3);
}

/* The job file, when it is edited after that, holds again. */
static void an_edited_key_holds(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    const char *edited =
            "optim.learning_rate=0.003 optim.lr_scheduler_type=constant";
    bool ran = run_asked(
            dir, 1, "",
            "3 learning_rate 0.004, 3 max_grad_norm 0.05, 7 stop save");
    commander_ask(&commander, "9 logging_steps 7");
    ran = ran && run(dir, 1, edited, &commander);
    struct curve curve = curve_of(dir);
    const json_t *settings = commander.entries[0].result;
    tap_ok(ran && curve.rate[7] == 0.003 && curve.rate[11] == 0.003,
           "a key that was edited since then holds again");
    tap_ok(json_real_value(json_object_get(settings, "max_grad_norm")) ==
                           0.05 &&
                   json_integer_at(settings, "logging_steps") == 7,
           "the others stay set");
    curve_free(&curve);
    commander_fini(&commander);
}

/* A stop without a checkpoint loses what came after the last one. */
static void what_came_after_a_checkpoint_is_undone(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    bool ran = run_asked(
                       dir, 2, "",
                       "3 learning_rate 0.003, 3 checkpoint, 3 max_grad_norm "
                       "0.02, 6 learning_rate 0.001, 8 stop") &&
               run(dir, 2, "", NULL) &&
               run_asked(plain, 2, "", "3 learning_rate 0.003");
    tap_ok(ran && same_curve(plain, dir) && same_model(plain, dir),
           "what came after the checkpoint is undone");
}

static void wrong_settings_are_told(void)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    static const char *const codes[] = {"E1005", "E1005", "E1006",
                                        "E1006", "E1008", "E1008"};
    const char *sets = "train.dtype=bf16";
    bool ran = run(plain, 2, sets, NULL);
    /* gradients are in bf16 */
    commander_ask(
            &commander,
            "2 learning_rate 0, 2 logging_steps 1.5, 2 save_steps 5, "
            "2 eval_steps 5, 2 gradient_accumulation_steps 2, "
            "2 gradient_accumulation_steps 1048576");
    ran = ran && run(dir, 2, sets, &commander);
    for (int i = 0; i < commander.count; i++)
        tap_ok(ran && strcmp(commander.entries[i].error.code, codes[i]) == 0,
               "refused: %s", commander.entries[i].error.what);
    tap_ok(same_curve(plain, dir) && same_model(plain, dir),
           "what is refused changes nothing");
    commander_fini(&commander);
}

int main(void)
{
    a_rate_is_set_exactly();
    a_peak_is_set_in_the_warmup();
    the_answer_tells_what_the_schedule_makes_of_it();
    the_answer_tells_the_global_batch();
    for (int world = 1; world <= 3; world++)
        accumulation_changes(world, "zero.stage=3");
    accumulation_changes(2, "zero.stage=1");
    for (int world = 1; world <= 3; world++)
        settings_are_kept(world);
    more_micro_batches_than_by_layer();
    static const char twice[] =
            "3 learning_rate 0.004, 3 gradient_accumulation_steps 2";
    settings_move(1, 2, "", twice, 1e-5);
    settings_move(3, 2, "", twice, 1e-5);
    settings_move_in_bf16();
    an_edited_key_holds();
    what_came_after_a_checkpoint_is_undone();
    wrong_settings_are_told();
    return tap_done();
}
