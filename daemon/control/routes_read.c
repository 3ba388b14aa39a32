/* routes_read.c - GET: what the run's state, the job and its plan say. */
#include "base/text_buffer.h"
#include "daemon/control/routes_internal.h"
#include "daemon/page/page.h"
#include "daemon/sinks/sink.h"

#include <string.h>

/* Adds names that are separated by commas, if there are such. */
static bool add_names(
        const struct ask *ask, const char *list, struct text_buffer *names)
{
    char hint[SERIES_MAX * 32] = "";
    struct text_buffer all = {hint, sizeof hint, 0};
    const char *at = list;
    size_t length = strcspn(at, ",");
    while (run_series_find(at, length) >= 0 && at[length]) {
        at += length + 1;
        length = strcspn(at, ",");
    }
    text_buffer_add(names, "%s%s", names->used ? "," : "", list);
    if (run_series_find(at, length) >= 0)
        return true;
    for (int i = 0; run_series_name(i); i++)
        text_buffer_add(&all, "%s%s", i ? " " : "", run_series_name(i));
    return refuse(
            ask, 404, "E_NOT_FOUND", hint, "no such series: %.*s",
            (int)(length > 60 ? 60 : length), at);
}

void route_history(const struct ask *ask)
{
    char text[HTTP_PARAMS_MAX * SERIES_MAX * 32] = "";
    struct text_buffer names = {text, sizeof text, 0};
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
            series_json(ask->state->series, text, since, (int)max));
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

void route_config(const struct ask *ask)
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

void route_samples(const struct ask *ask)
{
    int64_t max = 20;
    if (param_integer(ask, "max", 1, SAMPLES_KEPT, &max))
        http_reply_json(
                ask->reply, 200, run_state_samples(ask->state, (int)max));
}

void route_plan(const struct ask *ask)
{
    json_t *plan = ask->state->plan;
    if (plan)
        http_reply_json(ask->reply, 200, json_incref(plan));
    else
        http_error(
                ask->reply, 404, "E_NOT_FOUND", "try again when it runs",
                "the job has no plan yet: it is starting");
}

void route_health(const struct ask *ask)
{
    http_reply_json(ask->reply, 200, json_pack("{s:b}", "ok", 1));
}

void route_ready(const struct ask *ask)
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

void route_metrics(const struct ask *ask)
{
    ask->reply->body = prometheus_write(ask->state, &ask->reply->body_bytes);
    ask->reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

void route_page(const struct ask *ask)
{
    ask->reply->content_type = "text/html; charset=utf-8";
    ask->reply->static_body = page_html;
    ask->reply->body_bytes = page_html_bytes;
}
