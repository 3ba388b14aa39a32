/* routes_commands.c - POST: a body becomes a command, which goes to the trainer
 * and comes back as done or failed. */
#include "base/clock.h"
#include "daemon/control/routes_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_DEFAULT = 300, TIMEOUT_MAX = 7 * 86400 }; /* seconds */

/* --- those who wait --- */

static struct waiter *find_waiter(struct routes *routes, int64_t id)
{
    struct waiter *waiter = routes->waiters;
    while (waiter && waiter->id != id)
        waiter = waiter->next;
    return waiter;
}

/* The command goes on without its client. */
static void on_gone(void *owner)
{
    struct waiter *waiter = owner;
    waiter->stream = NULL;
}

/* Takes the reference; the waiter's client has its answer then. */
static void answer(struct waiter *waiter, int status, json_t *json)
{
    size_t bytes;
    struct http_stream *stream = waiter->stream;
    char *text = stream ? routes_dump(json, &bytes) : NULL;
    if (!stream) {
        json_decref(json);
        return;
    }
    http_set_status(stream, status, HTTP_JSON);
    if (!text || http_send(stream, text, bytes)) {
        waiter->stream = NULL;
        http_finish(stream);
    }
    waiter->stream = NULL;
    free(text);
}

static void forget(struct waiter *waiter)
{
    struct routes *routes = waiter->routes;
    struct waiter **at = &routes->waiters;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    routes->options.state->pending[waiter->kind]--;
    free(waiter);
}

static json_t *accepted_json(const struct waiter *waiter)
{
    return json_pack(
            "{s:b, s:I, s:s}", "accepted", 1, "id", (json_int_t)waiter->id,
            "command", train_command_name(waiter->kind));
}

/* --- may it be asked for now? --- */

static bool conflict(
        struct http_reply *reply, const char *hint, const char *message)
{
    reply_error(reply, 409, "E_CONFLICT", hint, "%s", message);
    return false;
}

static bool check_pause(
        const struct run_state *state, const struct train_command *command,
        struct http_reply *reply)
{
    bool holds = state->is_paused && !state->pending[COMMAND_RESUME];
    if (command->kind == COMMAND_PAUSE && holds)
        return conflict(
                reply, "zerodctl resume (POST /v1/resume) makes it go on",
                "the run is paused already");
    if (command->kind == COMMAND_RESUME && !state->is_paused &&
        !state->pending[COMMAND_PAUSE])
        return conflict(
                reply, "zerodctl pause (POST /v1/pause) holds it",
                "the run is not paused");
    return true;
}

/* What this job has no data, prompts or strategy for. */
static bool check_able(
        const struct run_state *state, const struct train_command *command,
        struct http_reply *reply)
{
    const struct train_job *job = state->job;
    bool knows = state->has_banner;
    if (command->kind == COMMAND_EVAL && knows && !state->has_eval_data)
        return conflict(
                reply, "[[data.eval]] or data.val_split in the job file",
                "the job has no evaluation data");
    if (command->kind == COMMAND_SAMPLE && !command->prompt[0] &&
        job->sample.prompt_count == 0)
        return conflict(
                reply,
                "{\"prompt\": \"..\"}, or sample.prompts in the job file",
                "the job has no prompts of its own");
    if (command->given[SET_SAVE_STEPS] &&
        job->checkpoint.save_strategy != SAVE_STEPS)
        return conflict(
                reply, "checkpoint.save_strategy = \"steps\" in the job file",
                "checkpoint.save_strategy is not \"steps\": save_steps would "
                "change nothing");
    if (command->given[SET_EVAL_STEPS] && job->eval.eval_strategy != EVAL_STEPS)
        return conflict(
                reply, "eval.eval_strategy = \"steps\" in the job file",
                "eval.eval_strategy is not \"steps\": eval_steps would change "
                "nothing");
    return true;
}

/* More than the memory that was planned keeps is known before the boundary. */
static bool check_room(
        const struct run_state *state, const struct train_command *command,
        struct http_reply *reply)
{
    double wanted = command->value[SET_ACCUMULATION];
    if (!command->given[SET_ACCUMULATION] || !state->has_banner ||
        wanted <= state->accumulation_max)
        return true;
    reply_error(
            reply, 409, "E_CONFLICT",
            "stop the run, set it in the job file, and start it again: it goes "
            "on from its checkpoint",
            "the memory that was planned keeps %d micro-batches of a step at "
            "most, not %.0f",
            state->accumulation_max, wanted);
    return false;
}

static bool check_now(
        struct routes *routes, const struct train_command *command,
        struct http_reply *reply)
{
    const struct run_state *state = routes->options.state;
    const char *name = train_command_name(command->kind);
    if (command->kind == COMMAND_STOP && state->state == RUN_STOPPING)
        return conflict(
                reply, "GET /v1/status tells how far it is",
                "the run is stopping already");
    if (routes->is_over || state->state >= RUN_STOPPING) {
        reply_error(
                reply, 503, "E_ENDING", "start the same command again to go on",
                "the run is %s; %s was not done",
                train_run_state_name(state->state), name);
        return false;
    }
    if (state->pending[command->kind]) {
        reply_error(
                reply, 409, "E_CONFLICT",
                "zerodctl status (GET /v1/status: `pending`) tells "
                "what waits",
                "another %s is still waiting for its step boundary", name);
        return false;
    }
    return check_pause(state, command, reply) &&
           check_able(state, command, reply) &&
           check_room(state, command, reply);
}

/* --- to the trainer --- */

struct wish {
    bool wait;
    double timeout; /* seconds; 0: as long as it takes */
};

/* `reply` is 202, or an answer that comes when the command was done. */
static void submit(
        struct routes *routes, const struct http_request *request,
        struct train_command *command, const struct wish *wish,
        struct http_reply *reply)
{
    if (!check_now(routes, command, reply))
        return;
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter) {
        reply_error(reply, 500, "E_FAILED", NULL, "out of memory");
        return;
    }
    command->id = ++routes->last_id;
    command->uid = request->uid;
    command->pid = request->pid;
    if (!routes->options.post(routes->options.ctx, command)) {
        free(waiter);
        reply_error(
                reply, 409, "E_CONFLICT", "ask again after the next step",
                "too many commands wait");
        return;
    }
    *waiter = (struct waiter){
            .next = routes->waiters,
            .routes = routes,
            .id = command->id,
            .kind = command->kind,
            .until = wish->timeout > 0 ? clock_seconds() + wish->timeout : 0};
    routes->waiters = waiter;
    routes->options.state->pending[command->kind]++;
    if (wish->wait)
        waiter->stream = http_defer(reply, on_gone, waiter);
    if (!waiter->stream)
        reply_json(reply, 202, accepted_json(waiter));
}

static void answer_failed(struct waiter *waiter, const struct zd_error *error)
{
    int status = 500;
    const char *code = "E_FAILED";
    if (error->status == ZD_ERR_STOPPED) {
        status = 503;
        code = "E_ENDING";
    } else if (
            error->status == ZD_ERR_USAGE ||
            (error->status == ZD_ERR_UNFIT && waiter->kind == COMMAND_SET)) {
        status = 409;
        code = "E_CONFLICT";
    } else if (error->status == ZD_ERR_DATA && waiter->kind == COMMAND_SAMPLE) {
        status = 400; /* a prompt that is too long */
        code = "E_BAD_REQUEST";
    }
    answer(waiter, status, error_json(code, error->what, error->help));
}

/* The result as docs/control.md has it. */
static json_t *result_json(
        const struct routes *routes, enum train_command_kind kind,
        const json_t *result)
{
    json_t *object = kind == COMMAND_SET
                             ? run_state_settings(routes->options.state)
                             : json_object();
    json_t *sample = NULL;
    if (kind == COMMAND_SAMPLE && json_object_get(result, "prompt")) {
        sample = json_pack("[O]", (json_t *)result);
        json_object_set_new(object, "samples", sample);
    } else if (json_is_object(result))
        json_object_update(object, (json_t *)result);
    return object;
}

void routes_done(
        struct routes *routes, const struct train_command *command,
        int64_t step, const struct zd_error *error, const json_t *result)
{
    struct waiter *waiter = find_waiter(routes, command->id);
    cache_clear(routes);
    if (!waiter)
        return; /* of a replay, or a deadline */
    if (error)
        answer_failed(waiter, error);
    else
        answer(waiter, 200,
               json_pack(
                       "{s:b, s:I, s:s, s:I, s:o}", "done", 1, "id",
                       (json_int_t)waiter->id, "command",
                       train_command_name(command->kind), "step",
                       (json_int_t)step, "result",
                       result_json(routes, command->kind, result)));
    forget(waiter);
}

/* One whose time is over hears that it was accepted. */
void commands_tick(struct routes *routes)
{
    double now = clock_seconds();
    for (struct waiter *w = routes->waiters; w; w = w->next)
        if (w->stream && w->until > 0 && now > w->until)
            answer(w, 202, accepted_json(w));
}

void commands_end(struct routes *routes)
{
    while (routes->waiters) {
        answer(routes->waiters, 503,
               error_json(
                       "E_ENDING",
                       "the run has ended; the command was not done", NULL));
        forget(routes->waiters);
    }
}

/* --- the commands --- */

#define WAIT_FIELD(wish)                                                       \
    {                                                                          \
        "wait", FIELD_BOOL, 0, 0, &(wish).wait, NULL                           \
    }

static void plain(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply, enum train_command_kind kind)
{
    struct train_command command = {.kind = kind};
    struct wish wish = {0};
    const struct field fields[] = {WAIT_FIELD(wish)};
    if (body_read_fields(request, fields, 1, reply))
        submit(routes, request, &command, &wish, reply);
}

void route_checkpoint(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    plain(routes, request, reply, COMMAND_CHECKPOINT);
}

void route_eval(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    plain(routes, request, reply, COMMAND_EVAL);
}

void route_pause(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    plain(routes, request, reply, COMMAND_PAUSE);
}

void route_resume(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    plain(routes, request, reply, COMMAND_RESUME);
}

void route_sample(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    struct train_command command = {.kind = COMMAND_SAMPLE};
    struct wish wish = {0};
    bool has_prompt = false;
    const struct field fields[] = {
            {"prompt", FIELD_TEXT, 0, TRAIN_PROMPT_MAX - 1, command.prompt,
             &has_prompt},
            {"max_new_tokens", FIELD_COUNT, 1, 1 << 24, &command.max_new_tokens,
             NULL},
            WAIT_FIELD(wish)};
    if (!body_read_fields(request, fields, 3, reply))
        return;
    if (has_prompt && !command.prompt[0])
        body_wrong(reply, "prompt", "a text", "\"In the beginning\"");
    else
        submit(routes, request, &command, &wish, reply);
}

void route_stop(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    struct train_command command = {.kind = COMMAND_STOP, .save = true};
    struct wish wish = {.timeout = TIMEOUT_DEFAULT};
    const struct field fields[] = {
            {"checkpoint", FIELD_BOOL, 0, 0, &command.save, NULL},
            {"timeout", FIELD_SECONDS, 0.001, TIMEOUT_MAX, &wish.timeout, NULL},
            WAIT_FIELD(wish)};
    if (body_read_fields(request, fields, 3, reply))
        submit(routes, request, &command, &wish, reply);
}

void route_profile(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    struct train_command command = {.kind = COMMAND_PROFILE, .steps = 3};
    struct wish wish = {0};
    const struct field fields[] = {
            {"steps", FIELD_COUNT, 1, TRAIN_PROFILE_MAX, &command.steps, NULL},
            WAIT_FIELD(wish)};
    if (body_read_fields(request, fields, 2, reply))
        submit(routes, request, &command, &wish, reply);
}

/* --- set --- */

static int find_setting(const char *key)
{
    for (int i = 0; i < SETTINGS; i++)
        if (strcmp(train_settings[i].name, key) == 0)
            return i;
    return -1;
}

static bool take_setting(
        const struct train_setting *setting, const json_t *value, double *out,
        struct http_reply *reply)
{
    char expected[120];
    double number = json_number_value(value);
    bool is_above = setting->is_above_min ? number > setting->min
                                          : number >= setting->min;
    snprintf(
            expected, sizeof expected, "%s %s %.15g, at most %.15g",
            setting->is_integer ? "an integer" : "a number",
            setting->is_above_min ? "above" : "of at least", setting->min,
            setting->max);
    if (!json_is_number(value) ||
        (setting->is_integer && !json_is_integer(value)) ||
        !(isfinite(number) && is_above && number <= setting->max))
        return body_wrong(
                reply, setting->name, expected,
                setting->is_integer ? "10" : "1e-4");
    *out = number;
    return true;
}

static bool take_settings(
        json_t *body, struct train_command *command, struct wish *wish,
        struct http_reply *reply)
{
    const char *key, *names[SETTINGS + 1];
    const struct field wait = WAIT_FIELD(*wish);
    bool has_some = false;
    json_t *value;
    for (int i = 0; i < SETTINGS; i++)
        names[i] = train_settings[i].name;
    names[SETTINGS] = wait.name;
    json_object_foreach(body, key, value)
    {
        int i = find_setting(key);
        bool is_good = true;
        if (i >= 0) {
            is_good = take_setting(
                    &train_settings[i], value, &command->value[i], reply);
            command->given[i] = has_some = true;
        } else if (strcmp(key, wait.name) == 0)
            is_good = body_take(&wait, value, reply);
        else
            is_good = body_unknown_key(reply, key, names, SETTINGS + 1);
        if (!is_good)
            return false;
    }
    if (!has_some)
        reply_error(
                reply, 400, "E_BAD_REQUEST", "{\"learning_rate\": 1e-4}",
                "there is no setting in the body");
    return has_some;
}

void route_set(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    struct train_command command = {.kind = COMMAND_SET};
    struct wish wish = {0};
    json_t *body = body_read(request, reply);
    if (body && take_settings(body, &command, &wish, reply))
        submit(routes, request, &command, &wish, reply);
    json_decref(body);
}
