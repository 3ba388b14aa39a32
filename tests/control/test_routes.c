/* Every path of docs/control.md, without a socket: streams are http_stream.c's,
 * which keep what is sent when no connection takes it. */
#include "daemon/control/http_server.h"
#include "daemon/control/messages.h"
#include "daemon/control/routes.h"
#include "daemon/schema.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

static struct {
    struct scratch scratch;
    struct train_job job;
    struct run_state *state;
    struct routes *routes;
    json_t *config, *schema;
    struct train_command posted; /* the last */
    int post_count;
    bool is_full;
    struct http_request request;
    struct http_reply reply;
} t;

static bool on_post(void *ctx, const struct train_command *command)
{
    if (t.is_full)
        return false;
    t.posted = *command;
    t.post_count++;
    return true;
}

static char *metrics(
        const struct run_state *state, bool open_metrics, size_t *bytes_out)
{
    const char *text = open_metrics ? "# EOF\n" : "plain 1\n";
    *bytes_out = strlen(text);
    return strdup(text);
}

static void open_routes(bool readonly)
{
    struct routes_options options = {
            .state = t.state,
            .config = t.config,
            .schema = t.schema,
            .readonly = readonly,
            .page = "<html>",
            .page_bytes = 6,
            .metrics = metrics,
            .post = on_post};
    routes_destroy(t.routes);
    cr_assert_eq(routes_create(&options, &t.routes), ZD_OK);
}

static const struct kept_event *take(
        enum feed_kind kind, const void *payload, size_t bytes)
{
    struct feed_head head = {kind, (uint32_t)bytes};
    return run_state_take(t.state, &head, payload);
}

static void setup(void)
{
    memset(&t, 0, sizeof t);
    scratch_init(&t.scratch);
    t.job = train_job_default();
    t.job.job.name = "case";
    t.job.job.run_name = "";
    t.job.job.output_dir = t.scratch.dir;
    t.config = json_pack(
            "{s:s, s:i, s:{s:{s:i, s:s, s:b}, s:{s:f, s:s, s:b}}}", "file",
            "job.toml", "world", 2, "values", "log.logging_steps", "value", 10,
            "origin", "default", "available", 1, "optim.learning_rate", "value",
            0.5, "origin", "default", "available", 1);
    t.schema = schema_json();
    cr_assert_eq(run_state_create(&t.job, "/run/x.sock", &t.state), ZD_OK);
    open_routes(false);
}

static void forget_reply(void)
{
    if (t.reply.stream)
        http_stream_release(t.reply.stream);
    free(t.reply.body);
    memset(&t.reply, 0, sizeof t.reply);
}

static void teardown(void)
{
    forget_reply();
    routes_destroy(t.routes);
    run_state_destroy(t.state);
    json_decref(t.config);
    json_decref(t.schema);
    scratch_fini(&t.scratch);
}

TestSuite(routes, .init = setup, .fini = teardown);

/* "/v1/x?a=1&b=2", nothing escaped. */
static void ask_as(
        const char *method, const char *target, const char *body, bool may_act)
{
    static char text[1024];
    char *rest = text, *pair;
    forget_reply();
    snprintf(text, sizeof text, "%s", target);
    t.request = (struct http_request){
            .method = method,
            .path = strsep(&rest, "?"),
            .body = body,
            .body_bytes = strlen(body),
            .accept = t.request.accept,
            .last_event_id = t.request.last_event_id,
            .uid = 7,
            .pid = 8,
            .may_act = may_act};
    while ((pair = strsep(&rest, "&"))) {
        char *equals = strchr(pair, '=');
        *equals = '\0';
        t.request.param_names[t.request.param_count] = pair;
        t.request.param_values[t.request.param_count++] = equals + 1;
    }
    routes_handle(t.routes, &t.request, &t.reply);
}

static void get(const char *target)
{
    ask_as("GET", target, "", true);
}

static void post(const char *target, const char *body)
{
    ask_as("POST", target, body, true);
}

/* The body, or what was sent on the stream so far. Borrowed. */
static const char *text_of_reply(void)
{
    static char text[1 << 20];
    size_t bytes = t.reply.body_bytes;
    text[0] = '\0';
    if (t.reply.stream)
        bytes = http_stream_take(t.reply.stream, text, sizeof text - 1);
    else if (t.reply.body)
        memcpy(text, t.reply.body, bytes);
    else
        memcpy(text, t.reply.static_body, bytes);
    text[bytes] = '\0';
    return text;
}

static json_t *json_of_reply(void)
{
    const char *text = text_of_reply();
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json, "no JSON: %s", text);
    return json;
}

/* The status, and the code of the error. */
static void expect_error(int status, const char *code)
{
    json_t *json = json_of_reply();
    json_t *error = json_object_get(json, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    json_t *hint = json_object_get(error, "hint");
    cr_expect_eq(t.reply.status, status, "%d", t.reply.status);
    cr_expect_str_eq(
            json_string_value(json_object_get(error, "code")), code, "%s",
            message);
    cr_expect(message && message[0]);
    cr_expect(
            json_string_length(hint) > 0 ||
            (json_is_null(hint) && status >= 500));
    json_decref(json);
}

/* --- a run, told as the feed would --- */

static void begin_run(void)
{
    struct feed_banner banner = {
            .plan = json_pack("{s:i}", "world", 2),
            .world = 2,
            .per_device = 4,
            .accumulation = 1,
            .accumulation_max = 8,
            .global_batch = 8,
            .max_steps = 100,
            .has_eval_data = true,
            .eval_loss = NAN,
            .best_eval_loss = NAN,
            .settings = {0.5, 1, 1, 10, 500, 200}};
    take(FEED_BANNER, &banner, sizeof banner);
}

static void make_step(int64_t step)
{
    struct train_step_report report = {
            .step = step,
            .max_steps = 100,
            .loss = 5.0 - (double)step / 100,
            .grad_norm = 1,
            .learning_rate = 0.5,
            .tokens = 10,
            .step_seconds = 0.1,
            .settings = {0.5, 1, 1, 10, 500, 200},
            .global_batch = 8};
    take(FEED_STEP, &report, sizeof report);
}

static void make_event(int64_t id)
{
    char bytes[300];
    struct feed_event event = {.id = id, .kind = "eval"};
    memcpy(bytes, &event, sizeof event);
    int n = snprintf(bytes + sizeof event, 200, "{\"id\":%lld}", (long long)id);
    routes_event(
            t.routes, take(FEED_EVENT, bytes, sizeof event + (size_t)n + 1));
}

static void finish_command(const struct zd_error *error, json_t *result)
{
    struct feed_done done = {
            .command = t.posted, .step = 12, .failed = error != NULL};
    take(FEED_DONE, &done, sizeof done);
    routes_done(t.routes, &t.posted, 12, error, result);
    json_decref(result);
}

static void set_state(enum train_run_state state)
{
    struct feed_state message = {state, 1, 1000};
    take(FEED_STATE, &message, sizeof message);
}

/* --- the table --- */

Test(routes, every_path_that_reads_answers_with_an_object)
{
    begin_run();
    make_step(1);
    for (int i = 0; i < routes_count; i++) {
        const char *path = routes_table[i].path;
        if (routes_table[i].acts || strcmp(path, "/v1/events") == 0 ||
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
        bool acts = routes_table[i].acts;
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
        if (routes_table[i].acts) {
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
    cr_expect_eq(json_array_size(json_object_get(json, "names")), SERIES_COUNT);
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
    struct feed_eval eval = {.step = 0, .time = 1795200000, .eval_loss = 5.5};
    begin_run();
    take(FEED_EVAL, &eval, sizeof eval);
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

Test(routes, config_tells_what_was_set)
{
    begin_run();
    post("/v1/set", "{\"logging_steps\": 3}");
    finish_command(NULL, NULL);
    get("/v1/config");
    json_t *json = json_of_reply();
    json_t *row = json_object_get(
            json_object_get(json, "values"), "log.logging_steps");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 3);
    cr_expect_str_eq(
            json_string_value(json_object_get(row, "origin")),
            "set after step 12");
    json_decref(json);
    row = json_object_get(
            json_object_get(t.config, "values"), "log.logging_steps");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 10);
}

Test(routes, config_tells_what_was_set_before_the_run_was_resumed)
{
    struct feed_banner banner = {.world = 2, .max_steps = 100};
    banner.is_kept[SET_LOGGING_STEPS] = true;
    banner.kept[SET_LOGGING_STEPS] = 50;
    take(FEED_BANNER, &banner, sizeof banner);
    get("/v1/config");
    json_t *json = json_of_reply();
    json_t *row = json_object_get(
            json_object_get(json, "values"), "log.logging_steps");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 50);
    cr_expect_str_eq(
            json_string_value(json_object_get(row, "origin")),
            "set before the run was resumed");
    row = json_object_get(
            json_object_get(json, "values"), "optim.learning_rate");
    cr_expect_str_eq(
            json_string_value(json_object_get(row, "origin")), "default");
    json_decref(json);
}

/* The steps' rates follow the schedule; what was asked for does not move. */
Test(routes, config_tells_the_rate_that_was_asked_for)
{
    begin_run();
    post("/v1/set", "{\"learning_rate\": 0.25}");
    finish_command(NULL, NULL);
    make_step(13);
    get("/v1/config");
    json_t *json = json_of_reply();
    json_t *row = json_object_get(
            json_object_get(json, "values"), "optim.learning_rate");
    cr_expect_eq(json_real_value(json_object_get(row, "value")), 0.25);
    json_decref(json);
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
    get("/v1/config");
    json_t *json = json_of_reply();
    json_t *row = json_object_get(
            json_object_get(json, "values"), "train.global_batch_size");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 16);
    cr_expect_str_eq(
            json_string_value(json_object_get(row, "origin")),
            "set after step 12");
    json_decref(json);
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
    cr_expect_str_eq(text_of_reply(), "plain 1\n");
    cr_expect(strstr(t.reply.content_type, "version=0.0.4"));
    t.request.accept = "application/openmetrics-text; version=1.0.0";
    get("/metrics");
    cr_expect_str_eq(text_of_reply(), "# EOF\n");
    cr_expect(strstr(t.reply.content_type, "openmetrics"));
}

/* --- logs --- */

static void write_log(const char *name, const char *text)
{
    char dir[200];
    snprintf(dir, sizeof dir, "%s/logs", t.scratch.dir);
    cr_assert_eq(fs_make_dirs(dir), ZD_OK);
    scratch_file(&t.scratch, name, text, strlen(text));
}

#define LINE(second, text) "2026-11-21T12:00:0" #second "Z " text "\n"

Test(routes, logs_are_the_last_lines_of_a_rank)
{
    begin_run();
    get("/v1/logs");
    expect_error(404, "E_NOT_FOUND");
    write_log(
            "logs/rank-00000.log",
            LINE(1, "one") LINE(2, "two") LINE(3, "three") "2026-11-21T12");
    write_log("logs/rank-00001.log", "{\"time\":\"2026-11-21T12:00:01Z\"}\n");
    get("/v1/logs");
    cr_expect_eq(t.reply.status, 200);
    cr_expect_null(t.reply.stream, "it returns at once");
    cr_expect_str_eq(
            text_of_reply(), LINE(1, "one") LINE(2, "two") LINE(3, "three"));
    get("/v1/logs?tail=2");
    cr_expect_str_eq(text_of_reply(), LINE(2, "two") LINE(3, "three"));
    get("/v1/logs?tail=0");
    cr_expect_str_eq(text_of_reply(), "");
    get("/v1/logs?since=1795262402"); /* 12:00:02 */
    cr_expect_str_eq(text_of_reply(), LINE(3, "three"));
    get("/v1/logs?since=5000d");
    cr_expect(strstr(text_of_reply(), "one"));
    get("/v1/logs?rank=1&since=1795262401");
    cr_expect_str_eq(text_of_reply(), "");
    get("/v1/logs?rank=1&since=1795262400");
    cr_expect_eq(text_of_reply()[0], '{');
    get("/v1/logs?rank=2");
    expect_error(404, "E_NOT_FOUND");
}

static void append_log(const char *text)
{
    FILE *file = fopen(scratch_path(&t.scratch, "logs/rank-00000.log"), "a");
    fputs(text, file);
    fclose(file);
}

Test(routes, a_followed_log_gives_whole_lines_as_they_come)
{
    begin_run();
    write_log("logs/rank-00000.log", LINE(1, "one") "2026-11-21T12:00:02Z tw");
    get("/v1/logs?follow=1");
    cr_assert_not_null(t.reply.stream);
    cr_expect_str_eq(text_of_reply(), LINE(1, "one"));
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), "");
    append_log("o\n");
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), LINE(2, "two"));
    append_log(LINE(3, "three"));
    routes_end(t.routes);
    cr_expect_str_eq(text_of_reply(), LINE(3, "three"));
    cr_expect(t.reply.stream->is_finished);
}

Test(routes, a_follower_who_leaves_is_forgotten)
{
    begin_run();
    write_log("logs/rank-00000.log", LINE(1, "one"));
    get("/v1/logs?follow=1");
    forget_reply();
    append_log(LINE(2, "two"));
    routes_tick(t.routes);
    get("/v1/events");
    forget_reply();
    make_event(1);
    routes_tick(t.routes);
    post("/v1/eval", "{\"wait\": true}");
    forget_reply();
    finish_command(NULL, NULL); /* it was done all the same */
    cr_expect_eq(t.state->pending[COMMAND_EVAL], 0);
}

/* --- events --- */

Test(routes, events_are_replayed_after_an_id_and_then_go_on)
{
    for (int i = 1; i <= 5; i++)
        make_event(i);
    get("/v1/events?since=3");
    const char *text = text_of_reply();
    cr_expect_str_eq(t.reply.content_type, "text/event-stream");
    cr_expect_null(strstr(text, "id: 3\n"));
    cr_expect(
            strstr(text, "id: 4\nevent: eval\ndata: {\"id\":4}\n\n"
                         "id: 5\nevent: eval\ndata: {\"id\":5}\n\n"));
    make_event(6);
    cr_expect_str_eq(
            text_of_reply(), "id: 6\nevent: eval\ndata: {\"id\":6}\n\n");
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), "");
    routes_end(t.routes);
    cr_expect(t.reply.stream->is_finished);
}

Test(routes, a_browser_that_comes_back_names_the_last_event_it_saw)
{
    for (int i = 1; i <= 5; i++)
        make_event(i);
    t.request.last_event_id = "4";
    get("/v1/events?since=1");
    const char *text = text_of_reply();
    cr_expect_null(strstr(text, "id: 4\n"));
    cr_expect(strstr(text, "id: 5\n"));
    t.request.last_event_id = "4x";
    get("/v1/events");
    expect_error(400, "E_BAD_REQUEST");
}

Test(routes, only_new_events_without_an_id_and_all_without_following)
{
    make_event(1);
    get("/v1/events");
    cr_expect_null(strstr(text_of_reply(), "id: "));
    make_event(2);
    cr_expect(strstr(text_of_reply(), "id: 2\n"));
    get("/v1/events?follow=0");
    cr_expect(strstr(text_of_reply(), "id: 1\n"));
    cr_expect(t.reply.stream->is_finished);
}

Test(routes, a_long_replay_comes_in_parts_that_a_slow_reader_survives)
{
    static char bytes[sizeof(struct feed_event) + 2000];
    struct feed_event event = {.kind = "sample"};
    memset(bytes + sizeof event, 'x', sizeof bytes - sizeof event - 1);
    for (int i = 1; i <= 2000; i++) { /* 4 MB */
        event.id = i;
        memcpy(bytes, &event, sizeof event);
        take(FEED_EVENT, bytes, sizeof bytes);
    }
    get("/v1/events?since=0");
    size_t count = 0;
    for (int round = 0; round < 100 && count < 2000; round++) {
        cr_assert_leq(http_queued(t.reply.stream), (size_t)300 << 10);
        const char *at = text_of_reply();
        while ((at = strstr(at, "\nevent: "))) {
            at++;
            count++;
        }
        routes_tick(t.routes);
    }
    cr_expect_eq(count, 2000, "%zu", count);
}

/* --- commands --- */

Test(routes, a_command_is_accepted_at_once_or_answered_when_done)
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

Test(routes, what_was_asked_is_wrong_only_where_it_was)
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

Test(routes, a_failure_is_told_with_the_runs_own_error)
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

Test(routes, bodies_are_checked)
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
            {"/v1/pause", "{\"release\": {}}"},
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

Test(routes, deep_and_long_bodies_are_refused)
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

Test(routes, parameters_of_commands_reach_the_trainer)
{
    begin_run();
    post("/v1/pause", "{\"release\": true}");
    cr_expect(t.posted.release);
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
    cr_expect_eq(json_array_size(json_object_get(json, "pending")), 5);
    json_decref(json);
}

Test(routes, pause_and_resume_are_refused_twice)
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

Test(routes, what_the_job_cannot_do_is_a_conflict)
{
    begin_run();
    t.state->has_eval_data = false;
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

Test(routes, a_run_that_ends_takes_no_commands_and_answers_all_who_wait)
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

Test(routes, stop_answers_in_its_time_even_if_the_run_does_not)
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
