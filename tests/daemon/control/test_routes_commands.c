/* The paths that act: what is checked, what reaches the trainer, what is
 * answered. */
#include "routes_case.h"

#include <criterion/criterion.h>
#include <unistd.h>

TestSuite(routes_commands, .init = routes_setup, .fini = routes_teardown);

Test(routes_commands, a_command_is_accepted_at_once_or_answered_when_done)
{
    begin_run();
    post("/v1/checkpoint", "");
    json_t *json = json_of_reply();
    cr_expect_eq(t.reply.status, 202);
    cr_expect(json_is_true(json_object_get(json, "accepted")));
    cr_expect_eq(json_integer_value(json_object_get(json, "id")), 1);
    json_decref(json);
    cr_expect_eq(t.posted.kind, COMMAND_CHECKPOINT);
    cr_expect_eq(t.posted.uid, 7);
    cr_expect_eq(t.posted.pid, 8);
    post("/v1/checkpoint", "");
    expect_error(409, "E_CONFLICT"); /* another waits */
    finish_command(NULL, NULL);

    post("/v1/checkpoint", " {\"wait\": true}\n");
    cr_assert_not_null(t.reply.stream);
    cr_expect_eq(http_queued(t.reply.stream), 0);
    finish_command(NULL, json_pack("{s:s}", "path", "out/checkpoint-000012"));
    cr_expect_eq(t.reply.stream->status, 200);
    cr_expect(t.reply.stream->is_finished);
    cr_expect_str_eq(
            text_of_reply(),
            "{\"done\":true,\"id\":2,\"command\":\"checkpoint\",\"step\":12,"
            "\"result\":{\"path\":\"out/checkpoint-000012\"}}\n");
}

Test(routes_commands, what_was_asked_is_wrong_only_where_it_was)
{
    static const struct {
        const char *path, *body;
        enum zd_status status;
        int http;
    } cases[] = {
            {"/v1/sample", "{\"prompt\": \"a\", \"wait\": true}", ZD_ERR_DATA,
             400},
            {"/v1/eval", "{\"wait\": true}", ZD_ERR_DATA, 500},
            {"/v1/set", "{\"logging_steps\": 2, \"wait\": true}", ZD_ERR_UNFIT,
             409},
            {"/v1/checkpoint", "{\"wait\": true}", ZD_ERR_UNFIT, 500}};
    begin_run();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zd_error error = {.status = cases[i].status, .what = "no"};
        post(cases[i].path, cases[i].body);
        finish_command(&error, NULL);
        cr_expect_eq(t.reply.stream->status, cases[i].http, "%zu", i);
        text_of_reply();
    }
}

Test(routes_commands, a_failure_is_told_with_the_runs_own_error)
{
    static const struct {
        enum zd_status status;
        int http;
        const char *code;
    } cases[] = {
            {ZD_ERR_IO, 500, "E_FAILED"},
            {ZD_ERR_USAGE, 409, "E_CONFLICT"},
            {ZD_ERR_STOPPED, 503, "E_ENDING"}};
    begin_run();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zd_error error = {
                .status = cases[i].status,
                .what = "no space left",
                .help = "make room"};
        post("/v1/checkpoint", "{\"wait\": true}");
        finish_command(&error, NULL);
        cr_expect_eq(t.reply.stream->status, cases[i].http);
        const char *text = text_of_reply();
        cr_expect(strstr(text, cases[i].code), "%s", text);
        cr_expect(strstr(text, "no space left"));
        cr_expect(strstr(text, "make room"));
    }
}

Test(routes_commands, bodies_are_checked)
{
    static const struct {
        const char *path, *body;
    } bad[] = {
            {"/v1/checkpoint", "[]"},
            {"/v1/checkpoint", "1"},
            {"/v1/checkpoint", "{"},
            {"/v1/checkpoint", "{} {}"},
            {"/v1/checkpoint", "{\"wait\": 1}"},
            {"/v1/checkpoint", "{\"wait\": null}"},
            {"/v1/checkpoint", "{\"wait\": \"true\"}"},
            {"/v1/checkpoint", "{\"wait\": true, \"wait\": true}"},
            {"/v1/checkpoint", "{\"release\": true}"},
            {"/v1/checkpoint", "{\"\": true}"},
            {"/v1/checkpoint", "\xff"},
            {"/v1/pause", "{\"release\": true}"},
            {"/v1/sample", "{\"prompt\": 1}"},
            {"/v1/sample", "{\"prompt\": \"\"}"},
            {"/v1/sample", "{\"prompt\": \"a\\u0000b\"}"},
            {"/v1/sample", "{\"prompt\": \"a\", \"max_new_tokens\": 0}"},
            {"/v1/sample", "{\"prompt\": \"a\", \"max_new_tokens\": 1.5}"},
            {"/v1/sample", "{\"prompt\": \"a\", \"max_new_tokens\": 1e99}"},
            {"/v1/stop", "{\"timeout\": 0}"},
            {"/v1/stop", "{\"timeout\": -1}"},
            {"/v1/stop", "{\"timeout\": 1e12}"},
            {"/v1/stop", "{\"checkpoint\": \"no\"}"},
            {"/v1/profile", "{\"steps\": 0}"},
            {"/v1/profile", "{\"steps\": 101}"},
            {"/v1/set", ""},
            {"/v1/set", "{}"},
            {"/v1/set", "{\"wait\": true}"},
            {"/v1/set", "{\"learning_rate\": 0}"},
            {"/v1/set", "{\"learning_rate\": -1}"},
            {"/v1/set", "{\"learning_rate\": \"1\"}"},
            {"/v1/set", "{\"learning_rate\": [1]}"},
            {"/v1/set", "{\"learning_rate\": 1e999}"},
            {"/v1/set", "{\"learning_rate\": 1, \"learning_rate\": 2}"},
            {"/v1/set", "{\"learning_rate\": 1, \"save_steps\": 0}"},
            {"/v1/set", "{\"gradient_accumulation_steps\": 1.5}"},
            {"/v1/set", "{\"gradient_accumulation_steps\": 1e30}"},
            {"/v1/set", "{\"seed\": 1}"}};
    begin_run();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        post(bad[i].path, bad[i].body);
        cr_expect_null(t.reply.stream);
        expect_error(400, "E_BAD_REQUEST");
        cr_expect_eq(t.post_count, 0, "%s %s", bad[i].path, bad[i].body);
    }
    post("/v1/checkpoint?wait=1", "");
    expect_error(400, "E_BAD_REQUEST");
}

Test(routes_commands, deep_and_long_bodies_are_refused)
{
    static char body[65536];
    memset(body, '[', sizeof body - 1);
    post("/v1/set", body);
    expect_error(400, "E_BAD_REQUEST");
    memset(body, 'a', sizeof body - 1);
    memcpy(body, "{\"prompt\": \"", 12);
    memcpy(body + sizeof body - 3, "\"}", 3);
    post("/v1/sample", body);
    expect_error(400, "E_BAD_REQUEST");
    cr_expect_eq(t.post_count, 0);
}

Test(routes_commands, parameters_of_commands_reach_the_trainer)
{
    begin_run();
    post("/v1/stop", "{\"checkpoint\": false}");
    cr_expect_eq(t.posted.kind, COMMAND_STOP);
    cr_expect_not(t.posted.save);
    post("/v1/sample", "{\"prompt\": \"a b\", \"max_new_tokens\": 9}");
    cr_expect_str_eq(t.posted.prompt, "a b");
    cr_expect_eq(t.posted.max_new_tokens, 9);
    post("/v1/profile", "");
    cr_expect_eq(t.posted.steps, 3);
    post("/v1/set", "{\"learning_rate\": 1, \"max_grad_norm\": 0}");
    cr_expect(t.posted.given[SET_LEARNING_RATE]);
    cr_expect(t.posted.given[SET_MAX_GRAD_NORM]);
    cr_expect_not(t.posted.given[SET_SAVE_STEPS]);
    cr_expect_eq(t.posted.value[SET_LEARNING_RATE], 1.0);
    get("/v1/status");
    json_t *json = json_of_reply();
    cr_expect_eq(json_array_size(json_object_get(json, "pending")), 4);
    json_decref(json);
}

Test(routes_commands, pause_and_resume_are_refused_twice)
{
    begin_run();
    post("/v1/resume", "");
    expect_error(409, "E_CONFLICT");
    post("/v1/pause", "");
    cr_expect_eq(t.reply.status, 202);
    post("/v1/pause", "");
    expect_error(409, "E_CONFLICT");
    finish_command(NULL, NULL);
    set_state(RUN_PAUSED);
    post("/v1/pause", "");
    expect_error(409, "E_CONFLICT");
    post("/v1/resume", "");
    cr_expect_eq(t.reply.status, 202);
    finish_command(NULL, NULL);
    set_state(RUN_RUNNING);
    post("/v1/resume", "");
    expect_error(409, "E_CONFLICT");
}

Test(routes_commands, what_the_job_cannot_do_is_a_conflict)
{
    begin_run();
    t.state->facts.has_eval_data = false;
    post("/v1/eval", "");
    expect_error(409, "E_CONFLICT");
    post("/v1/sample", "");
    expect_error(409, "E_CONFLICT");
    t.job.checkpoint.save_strategy = SAVE_EPOCH;
    post("/v1/set", "{\"save_steps\": 5}");
    expect_error(409, "E_CONFLICT");
    t.job.eval.eval_strategy = EVAL_NO;
    post("/v1/set", "{\"eval_steps\": 5}");
    expect_error(409, "E_CONFLICT");
    cr_expect_eq(t.post_count, 0);
    t.is_full = true;
    post("/v1/checkpoint", "");
    expect_error(409, "E_CONFLICT");
    cr_expect_eq(t.state->pending[COMMAND_CHECKPOINT], 0);
}

Test(routes_commands,
     a_run_that_ends_takes_no_commands_and_answers_all_who_wait)
{
    begin_run();
    post("/v1/checkpoint", "{\"wait\": true}");
    struct http_stream *waiting = t.reply.stream;
    t.reply.stream = NULL;
    set_state(RUN_STOPPING);
    post("/v1/stop", "");
    expect_error(409, "E_CONFLICT");
    post("/v1/eval", "");
    expect_error(503, "E_ENDING");
    routes_end(t.routes);
    cr_expect_eq(waiting->status, 503);
    cr_expect(waiting->is_finished);
    http_stream_release(waiting);
    set_state(RUN_DONE);
    post("/v1/stop", "");
    expect_error(503, "E_ENDING");
}

Test(routes_commands, stop_answers_in_its_time_even_if_the_run_does_not)
{
    begin_run();
    post("/v1/stop", "{\"wait\": true, \"timeout\": 0.001}");
    cr_assert_not_null(t.reply.stream);
    usleep(3000);
    routes_tick(t.routes);
    cr_expect_eq(t.reply.stream->status, 202);
    cr_expect(t.reply.stream->is_finished);
    finish_command(NULL, NULL);
}
