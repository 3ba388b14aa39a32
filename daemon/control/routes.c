/* routes.c - the table of paths, what all of them share, and those that read.
 */
#include "daemon/control/routes_internal.h"
#include "daemon/suggest.h"
#include "zd_config.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static route_answer answer_hello, answer_status, answer_ranks, answer_memory,
        answer_history, answer_config, answer_schema, answer_samples,
        answer_plan, answer_health, answer_ready, answer_metrics, answer_page;

const struct route routes_table[] = {
        {"GET", "/v1", "", false, answer_hello, "Name, version, capabilities"},
        {"GET", "/v1/status", "", false, answer_status, "How far it is"},
        {"GET", "/v1/ranks", "", false, answer_ranks, "Each rank"},
        {"GET", "/v1/memory", "", false, answer_memory, "Planned and taken"},
        {"GET", "/v1/metrics/history", "name since max", false, answer_history,
         "Series"},
        {"GET", "/v1/events", "since follow", false, route_events,
         "Server-sent events"},
        {"GET", "/v1/logs", "rank since tail follow", false, route_logs,
         "Lines of a rank's log"},
        {"GET", "/v1/config", "", false, answer_config,
         "Every key of the job, and its origin"},
        {"GET", "/v1/config/schema", "", false, answer_schema,
         "JSON Schema of job.toml"},
        {"GET", "/v1/samples", "max", false, answer_samples,
         "Texts, newest first"},
        {"GET", "/v1/plan", "", false, answer_plan, "plan.json"},
        {"POST", "/v1/checkpoint", "", true, route_checkpoint, "Save now"},
        {"POST", "/v1/eval", "", true, route_eval, "Evaluate now"},
        {"POST", "/v1/sample", "", true, route_sample, "Continue a text"},
        {"POST", "/v1/pause", "", true, route_pause,
         "Hold at the next step boundary"},
        {"POST", "/v1/resume", "", true, route_resume, "Go on"},
        {"POST", "/v1/stop", "", true, route_stop, "End, with a checkpoint"},
        {"POST", "/v1/set", "", true, route_set, "Change settings"},
        {"POST", "/v1/profile", "", true, route_profile,
         "Trace the next steps"},
        {"GET", "/healthz", "", false, answer_health,
         "Does the control thread answer?"},
        {"GET", "/readyz", "", false, answer_ready, "Was a step made?"},
        {"GET", "/metrics", "", false, answer_metrics, "For Prometheus"},
        {"GET", "/", "", false, answer_page, "The page"},
};
const int routes_count = sizeof routes_table / sizeof routes_table[0];

/* --- replies --- */

char *routes_dump(json_t *json, size_t *bytes_out)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17))
                      : NULL;
    size_t bytes = text ? strlen(text) : 0;
    json_decref(json);
    if (text)
        text[bytes++] = '\n'; /* where the NUL was */
    *bytes_out = bytes;
    return text;
}

void reply_json(struct http_reply *reply, int status, json_t *json)
{
    reply->body = routes_dump(json, &reply->body_bytes);
    reply->status = reply->body ? status : 500;
    reply->content_type = HTTP_JSON;
    if (!reply->body) {
        reply->static_body = "{\"error\": {\"code\": \"E_FAILED\", "
                             "\"message\": \"out of memory\", "
                             "\"hint\": null}}\n";
        reply->body_bytes = strlen(reply->static_body);
    }
}

json_t *error_json(const char *code, const char *message, const char *hint)
{
    bool has_hint = hint && hint[0];
    json_t *what = json_string(message);
    return json_pack(
            "{s:{s:s, s:o, s:o}}", "error", "code", code, "message",
            what ? what : json_string("(not UTF-8)"), "hint",
            has_hint ? json_string(hint) : json_null());
}

void reply_error(
        struct http_reply *reply, int status, const char *code,
        const char *hint, const char *format, ...)
{
    char message[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reply_json(reply, status, error_json(code, message, hint));
}

/* --- parameters --- */

const char *param_text(const struct http_request *request, const char *name)
{
    for (int i = 0; i < request->param_count; i++)
        if (strcmp(request->param_names[i], name) == 0)
            return request->param_values[i];
    return NULL;
}

bool param_integer(
        const struct http_request *request, struct http_reply *reply,
        const char *name, int64_t min, int64_t max, int64_t *value)
{
    const char *text = param_text(request, name);
    char *end;
    if (!text)
        return true;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool is_number = text[0] && !*end && strspn(text, "-0123456789") > 0 &&
                     text[0] != ' ' && errno == 0;
    if (is_number && number >= min && number <= max) {
        *value = number;
        return true;
    }
    char hint[100];
    int64_t example = min > 100 ? min : max < 100 ? max : 100;
    snprintf(hint, sizeof hint, "%s=%lld", name, (long long)example);
    reply_error(
            reply, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: an integer from %lld to %lld is expected",
            name, text, (long long)min, (long long)max);
    return false;
}

bool param_flag(
        const struct http_request *request, struct http_reply *reply,
        const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    const char *text = param_text(request, name);
    if (!text)
        return true;
    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    char hint[100];
    snprintf(hint, sizeof hint, "%s=1", name);
    reply_error(
            reply, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: 0 or 1 is expected", name, text);
    return false;
}

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == length && memcmp(at, word, length) == 0)
            return length > 0;
    }
    return false;
}

/* Unknown ones, and those that are there twice (but `name`). */
static bool check_params(
        const struct route *route, const struct http_request *request,
        struct http_reply *reply)
{
    for (int i = 0; i < request->param_count; i++) {
        const char *name = request->param_names[i];
        bool is_twice = param_text(request, name) != request->param_values[i] &&
                        strcmp(name, "name") != 0;
        if (!has_word(route->params, name)) {
            reply_error(
                    reply, 400, "E_BAD_REQUEST",
                    route->params[0] ? route->params : route->path,
                    route->params[0] ? "%s has no parameter %.60s; it has those"
                                       " of the hint"
                                     : "%s takes no parameters: %.60s",
                    route->path, name);
            return false;
        }
        if (is_twice) {
            reply_error(
                    reply, 400, "E_BAD_REQUEST", "give it once",
                    "parameter %.60s is there twice", name);
            return false;
        }
    }
    return true;
}

/* --- which route --- */

static const struct route *find_route(const char *path, const char *method)
{
    for (int i = 0; i < routes_count; i++)
        if (strcmp(routes_table[i].path, path) == 0 &&
            (!method || strcmp(routes_table[i].method, method) == 0))
            return &routes_table[i];
    return NULL;
}

static void reply_unknown(struct http_reply *reply, const char *path)
{
    const struct route *near = NULL;
    int best = INT_MAX;
    char hint[160] = "GET /v1 lists what can be asked";
    for (int i = 0; i < routes_count; i++) {
        int distance = edit_distance(path, routes_table[i].path);
        if (distance < best && suggest_is_near(path, distance)) {
            best = distance;
            near = &routes_table[i];
        }
    }
    if (near)
        snprintf(
                hint, sizeof hint, "did you mean %s %s?", near->method,
                near->path);
    reply_error(reply, 404, "E_NOT_FOUND", hint, "no such path: %.200s", path);
}

static bool may_act(
        const struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    if (!request->may_act)
        reply_error(
                reply, 403, "E_FORBIDDEN", "its owner and root may",
                "user %lld may read, and not give commands",
                (long long)request->uid);
    else if (routes->options.readonly)
        reply_error(
                reply, 403, "E_FORBIDDEN",
                "readonly = false in [control] of the job file",
                "this job takes no commands: control.readonly is true");
    else
        return true;
    return false;
}

void routes_handle(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    struct routes *routes = ctx;
    const struct route *route = find_route(request->path, request->method);
    if (!find_route(request->path, NULL)) {
        reply_unknown(reply, request->path);
        return;
    }
    if (!route) {
        route = find_route(request->path, NULL);
        reply_error(
                reply, 405, "E_METHOD", "GET /v1 lists what can be asked",
                "%s is asked with %s, not %.16s", route->path, route->method,
                request->method);
        reply->allow = route->method;
        return;
    }
    if ((route->acts && !may_act(routes, request, reply)) ||
        !check_params(route, request, reply))
        return;
    if (!route->acts && request->body_bytes) {
        reply_error(
                reply, 400, "E_BAD_REQUEST",
                "leave the body out; parameters go into the query",
                "%s takes no body", route->path);
        return;
    }
    if (routes->options.refresh)
        routes->options.refresh(routes->options.ctx);
    route->answer(routes, request, reply);
}

/* --- those that read --- */

static void answer_hello(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    const struct run_state *state = routes->options.state;
    json_t *capabilities = json_array();
    for (int i = 0; i < routes_count; i++) {
        const char *last = strrchr(routes_table[i].path, '/') + 1;
        if (*last && strcmp(last, "v1") != 0)
            json_array_append_new(capabilities, json_string(last));
    }
    reply_json(
            reply, 200,
            json_pack(
                    "{s:s, s:s, s:i, s:s, s:i, s:f, s:o}", "name", "zerod",
                    "version", ZD_VERSION, "api", 1, "job",
                    state->job->job.name, "pid", (int)getpid(), "started",
                    state->started, "capabilities", capabilities));
}

static void answer_status(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    reply_json(reply, 200, run_state_status(routes->options.state));
}

static void answer_ranks(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    reply_json(reply, 200, run_state_ranks(routes->options.state));
}

static void answer_memory(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    reply_json(reply, 200, run_state_memory(routes->options.state));
}

/* Names separated by commas, into bits. */
static bool add_names(
        const char *list, unsigned *names, struct http_reply *reply)
{
    char hint[SERIES_COUNT * 32] = "";
    for (const char *at = list;; at += strcspn(at, ",") + 1) {
        size_t length = strcspn(at, ",");
        int series = run_series_find(at, length);
        if (series < 0) {
            for (int i = 0; i < SERIES_COUNT; i++)
                snprintf(
                        hint + strlen(hint), sizeof hint - strlen(hint), "%s%s",
                        i ? " " : "", run_series_name((enum run_series)i));
            reply_error(
                    reply, 404, "E_NOT_FOUND", hint, "no such series: %.*s",
                    (int)(length > 60 ? 60 : length), at);
            return false;
        }
        *names |= 1u << series;
        if (!at[length])
            return true;
    }
}

static void answer_history(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    char key[64];
    unsigned names = 0;
    int64_t since = -1, max = 1000; /* step 0 has an evaluation */
    if (!param_integer(request, reply, "since", 0, INT64_MAX, &since) ||
        !param_integer(request, reply, "max", 1, 10000, &max))
        return;
    for (int i = 0; i < request->param_count; i++)
        if (strcmp(request->param_names[i], "name") == 0 &&
            !add_names(request->param_values[i], &names, reply))
            return;
    if (!param_text(request, "name"))
        names = (1u << SERIES_COUNT) - 1;
    snprintf(
            key, sizeof key, "%x %lld %lld", names, (long long)since,
            (long long)max);
    if (cache_reply(routes, CACHED_HISTORY, key, reply))
        return;
    reply_json(
            reply, 200,
            run_state_history(routes->options.state, names, since, (int)max));
    cache_keep(routes, CACHED_HISTORY, key, reply);
}

/* A value that `set` has changed has another origin than the job file. It is
 * what was asked for: the rate of each step follows the schedule from there. */
static void show_setting(
        json_t *values, const char *key, bool is_integer, double value,
        int64_t step)
{
    char origin[64];
    json_t *row = json_object_get(values, key);
    if (step < 0)
        snprintf(origin, sizeof origin, "set before the run was resumed");
    else
        snprintf(origin, sizeof origin, "set after step %lld", (long long)step);
    if (!row)
        return;
    json_object_set_new(
            row, "value",
            is_integer ? json_integer((json_int_t)value) : json_real(value));
    json_object_set_new(row, "origin", json_string(origin));
}

static void answer_config(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    const struct run_state *state = routes->options.state;
    if (cache_reply(routes, CACHED_CONFIG, "", reply))
        return;
    json_t *config = json_deep_copy(routes->options.config);
    json_t *values = json_object_get(config, "values");
    for (int i = 0; i < SETTINGS; i++)
        if (state->is_set[i])
            show_setting(
                    values, train_settings[i].key, train_settings[i].is_integer,
                    state->asked[i], state->set_step[i]);
    if (state->is_set[SET_ACCUMULATION]) /* it makes another batch */
        show_setting(
                values, "train.global_batch_size", true,
                (double)state->global_batch, state->set_step[SET_ACCUMULATION]);
    reply_json(reply, 200, config);
    cache_keep(routes, CACHED_CONFIG, "", reply);
}

static void answer_schema(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    if (cache_reply(routes, CACHED_SCHEMA, "", reply))
        return;
    reply_json(reply, 200, json_incref(routes->options.schema));
    cache_keep(routes, CACHED_SCHEMA, "", reply);
}

static void answer_samples(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    int64_t max = 20;
    if (param_integer(request, reply, "max", 1, SAMPLES_KEPT, &max))
        reply_json(
                reply, 200, run_state_samples(routes->options.state, (int)max));
}

static void answer_plan(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    json_t *plan = routes->options.state->plan;
    if (plan)
        reply_json(reply, 200, json_incref(plan));
    else
        reply_error(
                reply, 404, "E_NOT_FOUND", "ask again when it runs",
                "the job has no plan yet: it is starting");
}

static void answer_health(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    reply_json(reply, 200, json_pack("{s:b}", "ok", 1));
}

static void answer_ready(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    const struct run_state *state = routes->options.state;
    if (state->has_banner && state->step.step > state->first_step)
        reply_json(reply, 200, json_pack("{s:b}", "ready", 1));
    else
        reply_error(
                reply, 503, "E_NOT_READY", NULL,
                "no step was made yet: the job is %s",
                train_run_state_name(state->state));
}

static void answer_metrics(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    bool open = request->accept &&
                strstr(request->accept, "application/openmetrics-text");
    if (routes->options.metrics)
        reply->body = routes->options.metrics(
                routes->options.state, open, &reply->body_bytes);
    if (!reply->body) {
        reply_error(
                reply, 404, "E_NOT_FOUND", "GET /v1 lists what can be asked",
                "this job has no metrics");
        return;
    }
    reply->status = 200;
    reply->content_type =
            open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                 : "text/plain; version=0.0.4; charset=utf-8";
}

static void answer_page(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    if (!routes->options.page) {
        reply_error(
                reply, 404, "E_NOT_FOUND", "GET /v1 lists what can be asked",
                "this job has no page");
        return;
    }
    reply->status = 200;
    reply->content_type = "text/html; charset=utf-8";
    reply->static_body = routes->options.page;
    reply->body_bytes = routes->options.page_bytes;
}

/* --- life --- */

enum zd_status routes_create(
        const struct routes_options *options, struct routes **routes_out)
{
    struct routes *routes = calloc(1, sizeof *routes);
    if (!routes)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    routes->options = *options;
    *routes_out = routes;
    return ZD_OK;
}

void routes_tick(struct routes *routes)
{
    commands_tick(routes);
    events_tick(routes);
    logs_tick(routes);
}

void routes_end(struct routes *routes)
{
    routes->is_over = true;
    commands_end(routes);
    events_end(routes);
    logs_end(routes);
}

void routes_destroy(struct routes *routes)
{
    if (!routes)
        return;
    routes_end(routes);
    cache_clear(routes);
    free(routes);
}
