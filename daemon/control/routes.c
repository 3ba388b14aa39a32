/* routes.c - the table of paths, and what all of them share. */
#include "daemon/control/routes_internal.h"

#include "base/must.h"
#include "base/text_buffer.h"
#include "base/words.h"
#include "daemon/page/page.h"
#include "daemon/sinks/sink.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static route_answer route_hello, route_history, route_config, route_samples,
        route_plan, route_health, route_ready, route_metrics, route_page;

static const struct route {
    const char *method, *path;
    const char *params; /* of the query, separated by spaces; "" for none */
    route_answer *answer;
    json_t *(*json)(const struct run_state *state); /* instead: all it says */
    enum train_command_kind command;                /* of a POST */
    /* clang-format off */
} routes_table[] = {
{"GET", "/v1", "", route_hello},
{"GET", "/v1/status", "", .json = run_state_status},
{"GET", "/v1/ranks", "", .json = run_state_ranks},
{"GET", "/v1/memory", "", .json = run_state_memory},
{"GET", "/v1/metrics/history", "name since max", route_history},
{"GET", "/v1/events", "since follow", route_events},
{"GET", "/v1/logs", "rank tail follow", route_logs},
{"GET", "/v1/config", "", route_config},
{"GET", "/v1/samples", "max", route_samples},
{"GET", "/v1/plan", "", route_plan},
{"POST", "/v1/checkpoint", "", .command = COMMAND_CHECKPOINT},
{"POST", "/v1/eval", "", .command = COMMAND_EVAL},
{"POST", "/v1/sample", "", .command = COMMAND_SAMPLE},
{"POST", "/v1/pause", "", .command = COMMAND_PAUSE},
{"POST", "/v1/resume", "", .command = COMMAND_RESUME},
{"POST", "/v1/stop", "", .command = COMMAND_STOP},
{"POST", "/v1/set", "", .command = COMMAND_SET},
{"POST", "/v1/profile", "", .command = COMMAND_PROFILE},
{"GET", "/healthz", "", route_health},
{"GET", "/readyz", "", route_ready},
{"GET", "/metrics", "", route_metrics},
{"GET", "/", "", route_page},
};
/* clang-format on */
enum { routes_count = sizeof routes_table / sizeof routes_table[0] };

static void route_hello(const struct ask *ask)
{
    const struct run_state *state = ask->state;
    json_t *capabilities = json_array();
    for (int i = 0; i < routes_count; i++) {
        const char *last = strrchr(routes_table[i].path, '/') + 1;
        if (*last && strcmp(last, "v1") != 0)
            json_array_append_new(capabilities, json_string(last));
    }
    http_reply_json(
            ask->reply, 200,
            json_pack(
                    "{s:s, s:s, s:i, s:s, s:s, s:i, s:f, s:o}", "name", "zerod",
                    "version", ZD_VERSION, "api", 1, "job",
                    state->job->job.name, "output_dir", state->output_dir,
                    "pid", (int)getpid(), "started", state->started,
                    "capabilities", capabilities));
}

/* --- GET: what the run's state, the job and its plan say --- */

/* Adds names that are separated by commas, if there are such. */
static bool add_names(
        const struct ask *ask, const char *list, struct text_buffer *names)
{
    struct text_buffer all = TEXT_BUFFER(SERIES_MAX * 32);
    const char *at = list;
    char name[64];
    for (int i = 0; run_series_name(i); i++)
        text_buffer_add(&all, "%s%s", i ? " " : "", run_series_name(i));
    while (words_next(&at, ",", name, sizeof name))
        if (run_series_find(name) < 0)
            return refuse(
                    ask, 404, "E_NOT_FOUND", all.out, "no such series: %s",
                    name);
    text_buffer_add(names, "%s%s", names->used ? "," : "", list);
    return true;
}

static void route_history(const struct ask *ask)
{
    struct text_buffer names = TEXT_BUFFER(HTTP_PARAMS_MAX * SERIES_MAX * 32);
    int64_t since = -1, max = 1000; /* step 0 has an evaluation */
    if (!param_integer(ask, "since", 0, INT64_MAX, &since) ||
        !param_integer(ask, "max", 1, 10000, &max))
        return;
    for (int i = 0; i < ask->request->param_count; i++)
        if (strcmp(ask->request->param_names[i], "name") == 0 &&
            !add_names(ask, ask->request->param_values[i], &names))
            return;
    http_reply_json(
            ask->reply, 200,
            series_json(ask->state->series, names.out, since, (int)max));
}

/* A value that `set` has changed has another origin than the job file. It is
 * what was asked for: the rate of each step follows the schedule from there. */
static void show_setting(
        json_t *values, const char *key, json_t *value, int64_t step)
{
    json_t *row = json_object_get(values, key);
    json_object_set_new(row, "value", value);
    json_object_set_new(
            row, "origin",
            step < 0 ? json_string("set before the run was resumed")
                     : json_sprintf("set after step %lld", (long long)step));
}

static void route_config(const struct ask *ask)
{
    const struct run_state *state = ask->state;
    json_t *config = json_deep_copy(ask->state->config);
    json_t *values = json_object_get(config, "values");
    for (int i = 0; i < SETTINGS; i++)
        if (state->is_set[i])
            show_setting(
                    values, train_settings[i].key,
                    train_settings[i].is_integer
                            ? json_integer((json_int_t)state->asked[i])
                            : json_real(state->asked[i]),
                    state->set_step[i]);
    if (state->is_set[SET_ACCUMULATION]) /* it makes another batch */
        show_setting(
                values, "train.global_batch_size",
                json_integer(state->facts.global_batch),
                state->set_step[SET_ACCUMULATION]);
    http_reply_json(ask->reply, 200, config);
}

static void route_samples(const struct ask *ask)
{
    int64_t max = 20;
    if (param_integer(ask, "max", 1, SAMPLES_KEPT, &max))
        http_reply_json(
                ask->reply, 200, run_state_samples(ask->state, (int)max));
}

static void route_plan(const struct ask *ask)
{
    json_t *plan = ask->state->plan;
    if (plan)
        http_reply_json(ask->reply, 200, json_incref(plan));
    else
        http_error(
                ask->reply, 404, "E_NOT_FOUND", "try again when it runs",
                "the job has no plan yet: it is starting");
}

static void route_health(const struct ask *ask)
{
    http_reply_json(ask->reply, 200, json_pack("{s:b}", "ok", 1));
}

static void route_ready(const struct ask *ask)
{
    const struct run_state *state = ask->state;
    if (state->has_banner && state->step.step > state->facts.first_step)
        http_reply_json(ask->reply, 200, json_pack("{s:b}", "ready", 1));
    else
        http_error(
                ask->reply, 503, "E_NOT_READY", NULL,
                "no step is done yet: the job is %s",
                train_run_state_name(state->state));
}

static void route_metrics(const struct ask *ask)
{
    ask->reply->body = prometheus_write(ask->state, &ask->reply->body_bytes);
    ask->reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

static void route_page(const struct ask *ask)
{
    ask->reply->content_type = "text/html; charset=utf-8";
    ask->reply->static_body = page_html;
    ask->reply->body_bytes = page_html_bytes;
}

/* --- parameters --- */

/* Refuses unknown and repeated ones; `name` may be repeated. */
static bool check_params(const struct ask *ask, const struct route *route)
{
    for (int i = 0; i < ask->request->param_count; i++) {
        const char *name = ask->request->param_names[i];
        bool is_twice =
                param_text(ask, name) != ask->request->param_values[i] &&
                strcmp(name, "name") != 0;
        if (!words_have(route->params, " ", name))
            return refuse(
                    ask, 400, "E_BAD_REQUEST",
                    route->params[0] ? route->params : route->path,
                    route->params[0]
                            ? "%s has no parameter %.60s; the hint lists "
                              "its parameters"
                            : "%s takes no parameters: %.60s",
                    route->path, name);
        if (is_twice)
            return refuse(
                    ask, 400, "E_BAD_REQUEST", "give it only once",
                    "parameter %.60s is given twice", name);
    }
    return true;
}

static bool is_command(const struct route *route)
{
    return strcmp(route->method, "POST") == 0;
}

static const struct route *find_route(const char *path, const char *method)
{
    for (int i = 0; i < routes_count; i++)
        if (strcmp(routes_table[i].path, path) == 0 &&
            (!method || strcmp(routes_table[i].method, method) == 0))
            return &routes_table[i];
    return NULL;
}

static bool check_route(const struct ask *ask, const struct route *route)
{
    const struct route *known = find_route(ask->request->path, NULL);
    if (!known)
        return refuse(
                ask, 404, "E_NOT_FOUND", "GET /v1 lists what can be asked",
                "no such path: %.200s", ask->request->path);
    if (!route) {
        http_error(
                ask->reply, 405, "E_METHOD", "GET /v1 lists what can be asked",
                "%s is asked with %s, not %.16s", known->path, known->method,
                ask->request->method);
        ask->reply->allow = known->method;
        return false;
    }
    if (is_command(route) && ask->routes->options.readonly)
        return refuse(
                ask, 403, "E_FORBIDDEN",
                "readonly = false in [control] of the job file",
                "this job takes no commands: control.readonly is true");
    if (!check_params(ask, route))
        return false;
    return is_command(route) || !ask->request->body_bytes ||
           refuse(ask, 400, "E_BAD_REQUEST",
                  "leave out the body; parameters go in the query",
                  "%s takes no body", route->path);
}

void routes_handle(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    struct routes *routes = ctx;
    const struct ask ask = {routes, routes->options.state, request, reply};
    const struct route *route = find_route(request->path, request->method);
    if (!check_route(&ask, route))
        return;
    if (routes->options.refresh)
        routes->options.refresh(routes->options.ctx);
    if (is_command(route))
        command_answer(&ask, route->command);
    else if (route->json)
        http_reply_json(reply, 200, route->json(ask.state));
    else
        route->answer(&ask);
}

/* --- life --- */

struct routes *routes_create(const struct routes_options *options)
{
    struct routes *routes = zd_array(1, sizeof *routes);
    routes->options = *options;
    return routes;
}

void routes_tick(struct routes *routes)
{
    commands_tick(routes);
    followers_tick(routes);
}

void routes_end(struct routes *routes)
{
    routes->is_over = true;
    commands_end(routes);
    followers_end(routes);
}

void routes_destroy(struct routes *routes)
{
    if (!routes)
        return;
    routes_end(routes);
    free(routes);
}
