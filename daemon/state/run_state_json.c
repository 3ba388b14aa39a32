/* run_state_json.c - what is known, as docs/control.md says it. */
#include "base/file/fs.h"
#include "base/log.h"
#include "daemon/state/run_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value ? value : json_null());
}

static void set_integer(json_t *object, const char *key, int64_t value)
{
    set(object, key, json_integer(value));
}

static void set_number(json_t *object, const char *key, double value)
{
    set(object, key, json_number_or_null(value));
}

/* What data and models say need not be UTF-8. */
static json_t *text_json(const char *text)
{
    json_t *json = text ? json_string(text) : NULL;
    return json || !text ? json : json_string("(not UTF-8)");
}

static void set_text(json_t *object, const char *key, const char *text)
{
    set(object, key, text_json(text));
}

/* null where it is not known yet. */
static void set_known(
        json_t *object, const char *key, int64_t value, bool is_known)
{
    set(object, key, is_known ? json_integer(value) : NULL);
}

static json_t *phases_json(const double *seconds)
{
    json_t *object = json_object();
    for (int i = 0; i < PHASES; i++)
        set_number(object, train_phase_name((enum train_phase)i), seconds[i]);
    return object;
}

/* --- settings --- */

/* null where one does not apply. */
static void set_settings(json_t *object, const struct run_state *state)
{
    for (int i = 0; i < SETTINGS; i++) {
        double value = state->settings[i];
        bool is_whole = train_settings[i].is_integer && isfinite(value);
        set(object, train_settings[i].name,
            is_whole ? json_integer((json_int_t)value)
                     : json_number_or_null(value));
    }
}

json_t *run_state_settings(const struct run_state *state)
{
    json_t *object = json_object();
    set_settings(object, state);
    return object;
}

/* --- status --- */

static void set_progress(json_t *object, const struct run_state *state)
{
    bool known = state->has_banner;
    double epoch = state->samples_per_epoch > 0
                           ? (double)state->samples_taken /
                                     (double)state->samples_per_epoch
                           : NAN;
    const struct train_step_report *step = &state->step;
    set_integer(object, "step", step->step);
    set_known(object, "max_steps", state->max_steps, known);
    set_number(object, "epoch", epoch);
    set_number(object, "loss", state->last_loss);
    set_number(object, "eval_loss", state->eval_loss);
    set_number(object, "best_eval_loss", state->best_eval_loss);
    set_number(object, "grad_norm", state->last_grad_norm);
    set_number(
            object, "loss_scale",
            step->loss_scale.scale > 0 ? step->loss_scale.scale : NAN);
    set_integer(object, "tokens", state->tokens);
    set_integer(object, "samples", state->samples_taken);
}

static void set_speed(json_t *object, const struct run_state *state)
{
    double seconds = state->mean_step_seconds;
    double rate = seconds > 0 ? (double)state->step.tokens / seconds : NAN;
    double now = state->ended > 0 ? state->ended : run_state_now();
    set_number(object, "tokens_per_second", rate);
    set_number(object, "step_seconds", seconds > 0 ? seconds : NAN);
    set_number(
            object, "model_flops_per_second",
            state->flops_per_token > 0 ? rate * state->flops_per_token : NAN);
    set(object, "mfu", NULL); /* a CPU has no peak that we know */
    set_number(object, "eta_seconds", run_state_eta(state));
    set_number(object, "elapsed_seconds", now - state->started);
    set_number(object, "started", state->started);
    set_number(object, "updated", state->updated);
}

/* The GPU of the rank that holds most. */
static void set_device(json_t *object, const struct run_state *state)
{
    const struct train_rank_report *most = NULL;
    for (int r = 0; r < state->rank_count; r++)
        if (!most || state->ranks[r].gpu.held > most->gpu.held)
            most = &state->ranks[r];
    bool on_gpu = most && most->gpu.name[0];
    set_text(object, "device", on_gpu ? "cuda" : "cpu");
    json_t *gpu = on_gpu ? train_gpu_json(&most->gpu) : NULL;
    if (gpu)
        set_integer(gpu, "rank", most->rank);
    set(object, "gpu", gpu);
}

static void set_shape(json_t *object, const struct run_state *state)
{
    const struct train_job *job = state->job;
    bool known = state->has_banner;
    set_known(object, "world", state->world, known);
    set_known(object, "stage", state->zero_stage, known);
    set_text(object, "dtype", dtype_name(job->train.dtype));
    set_text(object, "optimizer", train_optimizer_name(job->optim.name));
    set_known(object, "parameters", state->parameters, known);
    set_known(object, "trainable_parameters", state->trainable, known);
    set_known(object, "all_parameters", state->parameters, known);
    const json_t *told = json_object_get(state->plan, "parameters");
    set(object, "base_format",
        json_incref(json_object_get(told, "base_format")));
    set(object, "adapters", json_incref(json_object_get(told, "adapters")));
    set_device(object, state);
    set_known(object, "global_batch_size", state->global_batch, known);
    set_known(object, "per_device_train_batch_size", state->per_device, known);
    set_integer(
            object, "skipped_steps",
            state->skipped_overflow + state->skipped_nonfinite +
                    state->skipped_no_targets);
}

static void set_checkpoint(json_t *object, const struct run_state *state)
{
    bool has = state->last_checkpoint_step >= 0;
    set_text(object, "last_checkpoint", has ? state->last_checkpoint : NULL);
    set_known(object, "last_checkpoint_step", state->last_checkpoint_step, has);
    set_number(
            object, "last_checkpoint_time",
            has && state->last_checkpoint_time > 0 ? state->last_checkpoint_time
                                                   : NAN);
}

static json_t *pending_json(const struct run_state *state)
{
    json_t *array = json_array();
    for (int kind = 0; kind < COMMAND_KINDS; kind++)
        for (int i = 0; i < state->pending[kind]; i++)
            json_array_append_new(
                    array, json_string(train_command_name(
                                   (enum train_command_kind)kind)));
    return array;
}

static json_t *warnings_json(const struct run_state *state)
{
    json_t *array = json_array();
    for (int i = 0; i < state->warning_count; i++) {
        const struct kept_warning *warning =
                &state->warnings[(state->warning_first + i) % WARNINGS_KEPT];
        json_t *object = json_object();
        set_number(object, "time", warning->time);
        set_integer(object, "step", warning->step);
        set_text(object, "message", warning->message);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *stalled_json(const struct run_state *state)
{
    const struct feed_stall *stall = &state->stall;
    if (state->state != RUN_STALLED)
        return NULL;
    json_t *object = json_object();
    set_integer(object, "rank", stall->rank);
    set_text(object, "host", stall->host);
    set_integer(object, "step", stall->step);
    set_text(object, "operation", stall->operation);
    set_number(object, "since", stall->since);
    return object;
}

json_t *run_state_status(const struct run_state *state)
{
    json_t *object = json_object();
    set_text(object, "job", state->job->job.name);
    set_text(object, "run_name", state->job->job.run_name);
    set_text(object, "state", train_run_state_name(state->state));
    set(object, "stalled", stalled_json(state));
    set_text(
            object, "stopped_by",
            state->stopped_by[0] ? state->stopped_by : NULL);
    set_progress(object, state);
    set_speed(object, state);
    set_shape(object, state);
    set_settings(object, state);
    set_checkpoint(object, state);
    set(object, "phase_seconds", phases_json(state->phase_seconds));
    json_t *predicted = json_object_get(state->plan, "predicted");
    set(object, "predicted", predicted ? json_incref(predicted) : json_null());
    set(object, "paused", json_boolean(state->is_paused));
    set_number(object, "deadline", state->deadline > 0 ? state->deadline : NAN);
    set(object, "pending", pending_json(state));
    set_text(object, "output_dir", state->output_dir);
    set_text(object, "socket", state->socket_path);
    set_text(object, "host", state->host);
    set_integer(object, "pid", getpid());
    set(object, "warnings", warnings_json(state));
    return object;
}

/* --- ranks --- */

static json_t *rank_memory_json(const struct train_rank_report *rank)
{
    json_t *object = json_object();
    for (int m = 0; m < ARENA_MEMORIES; m++)
        set(object, arena_memory_name((enum arena_memory)m),
            json_pack(
                    "{s:I, s:I}", "planned", (json_int_t)rank->planned[m],
                    "taken", (json_int_t)rank->taken[m]));
    return object;
}

static json_t *rank_json(const struct train_rank_report *rank)
{
    json_t *object = json_object();
    set_integer(object, "rank", rank->rank);
    set_integer(object, "local_rank", rank->local_rank);
    set_text(object, "host", rank->host);
    set_integer(object, "pid", rank->pid);
    set_text(object, "device", rank->device);
    set(object, "gpu", train_gpu_json(&rank->gpu));
    set_text(object, "cpus", rank->cpus);
    set_integer(object, "threads", rank->threads);
    set_integer(object, "step", rank->step);
    set(object, "phase_seconds", phases_json(rank->phase_seconds));
    set_number(object, "step_seconds", rank->step_seconds);
    set_number(object, "slowness", rank->slowness > 0 ? rank->slowness : NAN);
    set(object, "memory", rank_memory_json(rank));
    set_integer(object, "resident", (int64_t)rank->resident);
    set_integer(object, "resident_peak", (int64_t)rank->resident_peak);
    set_integer(object, "down_bytes", (int64_t)rank->down_bytes);
    set_integer(object, "up_bytes", (int64_t)rank->up_bytes);
    set_integer(object, "disk_read_bytes", (int64_t)rank->disk_read_bytes);
    set_integer(
            object, "disk_written_bytes", (int64_t)rank->disk_written_bytes);
    set_integer(
            object, "reduce_scatter_bytes",
            (int64_t)rank->reduce_scatter_bytes);
    set_integer(object, "all_gather_bytes", (int64_t)rank->all_gather_bytes);
    set_integer(object, "all_reduce_bytes", (int64_t)rank->all_reduce_bytes);
    set_number(
            object, "heartbeat", rank->heartbeat > 0 ? rank->heartbeat : NAN);
    return object;
}

json_t *run_state_ranks(const struct run_state *state)
{
    json_t *array = json_array();
    for (int r = 0; r < state->rank_count; r++)
        json_array_append_new(array, rank_json(&state->ranks[r]));
    return json_pack(
            "{s:I, s:o}", "step", (json_int_t)state->step.step, "ranks", array);
}

static json_t *memory_json(
        const struct train_rank_report *rank, enum arena_memory memory)
{
    json_t *kinds = json_object(), *object = json_object();
    for (int k = 0; k < SPAN_KINDS; k++)
        set_integer(
                kinds, span_kind_name((enum span_kind)k),
                (int64_t)rank->kinds[memory][k]);
    set_text(object, "where", arena_memory_name(memory));
    set_integer(object, "planned", (int64_t)rank->planned[memory]);
    set_integer(object, "taken", (int64_t)rank->taken[memory]);
    set_known(
            object, "limit", (int64_t)rank->limit[memory],
            rank->limit[memory] > 0);
    set(object, "kinds", kinds);
    return object;
}

json_t *run_state_memory(const struct run_state *state)
{
    json_t *ranks = json_array(), *object = json_object();
    for (int r = 0; r < state->rank_count; r++) {
        const struct train_rank_report *rank = &state->ranks[r];
        json_t *memories = json_array();
        for (int m = 0; m < ARENA_MEMORIES; m++)
            json_array_append_new(
                    memories, memory_json(rank, (enum arena_memory)m));
        json_array_append_new(
                ranks,
                json_pack(
                        "{s:i, s:o, s:o, s:I, s:I}", "rank", rank->rank, "gpu",
                        train_gpu_json(&rank->gpu), "memory", memories,
                        "resident", (json_int_t)rank->resident, "resident_peak",
                        (json_int_t)rank->resident_peak));
    }
    set(object, "ranks", ranks);
    set(object, "plan", json_incref(state->plan));
    return object;
}

json_t *run_state_file(const struct run_state *state)
{
    json_t *object = run_state_status(state);
    json_t *ranks = run_state_ranks(state), *memory = run_state_memory(state);
    json_object_set(object, "ranks", json_object_get(ranks, "ranks"));
    json_object_set(object, "memory", json_object_get(memory, "ranks"));
    json_decref(ranks);
    json_decref(memory);
    return object;
}

/* --- samples and series --- */

json_t *run_state_samples(const struct run_state *state, int max)
{
    json_t *array = json_array();
    for (int i = 0; i < state->sample_count && i < max; i++) {
        int newest = state->sample_first + state->sample_count - 1 - i;
        const struct kept_sample *sample =
                &state->samples[newest % SAMPLES_KEPT];
        json_t *object = json_object();
        set_integer(object, "step", sample->step);
        set_number(object, "time", sample->time);
        set_text(object, "prompt", sample->prompt);
        set_text(object, "text", sample->text);
        json_array_append_new(array, object);
    }
    return json_pack("{s:o}", "samples", array);
}

json_t *run_state_history(
        const struct run_state *state, unsigned names, int64_t since, int max)
{
    json_t *series = json_object(), *all = json_array();
    for (int i = 0; i < SERIES_COUNT; i++) {
        const char *name = run_series_name((enum run_series)i);
        json_array_append_new(all, json_string(name));
        if (names & (1u << i))
            json_object_set_new(
                    series, name, history_json(&state->series[i], since, max));
    }
    return json_pack("{s:o, s:o}", "series", series, "names", all);
}

/* The last lines of rank 0's log. */
static json_t *log_json(const struct run_state *state)
{
    enum { BYTES = 65536, LINES = 500 };
    char path[PATH_MAX];
    char *text = malloc(BYTES + 1);
    json_t *lines = json_array();
    snprintf(
            path, sizeof path, "%.3900s/logs/rank-00000.log",
            state->job->job.output_dir);
    FILE *file = text ? fs_open_lines(path) : NULL;
    size_t bytes = 0;
    if (file) {
        bool is_cut = fseek(file, -(long)BYTES, SEEK_END) == 0;
        if (!is_cut)
            rewind(file);
        bytes = fread(text, 1, BYTES, file);
        fclose(file);
        text[bytes] = '\0';
        char *rest = text, *line = is_cut ? strsep(&rest, "\n") : NULL;
        while ((line = strsep(&rest, "\n")))
            if (*line)
                json_array_append_new(lines, text_json(line));
    }
    while (json_array_size(lines) > LINES)
        json_array_remove(lines, 0);
    free(text);
    return lines;
}

/* The ring has steps too, and forgets the rest for them; the file has all but
 * steps. What a full disk did not take is in the ring alone. */
static json_t *events_json(const struct run_state *state)
{
    char path[PATH_MAX];
    json_t *array = json_array();
    snprintf(
            path, sizeof path, "%.4000s/events.jsonl",
            state->job->job.output_dir);
    struct past *past = past_read(path);
    for (int i = 0; past && i < state->event_count; i++) {
        const struct kept_event *event = run_state_event(state, i);
        if (strcmp(event->kind, "step") != 0 && event->text)
            past_add(past, event);
    }
    for (int i = 0; past && i < past->count; i++) {
        json_t *object = json_loads(past->events[i].text, 0, NULL);
        if (object)
            json_array_append_new(array, object);
    }
    past_free(past);
    return array;
}

json_t *run_state_report(const struct run_state *state, json_t *config)
{
    unsigned all = (1u << SERIES_COUNT) - 1;
    json_t *object = json_object(), *samples = run_state_samples(state, 100);
    set(object, "status", run_state_status(state));
    set(object, "ranks", run_state_ranks(state));
    set(object, "memory", run_state_memory(state));
    set(object, "history", run_state_history(state, all, -1, 2000));
    set(object, "samples", json_incref(json_object_get(samples, "samples")));
    set(object, "config", json_incref(config));
    set(object, "log", log_json(state));
    set(object, "events", events_json(state));
    json_decref(samples);
    return object;
}
