#include "daemon/state/messages.h"
#include "daemon/state/run_state.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct train_job job;
static struct run_state *state;

static void setup(void)
{
    job = train_job_default();
    job.job.name = "test";
    job.job.run_name = "";
    job.job.output_dir = "/tmp/nowhere";
    state = run_state_create(&job, NULL);
}

static void teardown(void)
{
    run_state_destroy(state);
}

static const struct kept_event *take(
        enum message_kind kind, const void *payload, size_t bytes)
{
    return run_state_take(state, kind, payload);
}

static void take_banner(int64_t first_step)
{
    struct message_banner banner = {
            .facts.world = 2,
            .facts.per_device = 4,
            .accumulation = 2,
            .global_batch = 16,
            .max_steps = 100,
            .facts.samples_per_epoch = 160,
            .facts.first_step = first_step,
            .samples_taken = 16 * first_step,
            .eval_loss = NAN,
            .best_eval_loss = NAN,
            .settings = {0.25, 1.0, 2, 10, 500, NAN}};
    take(MESSAGE_BANNER, &banner, sizeof banner);
}

static void take_step(int64_t step, double loss)
{
    struct train_step_report report = {
            .step = step,
            .max_steps = 100,
            .loss = loss,
            .grad_norm = 1.5,
            .learning_rate = 0.25,
            .tokens = 1000,
            .step_seconds = 0.5,
            .tokens_per_second = 2000,
            .settings = {0.25, 1.0, 2, 10, 500, NAN},
            .global_batch = 16};
    take(MESSAGE_STEP, &report, sizeof report);
}

static int64_t last_id;

static void tell(
        const char *kind, int64_t step, double time, const char *members)
{
    char bytes[512], text[300];
    struct message_event event = {.id = ++last_id, .step = step, .time = time};
    snprintf(
            text, sizeof text, "{\"id\": %lld, \"step\": %lld, \"time\": %g%s}",
            (long long)event.id, (long long)step, time, members);
    snprintf(event.kind, sizeof event.kind, "%s", kind);
    memcpy(bytes, &event, sizeof event);
    strcpy(bytes + sizeof event, text);
    const struct kept_event *kept =
            take(MESSAGE_EVENT, bytes, sizeof event + strlen(text) + 1);
    cr_assert_not_null(kept);
    cr_expect_eq(kept->id, last_id);
    cr_expect_str_eq(kept->text, text);
}

static void tell_state(enum train_run_state new, double time)
{
    char members[64];
    snprintf(
            members, sizeof members, ", \"state\": \"%s\"",
            train_run_state_name(new));
    tell("state", 1, time, members);
}

static double number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    cr_expect_not_null(value, "no %s", key);
    return json_is_null(value) ? NAN : json_number_value(value);
}

static int series(const char *name)
{
    return run_series_find(name, strlen(name));
}

TestSuite(run_state, .init = setup, .fini = teardown);

Test(run_state, before_the_banner_everything_unknown_is_null)
{
    json_t *status = run_state_status(state);
    cr_expect_str_eq(
            json_string_value(json_object_get(status, "state")), "starting");
    static const char *const keys[] = {
            "max_steps",
            "loss",
            "eval_loss",
            "learning_rate",
            "epoch",
            "tokens_per_second",
            "eta_seconds",
            "world",
            "parameters",
            "mfu",
            "trainable_parameters",
            "all_parameters",
            "bad_rows",
            "socket",
            "deadline",
            "last_checkpoint",
            "last_checkpoint_step",
            "loss_scale"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        cr_expect(
                json_is_null(json_object_get(status, keys[i])), "%s", keys[i]);
    cr_expect_eq(number(status, "step"), 0);
    json_decref(status);
}

Test(run_state, steps_are_counted_and_the_eta_falls)
{
    take_banner(0);
    cr_expect_eq(state->state, RUN_RUNNING);
    take_step(1, 3.0);
    double eta = run_state_eta(state);
    cr_expect_float_eq(eta, 49.5, 1e-9);
    take_step(2, NAN);
    cr_expect_lt(run_state_eta(state), eta);
    json_t *status = run_state_status(state);
    cr_expect_eq(number(status, "loss"), 3.0, "the last finite one");
    cr_expect_eq(number(status, "step"), 2);
    cr_expect_eq(number(status, "tokens"), 2000);
    cr_expect_eq(number(status, "samples"), 32);
    cr_expect_float_eq(number(status, "epoch"), 0.2, 1e-12);
    cr_expect_float_eq(number(status, "tokens_per_second"), 2000, 1e-9);
    json_decref(status);
    cr_expect_eq(state->series[series("train/loss")].count, 1);
    cr_expect_eq(state->series[series("train/grad_norm")].count, 2);
}

Test(run_state, a_resumed_run_begins_with_its_rows)
{
    struct resumed_rows *rows = calloc(1, sizeof *rows);
    for (int i = 1; i <= 40; i++)
        history_add(&rows->series[series("train/loss")], i, i);
    struct message_banner banner = {
            .facts.world = 1,
            .max_steps = 100,
            .facts.first_step = 40,
            .rows = rows,
            .eval_loss = 2.5,
            .best_eval_loss = 2.25,
            .resumed_from = "out/checkpoint-000040"};
    take(MESSAGE_BANNER, &banner, sizeof banner);
    cr_expect_eq(state->series[series("train/loss")].count, 40);
    cr_expect(isnan(run_state_eta(state)) || run_state_eta(state) > 0);
    take_step(41, 1.0);
    json_t *status = run_state_status(state);
    cr_expect_eq(number(status, "last_checkpoint_step"), 40);
    cr_expect_eq(number(status, "best_eval_loss"), 2.25);
    cr_expect_eq(number(status, "step"), 41);
    json_decref(status);
    cr_expect_eq(state->series[series("train/loss")].count, 41);
}

/* The banner comes after the first events of its process. */
Test(run_state, a_resumed_run_begins_with_its_events_and_samples)
{
    static const char *const before[] = {
            "{\"id\": 1, \"event\": \"sample\", \"step\": 40, \"time\": 5.5, "
            "\"prompt\": \"In\", \"text\": \" the\"}",
            "{\"id\": 2, \"event\": \"sample\", \"step\": 41, \"time\": 6.5, "
            "\"prompt\": \"In\", \"text\": \" vain\"}"};
    struct past *past = calloc(1, sizeof *past);
    for (int i = 0; i < 2; i++)
        past_add(
                past, &(struct kept_event){
                              .id = i + 1,
                              .step = 40 + i,
                              .kind = "sample",
                              .text = (char *)(uintptr_t)before[i]});
    struct message_banner banner = {
            .facts.first_step = 40,
            .eval_loss = NAN,
            .best_eval_loss = NAN,
            .past = past,
            .resumed_from = "out/checkpoint-000040"};
    last_id = 2;
    tell("resumed", 40, 7, ", \"from\": \"out\", \"after\": 1");
    take(MESSAGE_BANNER, &banner, sizeof banner);
    tell("eval", 40, 7, "");
    cr_assert_eq(state->events.count, 3);
    cr_expect_eq(state->events.events[0].id, 1);
    cr_expect_eq(state->events.events[1].id, 3);
    cr_expect_eq(state->events.events[2].id, 4);
    json_t *json = run_state_samples(state, 100);
    json_t *samples = json_object_get(json, "samples");
    cr_assert_eq(json_array_size(samples), 1, "the other is made again");
    cr_expect_eq(number(json_array_get(samples, 0), "step"), 40);
    cr_expect_eq(number(json_array_get(samples, 0), "time"), 5.5);
    json_decref(json);
}

Test(run_state, old_events_and_warnings_are_dropped)
{
    char text[64];
    for (int i = 1; i <= 2 * EVENTS_KEPT + 100; i++) {
        snprintf(text, sizeof text, ", \"message\": \"m%d\"", i);
        tell(i % 10 ? "eval" : "warning", 0, 7, text);
    }
    const struct past *past = &state->events;
    cr_expect_eq(past->count, EVENTS_KEPT + 100);
    cr_expect_eq(past->events[0].id, EVENTS_KEPT + 1);
    cr_expect_eq(past_after(past, 0), 0);
    cr_expect_eq(past_after(past, EVENTS_KEPT + 1), 1);
    cr_expect_eq(past_after(past, 2 * EVENTS_KEPT + 100), past->count);
    json_t *status = run_state_status(state);
    json_t *warnings = json_object_get(status, "warnings");
    cr_expect_eq(json_array_size(warnings), WARNINGS_KEPT);
    cr_expect_str_eq(
            json_string_value(json_object_get(
                    json_array_get(warnings, WARNINGS_KEPT - 1), "message")),
            "m8290");
    json_decref(status);
}

Test(run_state, samples_come_newest_first)
{
    char members[64];
    for (int i = 1; i <= SAMPLES_KEPT + 7; i++) {
        snprintf(
                members, sizeof members,
                ", \"prompt\": \"prompt %d\", \"text\": \"text %d\"", i, i);
        tell("sample", i, 7, members);
    }
    json_t *json = run_state_samples(state, 100);
    json_t *samples = json_object_get(json, "samples");
    cr_expect_eq(json_array_size(samples), SAMPLES_KEPT);
    json_t *first = json_array_get(samples, 0);
    cr_expect_eq(number(first, "step"), SAMPLES_KEPT + 7);
    cr_expect_str_eq(
            json_string_value(json_object_get(first, "text")), "text 107");
    json_decref(json);
}

Test(run_state, time_between_states_is_of_its_phase)
{
    take_banner(0);
    tell_state(RUN_EVALUATING, 1000);
    tell_state(RUN_RUNNING, 1003);
    cr_expect_float_eq(state->phase_seconds[PHASE_EVAL], 3, 1e-9);
    tell_state(RUN_PAUSED, 1004);
    cr_expect(state->is_paused);
    tell_state(RUN_CHECKPOINTING, 1005);
    cr_expect(state->is_paused, "it is still held while it saves");
    tell_state(RUN_RUNNING, 1003);
    cr_expect_not(state->is_paused);
    run_state_end(state, RUN_FAILED);
    cr_expect_gt(state->ended, 0);
}

Test(run_state, a_run_is_stalled_until_a_rank_moves_or_it_is_something_else)
{
    take_banner(0);
    struct message_stall stall = {
            .is_stalled = true,
            .rank = 3,
            .step = 12,
            .time = 1000,
            .since = 990,
            .host = "host-b",
            .operation = "all_reduce #9"};
    struct message_stall moves = {.time = 1001};
    take(MESSAGE_STALL, &stall, sizeof stall);
    json_t *status = run_state_status(state);
    json_t *stalled = json_object_get(status, "stalled");
    cr_expect_eq(state->state, RUN_STALLED);
    cr_expect_str_eq(
            json_string_value(json_object_get(status, "state")), "stalled");
    cr_expect_eq(number(stalled, "rank"), 3);
    cr_expect_eq(number(stalled, "since"), 990);
    cr_expect_str_eq(
            json_string_value(json_object_get(stalled, "host")), "host-b");
    json_decref(status);
    take(MESSAGE_STALL, &moves, sizeof moves);
    cr_expect_eq(state->state, RUN_RUNNING);
    status = run_state_status(state);
    cr_expect(json_is_null(json_object_get(status, "stalled")));
    json_decref(status);
    tell_state(RUN_EVALUATING, 1002);
    take(MESSAGE_STALL, &stall, sizeof stall);
    take(MESSAGE_STALL, &moves, sizeof moves);
    cr_expect_eq(state->state, RUN_EVALUATING);
    struct message_end end = {.step = 12, .stopped_by = "--stop-after"};
    take(MESSAGE_END, &end, sizeof end);
    status = run_state_status(state);
    cr_expect_str_eq(
            json_string_value(json_object_get(status, "stopped_by")),
            "--stop-after");
    json_decref(status);
}

/* Stall and write time are summed separately. */
Test(run_state, what_checkpoints_take_adds_up)
{
    static const char two[] =
            ", \"path\": \"two\", \"seconds\": 3.0, \"stall_seconds\": 0.5, "
            "\"write_seconds\": 2.5, \"bytes\": 100";
    take_banner(0);
    tell("checkpoint", 2, 1000, two);
    tell("checkpoint", 2, 1000, two);
    cr_expect_eq(state->checkpoint_bytes, 100);
    cr_expect_float_eq(state->checkpoint_stall_seconds, 1, 1e-9);
    cr_expect_float_eq(state->checkpoint_write_seconds, 5, 1e-9);
    cr_expect_float_eq(state->checkpoint_histogram.sum, 6, 1e-9);
    cr_expect_eq(state->last_checkpoint_step, 2);
    cr_expect_str_eq(state->last_checkpoint, "two");
}

Test(run_state, settings_follow_set)
{
    struct message_done done = {.command = {.kind = COMMAND_SET}};
    take_banner(0);
    done.command.given[SET_ACCUMULATION] = true;
    done.command.value[SET_ACCUMULATION] = 4;
    done.command.given[SET_LOGGING_STEPS] = true;
    done.command.value[SET_LOGGING_STEPS] = 7;
    done.failed = true;
    take(MESSAGE_DONE, &done, sizeof done);
    cr_expect_eq(state->accumulation, 2);
    done.failed = false;
    take(MESSAGE_DONE, &done, sizeof done);
    json_t *status = run_state_status(state);
    cr_expect_eq(number(status, "gradient_accumulation_steps"), 4);
    cr_expect_eq(number(status, "global_batch_size"), 32);
    cr_expect_eq(number(status, "logging_steps"), 7);
    cr_expect_eq(number(status, "save_steps"), 500);
    cr_expect(json_is_null(json_object_get(status, "eval_steps")));
    cr_expect_eq(number(status, "learning_rate"), 0.25);
    json_decref(status);
    take_step(1, 1.0); /* what holds is the trainer's to say */
    cr_expect_eq(state->accumulation, 2);
}
