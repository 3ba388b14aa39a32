/* run_state.c - takes in messages, one after the other.
 */
#include "daemon/state/run_state.h"

#include "base/clock.h"
#include "base/must.h"
#include "daemon/state/messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- life --- */

/* 1 ms to 33 s and 4 s to 36 h, each twice the one before. */
static void set_bounds(struct run_histogram *histogram, double first)
{
    for (int i = 0; i < STEP_BUCKETS; i++)
        histogram->bound[i] = ldexp(first, i);
}

/* Once, so that a status does not touch the file system. */
static void find_output_dir(struct run_state *state)
{
    const char *dir = state->job->job.output_dir;
    char folder[2048];
    if (dir[0] != '/' && getcwd(folder, sizeof folder))
        ZD_PRINT(state->output_dir, "%s/%.2000s", folder, dir);
    else
        ZD_PRINT(state->output_dir, "%s", dir);
}

struct run_state *run_state_create(
        const struct train_job *job, const char *socket_path)
{
    struct run_state *state = zd_array(1, sizeof *state);
    state->series = zd_array(SERIES_MAX, sizeof *state->series);
    state->samples = json_array();
    state->warnings = json_array();
    state->job = job;
    state->socket_path = socket_path;
    find_output_dir(state);
    state->started = state->state_since = clock_wall_seconds();
    state->updated = state->started;
    state->facts.eval_loss = state->facts.best_eval_loss = NAN;
    state->last_checkpoint_step = -1;
    for (int i = 0; i < SETTINGS; i++)
        state->facts.settings[i] = NAN;
    state->facts.settings[SET_MAX_GRAD_NORM] = job->optim.max_grad_norm;
    set_bounds(&state->step_histogram, 0.0078125); /* to 256 s */
    set_bounds(&state->checkpoint_histogram, 0.0625);
    gethostname(state->facts.host, sizeof state->facts.host - 1);
    return state;
}

void run_state_destroy(struct run_state *state)
{
    if (!state)
        return;
    past_fini(&state->events);
    json_decref(state->samples);
    json_decref(state->warnings);
    series_free(state->series);
    json_decref(state->plan);
    free(state->ranks);
    free(state);
}

/* --- numbers --- */

double run_state_last(const struct run_state *state, const char *series)
{
    int i = run_series_find(series);
    const struct history *history = &state->series[i];
    return history->count ? history->last : NAN;
}

static void observe(struct run_histogram *histogram, double seconds)
{
    int i = 0;
    while (i < STEP_BUCKETS && seconds > histogram->bound[i])
        i++;
    histogram->count[i]++;
    histogram->sum += seconds;
}

/* --- events that are kept --- */

/* `members`: of the event's text. */
static void keep_warning(struct run_state *state, const json_t *members)
{
    json_array_append_new(
            state->warnings,
            json_pack(
                    "{s:O?, s:O?, s:O?}", "time",
                    json_object_get(members, "time"), "step",
                    json_object_get(members, "step"), "message",
                    json_object_get(members, "message")));
    if (json_array_size(state->warnings) > WARNINGS_KEPT)
        json_array_remove(state->warnings, 0);
}

static void keep_sample(struct run_state *state, const json_t *members)
{
    json_t *prompt = json_object_get(members, "prompt");
    json_t *text = json_object_get(members, "text");
    if (!json_is_string(prompt) || !json_is_string(text))
        return;
    json_array_insert_new(
            state->samples, 0,
            json_pack(
                    "{s:O?, s:O?, s:O, s:O*, s:O}", "step",
                    json_object_get(members, "step"), "time",
                    json_object_get(members, "time"), "prompt", prompt, "chat",
                    json_object_get(members, "chat"), "text", text));
    json_array_remove(state->samples, SAMPLES_KEPT);
}

/* Events of earlier processes come before what this one has told so far; a
 * `resumed` among that says which of them hold. */
static void take_past(struct run_state *state, struct past *past)
{
    if (!past)
        return;
    for (int i = 0; i < state->events.count; i++)
        past_add(past, &state->events.events[i]);
    past_fini(&state->events);
    state->events = *past;
    free(past);
    json_array_clear(state->samples);
    for (int i = 0; i < state->events.count; i++)
        if (strcmp(state->events.events[i].kind, "sample") == 0) {
            json_auto_t *members =
                    json_loads(state->events.events[i].text, 0, NULL);
            keep_sample(state, members);
        }
}

/* --- what happens --- */

static void take_banner(
        struct run_state *state, const struct message_banner *banner)
{
    json_decref(state->plan);
    state->plan = banner->plan;
    state->has_banner = true;
    state->facts = banner->facts;
    state->step.step = banner->facts.first_step;
    state->step.max_steps = banner->facts.max_steps;
    state->step.loss_scale.scale = banner->loss_scale;
    state->step.learning_rate = NAN;
    for (int i = 0; i < SETTINGS; i++)
        if (banner->live.given[i]) {
            state->is_set[i] = true;
            state->asked[i] = banner->live.value[i];
            state->set_step[i] = -1;
        }
    if (banner->resumed_from[0]) {
        memcpy(state->last_checkpoint, banner->resumed_from,
               sizeof state->last_checkpoint);
        state->last_checkpoint_step = banner->facts.first_step;
        state->last_checkpoint_time = banner->checkpoint_time;
    }
    if (banner->series) { /* rows of earlier processes come first */
        series_free(state->series);
        state->series = banner->series;
    }
    take_past(state, banner->past);
    if (state->state == RUN_STARTING) {
        state->state_since = clock_wall_seconds();
        state->state = RUN_RUNNING;
    }
}

static void take_step(
        struct run_state *state, const struct train_step_report *step)
{
    bool is_early =
            step->step <= state->facts.first_step + 2; /* warms caches */
    state->mean_step_seconds = is_early ? step->step_seconds
                                        : 0.9 * state->mean_step_seconds +
                                                  0.1 * step->step_seconds;
    state->step = *step;
    state->facts.max_steps = step->max_steps;
    state->updated = clock_wall_seconds();
    state->facts.tokens += step->tokens;
    memcpy(state->facts.settings, step->settings, sizeof state->facts.settings);
    state->facts.accumulation = (int)step->settings[SET_ACCUMULATION];
    state->facts.global_batch = step->global_batch;
    state->facts.samples_taken += step->global_batch;
    state->facts.bad_rows = step->bad_rows;
    for (int i = 0; step->skipped && i < SKIP_REASONS; i++)
        state->skipped[i] += strcmp(step->skipped, skip_reasons.name(i)) == 0;
    observe(&state->step_histogram, step->step_seconds);
    train_phases_add(state->phase_seconds, step);
    series_add(state->series, step->step, &step_metrics, step, 1);
}

static double seconds_of(const json_t *members, const char *key)
{
    return json_number_value(json_object_get(members, key));
}

static void take_eval(
        struct run_state *state, const struct message_event *event,
        const json_t *members)
{
    const json_t *value = json_object_get(members, "eval_loss");
    double loss = json_is_number(value) ? json_number_value(value) : NAN;
    state->facts.eval_loss = loss;
    state->eval_step = event->step;
    if (isfinite(loss) && !(state->facts.best_eval_loss <= loss))
        state->facts.best_eval_loss = loss;
    series_add(state->series, event->step, &run_metrics, state, 1);
}

static void take_checkpoint(
        struct run_state *state, const struct message_event *event,
        const json_t *members)
{
    state->last_checkpoint_step = event->step;
    state->last_checkpoint_time = event->time;
    state->checkpoint_bytes = (uint64_t)json_integer_at(members, "bytes");
    ZD_PRINT(state->last_checkpoint, "%s", json_text_of(members, "path", ""));
    state->checkpoint_stall_seconds += seconds_of(members, "stall_seconds");
    state->checkpoint_write_seconds += seconds_of(members, "write_seconds");
    observe(&state->checkpoint_histogram, seconds_of(members, "seconds"));
}

static void leave_state(struct run_state *state, double now)
{
    double seconds = fmax(0, now - state->state_since);
    if (state->state == RUN_EVALUATING)
        state->phase_seconds[PHASE_EVAL] += seconds;
    else if (state->state == RUN_CHECKPOINTING)
        state->phase_seconds[PHASE_CHECKPOINT] += seconds;
}

static void take_state(
        struct run_state *state, const struct message_event *event,
        const json_t *members)
{
    const char *name = json_string_at(members, "state");
    int new = name ? train_run_state_find(name) : -1;
    if (new < 0)
        return;
    leave_state(state, event->time);
    state->state = (enum train_run_state) new;
    state->state_since = event->time;
    if (new == RUN_PAUSED)
        state->is_paused = true;
    else if (new == RUN_RUNNING || new >= RUN_STOPPING)
        state->is_paused = false;
    if (new >= RUN_DONE)
        state->ended = event->time;
}

static const struct kept_event *take_event(
        struct run_state *state, const struct message_event *event)
{
    const char *text = (const char *)(event + 1), *kind = event->kind;
    struct kept_event kept = {
            .id = event->id, .step = event->step, .text = (char *)(event + 1)};
    json_auto_t *members =
            strcmp(kind, "step") ? json_loads(text, 0, NULL) : NULL;
    memcpy(kept.kind, kind, sizeof kept.kind);
    if (strcmp(kind, "eval") == 0)
        take_eval(state, event, members);
    else if (strcmp(kind, "checkpoint") == 0)
        take_checkpoint(state, event, members);
    else if (strcmp(kind, "state") == 0)
        take_state(state, event, members);
    else if (strcmp(kind, "sample") == 0)
        keep_sample(state, members);
    else if (strcmp(kind, "warning") == 0)
        keep_warning(state, members);
    return past_append(&state->events, &kept);
}

/* The trainer does not know: to it the run is running. */
static void take_stall(
        struct run_state *state, const struct message_stall *stall)
{
    enum train_run_state from = stall->is_stalled ? RUN_RUNNING : RUN_STALLED;
    if (state->state != from)
        return;
    state->state = stall->is_stalled ? RUN_STALLED : RUN_RUNNING;
    state->state_since = stall->time;
    state->stall = *stall;
}

static void take_ranks(
        struct run_state *state, const struct message_ranks *ranks)
{
    size_t bytes = (size_t)ranks->count * sizeof *state->ranks;
    state->ranks = zd_must(realloc(state->ranks, bytes));
    memcpy(state->ranks, ranks + 1, bytes);
    state->rank_count = (int)ranks->count;
    series_add(
            state->series, state->ranks[0].step, &rank_metrics, state->ranks,
            state->rank_count);
}

/* --- commands --- */

/* As requested, until the next step's report has them all. */
static void apply_settings(
        struct run_state *state, const struct train_command *command,
        int64_t step)
{
    for (int i = 0; i < SETTINGS; i++) {
        if (!command->given[i])
            continue;
        state->facts.settings[i] = command->value[i];
        state->is_set[i] = true;
        state->asked[i] = command->value[i];
        state->set_step[i] = step;
    }
    if (!command->given[SET_ACCUMULATION] || !state->facts.accumulation)
        return;
    /* with tp_size or cp_size several ranks share a sample */
    int64_t micro = state->facts.global_batch / state->facts.accumulation;
    state->facts.accumulation = (int)command->value[SET_ACCUMULATION];
    state->facts.global_batch = micro * state->facts.accumulation;
}

static void take_done(struct run_state *state, const struct message_done *done)
{
    const struct train_command *command = &done->command;
    if (done->failed) {
        state->checkpoint_failures += command->kind == COMMAND_CHECKPOINT;
        return;
    }
    if (command->kind == COMMAND_SET)
        apply_settings(state, command, done->step);
    else if (command->kind == COMMAND_PAUSE)
        state->is_paused = true;
    else if (command->kind == COMMAND_RESUME)
        state->is_paused = false;
}

const struct kept_event *run_state_take(
        struct run_state *state, enum message_kind kind, const void *payload)
{
    switch (kind) {
    case MESSAGE_BANNER:
        take_banner(state, payload);
        break;
    case MESSAGE_STEP:
        take_step(state, payload);
        break;
    case MESSAGE_STALL:
        take_stall(state, payload);
        break;
    case MESSAGE_RANKS:
        take_ranks(state, payload);
        break;
    case MESSAGE_EVENT:
    case MESSAGE_STEP_EVENT:
        return take_event(state, payload);
    case MESSAGE_DONE:
        take_done(state, payload);
        break;
    case MESSAGE_END:
        memcpy(state->stopped_by, payload, sizeof state->stopped_by);
        break;
    case MESSAGE_COMMAND:
        break;
    }
    return NULL;
}

void run_state_end(struct run_state *state, enum train_run_state how)
{
    if (state->ended > 0 && state->state == how)
        return;
    leave_state(state, clock_wall_seconds());
    state->state = how;
    state->is_paused = false;
    state->ended = state->state_since = clock_wall_seconds();
}
