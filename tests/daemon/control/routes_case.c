/* routes_case.c - see routes_case.h. */
#include "routes_case.h"

#include "daemon/job/schema.h"

#include <criterion/criterion.h>
#include <math.h>

struct routes_case t;

static bool on_post(void *ctx, const struct train_command *command)
{
    if (t.is_full)
        return false;
    t.posted = *command;
    t.post_count++;
    return true;
}

void open_routes(bool readonly)
{
    struct routes_options options = {
            .state = t.state,
            .config = t.config,
            .schema = t.schema,
            .readonly = readonly,
            .post = on_post};
    routes_destroy(t.routes);
    t.routes = routes_create(&options);
}

const struct kept_event *take(
        enum message_kind kind, const void *payload, size_t bytes)
{
    return run_state_take(t.state, kind, payload);
}

void routes_setup(void)
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
    t.state = run_state_create(&t.job, "/run/x.sock");
    open_routes(false);
}

void forget_reply(void)
{
    if (t.reply.stream)
        http_stream_release(t.reply.stream);
    free(t.reply.body);
    memset(&t.reply, 0, sizeof t.reply);
}

void routes_teardown(void)
{
    forget_reply();
    routes_destroy(t.routes);
    run_state_destroy(t.state);
    json_decref(t.config);
    json_decref(t.schema);
    scratch_fini(&t.scratch);
}

void ask_as(
        const char *method, const char *target, const char *body, bool may_act)
{
    static char text[1024];
    char *rest = text, *pair;
    forget_reply();
    snprintf(text, sizeof text, "%s", target);
    t.request = (struct http_request){
            .method = method,
            .target = target,
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

void get(const char *target)
{
    ask_as("GET", target, "", true);
}

void post(const char *target, const char *body)
{
    ask_as("POST", target, body, true);
}

const char *text_of_reply(void)
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

json_t *json_of_reply(void)
{
    const char *text = text_of_reply();
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json, "no JSON: %s", text);
    return json;
}

void expect_error(int status, const char *code)
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

/* --- a run, told by messages --- */

void begin_run(void)
{
    struct message_banner banner = {
            .plan = json_pack("{s:i}", "world", 2),
            .facts.world = 2,
            .facts.per_device = 4,
            .accumulation = 1,
            .facts.accumulation_max = 8,
            .global_batch = 8,
            .max_steps = 100,
            .facts.has_eval_data = true,
            .eval_loss = NAN,
            .best_eval_loss = NAN,
            .settings = {0.5, 1, 1, 10, 500, 200}};
    take(MESSAGE_BANNER, &banner, sizeof banner);
}

void make_step(int64_t step)
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
    take(MESSAGE_STEP, &report, sizeof report);
}

void tell_event(int64_t id, int64_t step, const char *kind, const char *members)
{
    char bytes[400];
    struct message_event event = {.id = id, .step = step, .time = 1000};
    strcpy(event.kind, kind);
    memcpy(bytes, &event, sizeof event);
    int n = snprintf(
            bytes + sizeof event, sizeof bytes - sizeof event,
            "{\"id\":%lld%s}", (long long)id, members);
    routes_event(
            t.routes, take(MESSAGE_EVENT, bytes, sizeof event + (size_t)n + 1));
}

void make_event(int64_t id)
{
    tell_event(id, 0, "eval", "");
}

void finish_command(const struct zd_error *error, json_t *result)
{
    struct message_done done = {
            .command = t.posted, .step = 12, .failed = error != NULL};
    take(MESSAGE_DONE, &done, sizeof done);
    routes_done(t.routes, &t.posted, 12, error, result);
    json_decref(result);
}

void set_state(enum train_run_state state)
{
    char members[64];
    snprintf(
            members, sizeof members, ",\"state\":\"%s\"",
            train_run_state_name(state));
    tell_event(0, 1, "state", members);
}
