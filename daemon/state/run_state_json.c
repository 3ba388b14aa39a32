/* run_state_json.c - what is known, as docs/control.md says it. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/state/log_lines.h"
#include "daemon/state/run_state.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value ? value : json_null());
}

static void set_text(json_t *object, const char *key, const char *text)
{
    set(object, key, json_string_or_null(text));
}

/* --- settings --- */

/* null where one does not apply. */
static void set_settings(json_t *object, const struct run_state *state)
{
    for (int i = 0; i < SETTINGS; i++) {
        double value = state->facts.settings[i];
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
        set(gpu, "rank", json_integer(most->rank));
    set(object, "gpu", gpu);
}

static void set_job(json_t *object, const struct run_state *state)
{
    const struct train_job *job = state->job;
    const json_t *parameters = json_object_get(state->plan, "parameters");
    const json_t *layout = json_object_get(state->plan, "layout");
    const json_t *fp8 = json_object_get(layout, "fp8");
    bool has_checkpoint = state->last_checkpoint_step >= 0;
    set_text(object, "dtype", dtype_name(job->train.dtype));
    set(object, "fp8", json_incref(json_object_get(fp8, "mode")));
    set_text(object, "optimizer", train_optimizer_name(job->optim.name));
    set(object, "base_format",
        json_incref(json_object_get(parameters, "base_format")));
    set(object, "adapters",
        json_incref(json_object_get(parameters, "adapters")));
    set(object, "mesh", json_incref(json_object_get(state->plan, "mesh")));
    set(object, "predicted",
        json_incref(json_object_get(state->plan, "predicted")));
    set_text(
            object, "last_checkpoint",
            has_checkpoint ? state->last_checkpoint : NULL);
    set_text(object, "output_dir", state->output_dir);
    set_text(object, "socket", state->socket_path);
    set_text(object, "host", state->facts.host);
    set(object, "pid", json_integer(getpid()));
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

static json_t *stalled_json(const struct run_state *state)
{
    const struct message_stall *stall = &state->stall;
    if (state->state != RUN_STALLED)
        return NULL;
    return json_pack(
            "{s:i, s:o, s:I, s:o, s:f}", "rank", stall->rank, "host",
            json_string_or_null(stall->host), "step", (json_int_t)stall->step,
            "operation", json_string_or_null(stall->operation), "since",
            stall->since);
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
    metrics_set_json(object, &run_metrics, state, false);
    ZD_EACH(metric, step_metrics.rows, step_metrics.count)
        if (metric->flags & METRIC_STATUS) /* its last finite value */
            set(object, metric->name,
                json_number_or_null(run_state_last(state, metric->series)));
    set_job(object, state);
    set_device(object, state);
    set_settings(object, state);
    set(object, "paused", json_boolean(state->is_paused));
    set(object, "pending", pending_json(state));
    set(object, "warnings", json_copy(state->warnings));
    return object;
}

/* --- ranks --- */

static json_t *rank_json(const struct train_rank_report *rank)
{
    json_t *object = json_object(), *memory = json_object();
    metrics_set_json(object, &rank_metrics, rank, false);
    for (int m = 0; m < ARENA_MEMORIES; m++)
        set(memory, arena_memory_name((enum arena_memory)m),
            json_pack(
                    "{s:I, s:I}", "planned", (json_int_t)rank->planned[m],
                    "taken", (json_int_t)rank->taken[m]));
    set(object, "memory", memory);
    set(object, "gpu", train_gpu_json(&rank->gpu));
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
    json_t *kinds = json_object();
    uint64_t limit = rank->limit[memory];
    for (int k = 0; k < SPAN_KINDS; k++)
        set(kinds, span_kind_name((enum span_kind)k),
            json_integer((json_int_t)rank->kinds[memory][k]));
    return json_pack(
            "{s:s, s:I, s:I, s:o, s:o}", "where", arena_memory_name(memory),
            "planned", (json_int_t)rank->planned[memory], "taken",
            (json_int_t)rank->taken[memory], "limit",
            limit ? json_integer((json_int_t)limit) : json_null(), "kinds",
            kinds);
}

json_t *run_state_memory(const struct run_state *state)
{
    json_t *ranks = json_array();
    ZD_EACH(rank, state->ranks, state->rank_count) {
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
    return json_pack("{s:o, s:O?}", "ranks", ranks, "plan", state->plan);
}

json_t *run_state_file(const struct run_state *state)
{
    json_t *object = run_state_status(state);
    json_auto_t *ranks = run_state_ranks(state),
                *memory = run_state_memory(state);
    json_object_set(object, "ranks", json_object_get(ranks, "ranks"));
    json_object_set(object, "memory", json_object_get(memory, "ranks"));
    return object;
}

/* --- samples and series --- */

json_t *run_state_samples(const struct run_state *state, int max)
{
    json_t *array = json_array();
    for (size_t i = 0; i < (size_t)max; i++)
        json_array_append(array, json_array_get(state->samples, i));
    return json_pack("{s:o}", "samples", array);
}

/* The last lines of rank 0's log. */
static json_t *log_json(const struct run_state *state)
{
    enum { BYTES = 65536, LINES = 500 };
    char path[PATH_MAX], *line;
    int64_t end;
    size_t bytes;
    json_t *lines = json_array();
    ZD_PRINT(path, "%.3900s/logs/rank-00000.log", state->job->job.output_dir);
    FILE *file = fs_open_lines(path);
    ZD_FREED char *text =
            file ? log_lines_last(fileno(file), BYTES, LINES, &end, &bytes)
                 : NULL;
    for (char *rest = text; (line = strsep(&rest, "\n"));)
        if (*line)
            json_array_append_new(lines, json_string_or_null(line));
    if (file)
        fclose(file);
    return lines;
}

/* The state has steps too, and forgets the rest for them; the file has all but
 * steps. What a full disk did not take is in the state alone. */
static json_t *events_json(const struct run_state *state)
{
    char path[PATH_MAX];
    json_t *array = json_array();
    ZD_PRINT(path, "%.4000s/events.jsonl", state->job->job.output_dir);
    struct past *past = past_read(path);
    for (int i = 0; i < state->events.count; i++)
        if (strcmp(state->events.events[i].kind, "step") != 0)
            past_add(past, &state->events.events[i]);
    for (int i = 0; i < past->count; i++) {
        json_t *object = json_loads(past->events[i].text, 0, NULL);
        if (object)
            json_array_append_new(array, object);
    }
    past_free(past);
    return array;
}

json_t *run_state_report(const struct run_state *state)
{
    json_t *object = json_object();
    json_auto_t *samples = run_state_samples(state, 100);
    set(object, "status", run_state_status(state));
    set(object, "ranks", run_state_ranks(state));
    set(object, "memory", run_state_memory(state));
    set(object, "history", series_json(state->series, "", -1, 2000));
    set(object, "samples", json_incref(json_object_get(samples, "samples")));
    set(object, "config", json_incref(state->config));
    set(object, "log", log_json(state));
    set(object, "events", events_json(state));
    return object;
}
