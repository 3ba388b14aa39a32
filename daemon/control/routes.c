/* routes.c - the table of paths, and what all of them share. */
#include "daemon/control/routes_internal.h"

#include "base/must.h"
#include "base/suggest.h"
#include "base/words.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static route_answer route_hello;

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

static bool unknown_path(const struct ask *ask)
{
    const char *path = ask->request->path;
    struct suggestion nearest = {0};
    char hint[160] = "GET /v1 lists what can be asked";
    for (int i = 0; i < routes_count; i++) {
        const char *known = routes_table[i].path;
        suggest_offer(&nearest, path, edit_distance(path, known), known);
    }
    if (nearest.word)
        snprintf(
                hint, sizeof hint, "did you mean %s %s?",
                find_route(nearest.word, NULL)->method, nearest.word);
    return refuse(ask, 404, "E_NOT_FOUND", hint, "no such path: %.200s", path);
}

static bool other_method(const struct ask *ask, const struct route *known)
{
    http_error(
            ask->reply, 405, "E_METHOD", "GET /v1 lists what can be asked",
            "%s is asked with %s, not %.16s", known->path, known->method,
            ask->request->method);
    ask->reply->allow = known->method;
    return false;
}

static bool may_act(const struct ask *ask)
{
    return !ask->routes->options.readonly ||
           refuse(ask, 403, "E_FORBIDDEN",
                  "readonly = false in [control] of the job file",
                  "this job takes no commands: control.readonly is true");
}

static bool check_route(const struct ask *ask, const struct route *route)
{
    const struct route *known = find_route(ask->request->path, NULL);
    if (!known)
        return unknown_path(ask);
    if (!route)
        return other_method(ask, known);
    if ((is_command(route) && !may_act(ask)) || !check_params(ask, route))
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
