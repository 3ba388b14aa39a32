/* Every path of docs/control.md: the table, and those that read. */
#include "routes_case.h"

#include "daemon/job/schema.h"

#include <criterion/criterion.h>

TestSuite(routes, .init = routes_setup, .fini = routes_teardown);

/* --- the table --- */

Test(routes, every_path_that_reads_answers_with_an_object)
{
    begin_run();
    make_step(1);
    for (int i = 0; i < routes_count; i++) {
        const char *path = routes_table[i].path;
        if (routes_table[i].command || strcmp(path, "/v1/events") == 0 ||
            strcmp(path, "/v1/logs") == 0)
            continue;
        get(path);
        cr_expect_eq(t.reply.status, 200, "%s: %d", path, t.reply.status);
        cr_expect_not_null(t.reply.content_type, "%s", path);
        if (strcmp(t.reply.content_type, "application/json") == 0)
            json_decref(json_of_reply());
    }
}

Test(routes, what_is_not_there_is_404_and_another_method_405)
{
    static const char *const unknown[] = {
            "/v1/", "/v2/status",       "/v1/status/",
            "",     "/v1/../v1/status", "/V1/status"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        get(unknown[i]);
        expect_error(404, "E_NOT_FOUND");
    }
    get("/v1/statu");
    cr_expect(strstr(text_of_reply(), "did you mean GET /v1/status?"));
    for (int i = 0; i < routes_count; i++) {
        bool acts = routes_table[i].command != NULL;
        ask_as(acts ? "GET" : "POST", routes_table[i].path, "", true);
        expect_error(405, "E_METHOD");
        cr_expect_str_eq(t.reply.allow, acts ? "POST" : "GET");
    }
    cr_expect_eq(t.post_count, 0);
}

Test(routes, parameters_are_checked_by_name_count_and_value)
{
    static const char *const bad[] = {
            "/v1/status?x=1",
            "/v1/status?=1",
            "/v1/samples?max=0",
            "/v1/samples?max=101",
            "/v1/samples?max=",
            "/v1/samples?max=1.5",
            "/v1/samples?max= 1",
            "/v1/samples?max=1&max=2",
            "/v1/samples?max=99999999999999999999",
            "/v1/metrics/history?max=10001",
            "/v1/metrics/history?since=-1",
            "/v1/metrics/history?na=train/loss",
            "/v1/events?follow=2",
            "/v1/events?since=x",
            "/v1/logs?rank=-1",
            "/v1/logs?rank=../../etc/passwd",
            "/v1/logs?tail=-1",
            "/v1/logs?since=yesterday",
            "/v1/logs?since=5x",
            "/v1/logs?follow=maybe"};
    begin_run();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        get(bad[i]);
        cr_expect_null(t.reply.stream, "%s", bad[i]);
        expect_error(400, "E_BAD_REQUEST");
    }
    ask_as("GET", "/v1/status", "{}", true);
    expect_error(400, "E_BAD_REQUEST");
}

Test(routes, who_may_only_read_gives_no_commands)
{
    for (int i = 0; i < routes_count; i++)
        if (routes_table[i].command) {
            ask_as("POST", routes_table[i].path, "not even JSON", false);
            expect_error(403, "E_FORBIDDEN");
        }
    ask_as("GET", "/v1/status", "", false);
    cr_expect_eq(t.reply.status, 200);
    open_routes(true);
    post("/v1/stop", "");
    expect_error(403, "E_FORBIDDEN");
    get("/v1/status");
    cr_expect_eq(t.reply.status, 200);
    cr_expect_eq(t.post_count, 0);
}

/* --- those that read --- */

Test(routes, greeting_lists_what_can_be_asked)
{
    get("/v1");
    json_t *json = json_of_reply();
    json_t *list = json_object_get(json, "capabilities");
    cr_expect_eq(json_integer_value(json_object_get(json, "api")), 1);
    cr_expect_geq(json_array_size(list), 18);
    cr_expect_str_eq(json_string_value(json_array_get(list, 0)), "status");
    json_decref(json);
}

Test(routes, readyz_waits_for_a_step_and_healthz_does_not)
{
    get("/healthz");
    cr_expect_eq(t.reply.status, 200);
    get("/readyz");
    expect_error(503, "E_NOT_READY");
    begin_run();
    get("/readyz");
    expect_error(503, "E_NOT_READY");
    make_step(1);
    get("/readyz");
    cr_expect_eq(t.reply.status, 200);
}

Test(routes, history_gives_the_series_that_were_asked_for)
{
    begin_run();
    for (int i = 1; i <= 50; i++)
        make_step(i);
    get("/v1/metrics/history?name=train/loss,eval/loss&name=perf/update"
        "&since=40&max=5");
    json_t *json = json_of_reply();
    json_t *series = json_object_get(json, "series");
    json_t *steps =
            json_object_get(json_object_get(series, "train/loss"), "step");
    cr_expect_eq(json_object_size(series), 3);
    cr_expect_leq(json_array_size(steps), 5);
    cr_expect_gt(json_integer_value(json_array_get(steps, 0)), 40);
    size_t names = json_array_size(json_object_get(json, "names"));
    cr_expect(names > 10 && !run_series_name((int)names));
    json_decref(json);
    get("/v1/metrics/history?name=train/lost");
    expect_error(404, "E_NOT_FOUND");
    get("/v1/metrics/history?name=");
    expect_error(404, "E_NOT_FOUND");
    get("/v1/metrics/history?name=train/loss,");
    expect_error(404, "E_NOT_FOUND");
}

Test(routes, history_has_the_evaluation_before_the_first_step)
{
    begin_run();
    tell_event(1, 0, "eval", ",\"eval_loss\":5.5");
    get("/v1/metrics/history?name=eval/loss");
    json_t *json = json_of_reply();
    json_t *series = json_object_get(
            json_object_get(json_object_get(json, "series"), "eval/loss"),
            "step");
    cr_expect_eq(json_array_size(series), 1);
    json_decref(json);
}

Test(routes, plan_is_there_with_the_banner)
{
    get("/v1/plan");
    expect_error(404, "E_NOT_FOUND");
    begin_run();
    get("/v1/plan");
    cr_expect_eq(t.reply.status, 200);
}

/* One row of the config; origin NULL: whatever it is. */
static void expect_config(const char *key, double value, const char *origin)
{
    get("/v1/config");
    json_t *json = json_of_reply();
    json_t *row = json_object_get(json_object_get(json, "values"), key);
    cr_expect_eq(json_number_value(json_object_get(row, "value")), value);
    if (origin)
        cr_expect_str_eq(
                json_string_value(json_object_get(row, "origin")), origin);
    json_decref(json);
}

Test(routes, config_tells_what_was_set)
{
    begin_run();
    post("/v1/set", "{\"logging_steps\": 3}");
    finish_command(NULL, NULL);
    expect_config("log.logging_steps", 3, "set after step 12");
    json_t *row = json_object_get(
            json_object_get(t.config, "values"), "log.logging_steps");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 10);
}

Test(routes, config_tells_what_was_set_before_the_run_was_resumed)
{
    struct message_banner banner = {.facts.world = 2, .max_steps = 100};
    banner.is_kept[SET_LOGGING_STEPS] = true;
    banner.kept[SET_LOGGING_STEPS] = 50;
    take(MESSAGE_BANNER, &banner, sizeof banner);
    expect_config("log.logging_steps", 50, "set before the run was resumed");
    expect_config("optim.learning_rate", 0.5, "default");
}

/* The steps' rates follow the schedule; what was asked for does not move. */
Test(routes, config_tells_the_rate_that_was_asked_for)
{
    begin_run();
    post("/v1/set", "{\"learning_rate\": 0.25}");
    finish_command(NULL, NULL);
    make_step(13);
    expect_config("optim.learning_rate", 0.25, NULL);
}

Test(routes, more_accumulation_than_memory_keeps_is_refused_at_once)
{
    begin_run();
    post("/v1/set", "{\"gradient_accumulation_steps\": 9}");
    expect_error(409, "E_CONFLICT");
    cr_expect_eq(t.post_count, 0);
    post("/v1/set", "{\"gradient_accumulation_steps\": 8}");
    cr_expect_eq(t.reply.status, 202);
}

Test(routes, config_has_the_batch_that_accumulation_makes)
{
    json_object_set_new(
            json_object_get(t.config, "values"), "train.global_batch_size",
            json_pack("{s:i, s:s}", "value", 8, "origin", "job.toml:3"));
    begin_run();
    post("/v1/set", "{\"gradient_accumulation_steps\": 2}");
    finish_command(NULL, NULL);
    expect_config("train.global_batch_size", 16, "set after step 12");
}

Test(routes, schema_has_every_key_of_the_table)
{
    get("/v1/config/schema");
    json_t *json = json_of_reply();
    json_t *top = json_object_get(json, "properties");
    for (int i = 0; i < schema_count; i++) {
        char section[128];
        json_t *at = top;
        char *rest = section, *name;
        snprintf(section, sizeof section, "%s", schema_table[i].section);
        while (section[0] && (name = strsep(&rest, "."))) {
            at = json_object_get(at, name);
            if (json_object_get(at, "items"))
                at = json_object_get(at, "items");
            at = json_object_get(at, "properties");
        }
        cr_expect_not_null(
                json_object_get(at, schema_table[i].name), "[%s] %s",
                schema_table[i].section, schema_table[i].name);
    }
    json_decref(json);
}

Test(routes, metrics_come_in_the_form_that_is_accepted)
{
    get("/metrics");
    cr_expect_null(strstr(text_of_reply(), "# EOF\n"));
    cr_expect(strstr(t.reply.content_type, "version=0.0.4"));
    t.request.accept = "application/openmetrics-text; version=1.0.0";
    get("/metrics");
    cr_expect(strstr(text_of_reply(), "# EOF\n"));
    cr_expect(strstr(t.reply.content_type, "openmetrics"));
}
