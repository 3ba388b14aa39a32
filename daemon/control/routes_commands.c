/* routes_commands.c - POST: a command goes to the trainer and comes back as
 * done or failed. */
#include "base/clock.h"
#include "base/must.h"
#include "daemon/control/routes_internal.h"

#include <math.h>
#include <stdlib.h>

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
