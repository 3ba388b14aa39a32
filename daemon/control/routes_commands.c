/* routes_commands.c - POST: a command goes to the trainer and comes back as
 * done or failed. */
#include "base/clock.h"

#include "base/must.h"
#include "base/suggest.h"
#include "daemon/control/routes_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MAX = 7 * 86400, STOP_SECONDS = 300, PROFILE_STEPS = 3 };

struct wish { /* a body, read */
    struct train_command command;
    bool wait;
    double timeout; /* seconds; 0: as long as it takes */
};

#define AT(member) offsetof(struct wish, member)
#define BODY_HINT  "one JSON object, each key once: {\"wait\": true}"

/* --- parameters --- */

const char *param_text(const struct ask *ask, const char *name)
{
    for (int i = 0; i < ask->request->param_count; i++)
        if (strcmp(ask->request->param_names[i], name) == 0)
            return ask->request->param_values[i];
    return NULL;
}

bool param_integer(
        const struct ask *ask, const char *name, int64_t min, int64_t max,
        int64_t *value)
{
    const char *text = param_text(ask, name);
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
    ZD_PRINT(hint, "%s=%lld", name, (long long)example);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: an integer from %lld to %lld is expected",
            name, text, (long long)min, (long long)max);
}

bool param_flag(const struct ask *ask, const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    const char *text = param_text(ask, name);
    if (!text)
        return true;
    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    char hint[100];
    ZD_PRINT(hint, "%s=1", name);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: 0 or 1 is expected", name, text);
}

/* --- what commands take --- */

enum field_type { FIELD_BOOL, FIELD_INTEGER, FIELD_REAL, FIELD_TEXT };

struct field {
    enum train_command_kind of;
    const char *name;
    enum field_type type;
    size_t offset;   /* in struct wish: bool, int, double, char[max + 1] */
    double min, max; /* of a text: its bytes */
    bool is_above_min;
    size_t given; /* of a setting, which is a double: the bool that says so */
};

/* `set` takes the trainer's settings, and every command "wait". */
static const struct field fields[] = {
        {COMMAND_SAMPLE, "prompt", FIELD_TEXT, AT(command.prompt), 1,
         TRAIN_PROMPT_MAX - 1},
        {COMMAND_SAMPLE, "max_new_tokens", FIELD_INTEGER,
         AT(command.max_new_tokens), 1, 1 << 24},
        {COMMAND_SAMPLE, "chat", FIELD_BOOL, AT(command.chat)},
        {COMMAND_STOP, "checkpoint", FIELD_BOOL, AT(command.save)},
        {COMMAND_STOP, "timeout", FIELD_REAL, AT(timeout), 0.001, TIMEOUT_MAX},
        {COMMAND_PROFILE, "steps", FIELD_INTEGER, AT(command.steps), 1,
         TRAIN_PROFILE_MAX}};

enum { FIELDS = sizeof fields / sizeof fields[0], KEYS_MAX = SETTINGS + 3 };

/* --- values --- */

enum { EXPECTED_MAX = 120, EXAMPLE_MAX = 40 };

/* Is the value what the field takes? `expected` says what that is, and
 * `example` is one that would do, as JSON. */
static bool is_fit(
        const struct field *field, const json_t *value,
        char expected[EXPECTED_MAX], char example[EXAMPLE_MAX])
{
    bool is_text = field->type == FIELD_TEXT, is_above = field->is_above_min;
    bool is_integer = field->type == FIELD_INTEGER;
    double low = field->min, high = field->max,
           size = is_text ? (double)json_string_length(value)
                          : json_number_value(value);
    bool is_within = (is_above ? size > low : size >= low) && size <= high;
    if (field->type == FIELD_BOOL) {
        strcpy(expected, "true or false");
        strcpy(example, "true");
        return json_is_boolean(value);
    }
    if (is_text) {
        snprintf(
                expected, EXPECTED_MAX, "a string of %.0f to %.0f bytes", low,
                high);
        strcpy(example, "\"In the beginning\"");
        return json_is_string(value) && is_within;
    }
    snprintf(
            expected, EXPECTED_MAX, "%s %s %.15g %s %.15g",
            is_integer ? "an integer" : "a number", is_above ? "above" : "from",
            low, is_above ? "and at most" : "to", high);
    snprintf(
            example, EXAMPLE_MAX, "%.15g",
            fmin(fmax(is_integer ? 10 : 1e-4, low), high));
    return is_within &&
           (is_integer ? json_is_integer(value) : json_is_number(value));
}

static bool take(
        const struct field *field, const json_t *value, struct wish *wish,
        const struct ask *ask)
{
    char *out = (char *)wish + field->offset;
    char expected[EXPECTED_MAX], example[EXAMPLE_MAX], hint[200];
    const char *name = field->name;
    if (!is_fit(field, value, expected, example)) {
        ZD_PRINT(
                hint, field->given ? "like zerodctl set %s=%s" : "{\"%s\": %s}",
                name, example);
        return refuse(
                ask, 400, "E_BAD_REQUEST", hint, "`%s` must be %s", name,
                expected);
    }
    if (field->given)
        *((char *)wish + field->given) = true;
    if (field->type == FIELD_BOOL)
        *(bool *)out = json_is_true(value);
    else if (field->type == FIELD_TEXT)
        strcpy(out, json_string_value(value));
    else if (field->type == FIELD_INTEGER && !field->given)
        *(int *)out = (int)json_integer_value(value);
    else
        *(double *)out = json_number_value(value);
    return true;
}

/* --- keys --- */

static int list_keys(enum train_command_kind kind, struct field out[KEYS_MAX])
{
    int count = 0;
    for (int i = 0; i < FIELDS; i++)
        if (fields[i].of == kind)
            out[count++] = fields[i];
    for (int i = 0; kind == COMMAND_SET && i < SETTINGS; i++) {
        const struct train_setting *setting = &train_settings[i];
        out[count++] = (struct field){
                .name = setting->name,
                .type = setting->is_integer ? FIELD_INTEGER : FIELD_REAL,
                .offset = AT(command.value[i]),
                .given = AT(command.given[i]),
                .min = setting->min,
                .max = setting->max,
                .is_above_min = setting->is_above_min};
    }
    out[count++] = (struct field){kind, "wait", FIELD_BOOL, AT(wait)};
    return count;
}

static bool unknown_key(
        const struct field *keys, int count, const char *key,
        const struct ask *ask)
{
    char hint[400] = "";
    struct suggestion nearest = {0};
    for (int i = 0; i < count; i++) {
        const char *name = keys[i].name;
        suggest_offer(&nearest, key, edit_distance(key, name), name);
        if (keys[0].given && !keys[i].given)
            continue; /* beside settings, "wait" is none */
        snprintf(
                hint + strlen(hint), sizeof hint - strlen(hint), "%s%s",
                i ? ", " : "it takes ", name);
    }
    if (nearest.word)
        ZD_PRINT(hint, "did you mean `%s`?", nearest.word);
    return refuse(ask, 400, "E_BAD_REQUEST", hint, "unknown key `%.60s`", key);
}

static bool take_keys(
        enum train_command_kind kind, json_t *body, struct wish *wish,
        const struct ask *ask)
{
    struct field keys[KEYS_MAX];
    int count = list_keys(kind, keys);
    bool has_setting = kind != COMMAND_SET;
    JSON_MEMBERS(name, value, body) {
        int i = 0;
        while (i < count && strcmp(keys[i].name, name) != 0)
            i++;
        if (i == count)
            return unknown_key(keys, count, name, ask);
        if (!take(&keys[i], value, wish, ask))
            return false;
        has_setting |= keys[i].given > 0;
    }
    return has_setting ||
           refuse(ask, 400, "E_BAD_REQUEST", "{\"learning_rate\": 1e-4}",
                  "there is no setting in the body");
}

/* --- the body --- */

static bool body_read(
        const struct ask *ask, enum train_command_kind kind,
        struct wish *wish_out)
{
    json_error_t error;
    char why[300] = "is not a JSON object";
    const char *text = ask->request->body;
    size_t bytes = ask->request->body_bytes;
    json_auto_t *body =
            strspn(text, " \t\r\n") == bytes
                    ? json_object()
                    : json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    bool is_object = json_is_object(body);
    *wish_out = (struct wish){
            .command = {.kind = kind, .save = true, .steps = PROFILE_STEPS},
            .timeout = kind == COMMAND_STOP ? STOP_SECONDS : 0};
    if (!body)
        ZD_PRINT(
                why, "cannot be read: %.200s (line %d, column %d)", error.text,
                error.line, error.column);
    return is_object ? take_keys(kind, body, wish_out, ask)
                     : refuse(ask, 400, "E_BAD_REQUEST", BODY_HINT,
                              "the body %s", why);
}

/* --- waiting clients --- */

/* The command goes on without its client. */
static void on_gone(void *owner)
{
    struct waiter *waiter = owner;
    waiter->stream = NULL;
}

/* Takes the reference; the waiter's client has its answer then. */
static void answer(struct waiter *waiter, int status, json_t *json)
{
    struct http_reply reply;
    struct http_stream *stream = waiter->stream;
    http_reply_json(&reply, status, json);
    if (stream) {
        http_set_status(stream, reply.status, reply.content_type);
        if (http_send(stream, reply.body, reply.body_bytes))
            http_finish(stream);
    }
    waiter->stream = NULL;
    free(reply.body);
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

#define conflict(ask, ...) refuse(ask, 409, "E_CONFLICT", __VA_ARGS__)

static bool check_pause(const struct ask *ask, enum train_command_kind kind)
{
    const struct run_state *state = ask->state;
    bool holds = state->is_paused && !state->pending[COMMAND_RESUME];
    bool runs = !state->is_paused && !state->pending[COMMAND_PAUSE];
    if (kind == COMMAND_PAUSE && holds)
        return conflict(
                ask, "zerodctl resume (POST /v1/resume) continues it",
                "the run is already paused");
    return kind != COMMAND_RESUME || !runs ||
           conflict(
                   ask, "zerodctl pause (POST /v1/pause) pauses it",
                   "the run is not paused");
}

static bool check_accumulation(const struct ask *ask, double micros)
{
    const struct run_facts *facts = &ask->state->facts;
    bool has_batch = ask->state->job->train.global_batch_size > 0;
    double micro = (double)facts->global_batch / fmax(facts->accumulation, 1);
    char hint[300];
    if (micros <= facts->accumulation_max)
        return true;
    ZD_PRINT(
            hint,
            "at most zerodctl set gradient_accumulation_steps=%d; for more "
            "stop the run, set train.%s = %.0f in the job file and start it "
            "again: it goes on from its checkpoint",
            facts->accumulation_max,
            has_batch ? "global_batch_size" : "gradient_accumulation_steps",
            has_batch ? micros * micro : micros);
    return conflict(
            ask, hint,
            "gradient_accumulation_steps cannot be %.0f in this run: the "
            "planned memory has room for %d micro-batches of a step",
            micros, facts->accumulation_max);
}

/* What this job has no data, prompts, strategy or memory for. */
static bool check_able(
        const struct ask *ask, const struct train_command *command)
{
    const struct run_state *state = ask->state;
    const struct train_job *job = state->job;
    bool knows = state->has_banner;
    if (command->kind == COMMAND_EVAL && knows && !state->facts.has_eval_data)
        return conflict(
                ask, "[[data.eval]] or data.val_split in the job file",
                "the job has no evaluation data");
    if (command->kind == COMMAND_SAMPLE && !command->prompt[0] &&
        job->sample.prompt_count == 0)
        return conflict(
                ask, "{\"prompt\": \"..\"}, or sample.prompts in the job file",
                "the job has no prompts of its own");
    if (command->given[SET_SAVE_STEPS] &&
        job->checkpoint.save_strategy != SAVE_STEPS)
        return conflict(
                ask, "checkpoint.save_strategy = \"steps\" in the job file",
                "checkpoint.save_strategy is not \"steps\": save_steps would "
                "change nothing");
    if (command->given[SET_EVAL_STEPS] && job->eval.eval_strategy != EVAL_STEPS)
        return conflict(
                ask, "eval.eval_strategy = \"steps\" in the job file",
                "eval.eval_strategy is not \"steps\": eval_steps would change "
                "nothing");
    return !command->given[SET_ACCUMULATION] || !knows ||
           check_accumulation(ask, command->value[SET_ACCUMULATION]);
}

static bool check_now(
        const struct ask *ask, const struct train_command *command)
{
    const struct run_state *state = ask->state;
    const char *name = train_command_name(command->kind);
    if (command->kind == COMMAND_STOP && state->state == RUN_STOPPING)
        return conflict(
                ask, "GET /v1/status says how far it is",
                "the run is already stopping");
    if (ask->routes->is_over || state->state >= RUN_STOPPING)
        return refuse(
                ask, 503, "E_ENDING",
                "start the same command again to continue",
                "the run is %s; %s was not done",
                train_run_state_name(state->state), name);
    if (state->pending[command->kind])
        return conflict(
                ask,
                "zerodctl status (GET /v1/status: `pending`) tells what waits",
                "another %s is still waiting for its step boundary", name);
    return check_pause(ask, command->kind) && check_able(ask, command);
}

/* --- to the trainer --- */

void command_answer(const struct ask *ask, enum train_command_kind kind)
{
    struct wish wish;
    struct train_command *command = &wish.command;
    if (!body_read(ask, kind, &wish) || !check_now(ask, command))
        return;
    struct waiter *waiter = zd_array(1, sizeof *waiter);
    command->id = ++ask->routes->last_id;
    command->uid = ask->request->uid;
    command->pid = ask->request->pid;
    if (!ask->routes->options.post(ask->routes->options.ctx, command)) {
        free(waiter);
        http_error(
                ask->reply, 409, "E_CONFLICT", "try again after the next step",
                "too many commands are waiting");
        return;
    }
    *waiter = (struct waiter){
            .next = ask->routes->waiters,
            .routes = ask->routes,
            .id = command->id,
            .kind = command->kind,
            .until = wish.timeout > 0 ? clock_seconds() + wish.timeout : 0};
    ask->routes->waiters = waiter;
    ask->routes->options.state->pending[command->kind]++;
    if (wish.wait)
        waiter->stream = http_defer(ask->reply, on_gone, waiter);
    if (!waiter->stream)
        http_reply_json(ask->reply, 202, accepted_json(waiter));
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
    answer(waiter, status, http_error_json(code, error->what, error->help));
}

/* The result as docs/control.md has it. */
static json_t *result_json(
        const struct routes *routes, enum train_command_kind kind,
        const json_t *result)
{
    json_t *object = kind == COMMAND_SET
                             ? run_state_settings(routes->options.state)
                             : json_object();
    if (kind == COMMAND_SAMPLE && json_object_get(result, "prompt"))
        json_object_set_new(
                object, "samples", json_pack("[O]", (json_t *)result));
    else
        json_object_update(object, (json_t *)result);
    return object;
}

void routes_done(struct routes *routes, const struct message_done *done)
{
    struct waiter *waiter = routes->waiters;
    while (waiter && waiter->id != done->command.id)
        waiter = waiter->next;
    if (!waiter)
        return; /* of a deadline */
    if (done->failed)
        answer_failed(waiter, &done->error);
    else
        answer(waiter, 200,
               json_pack(
                       "{s:b, s:I, s:s, s:I, s:o}", "done", 1, "id",
                       (json_int_t)waiter->id, "command",
                       train_command_name(waiter->kind), "step",
                       (json_int_t)done->step, "result",
                       result_json(routes, waiter->kind, done->result)));
    forget(waiter);
}

/* After its timeout a client learns that its command was accepted. */
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
               http_error_json(
                       "E_ENDING",
                       "the run has ended; the command was not done", NULL));
        forget(routes->waiters);
    }
}
