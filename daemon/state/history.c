#include "daemon/state/history.h"

#include "base/file/fs.h"
#include "base/file/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[SERIES_COUNT] = {
        "train/loss",        "train/grad_norm",   "train/learning_rate",
        "train/loss_scale",  "eval/loss",         "perf/tokens_per_second",
        "perf/step_seconds", "perf/data_wait",    "perf/forward",
        "perf/backward",     "perf/reduce",       "perf/update",
        "perf/gather",       "perf/offload_wait", "memory/resident_gib"};

const char *run_series_name(enum run_series series)
{
    return names[series];
}

int run_series_find(const char *name, size_t length)
{
    for (int i = 0; i < SERIES_COUNT; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    return -1;
}

/* --- a series --- */

static int64_t stretch_of(const struct history *history, int64_t step)
{
    return history->stride > 1 ? (step - 1) / history->stride : step;
}

static bool grow(struct history *history)
{
    int capacity = history->capacity ? 2 * history->capacity : 64;
    size_t count = (size_t)capacity;
    int64_t *step = realloc(history->step, count * sizeof *step);
    if (step)
        history->step = step;
    double *value = realloc(history->value, count * sizeof *value);
    if (value)
        history->value = value;
    if (step && value)
        history->capacity = capacity;
    return step && value;
}

/* Behind the first `count` points, which are thinned already; returns how many
 * there are then. The caller has room for one more. */
static int put_thinned(
        struct history *history, int count, int64_t step, double value)
{
    int64_t *steps = history->step;
    double *values = history->value;
    int64_t stretch = stretch_of(history, step);
    bool is_third = count >= 2 && history->stride > 1 &&
                    stretch_of(history, steps[count - 2]) == stretch;
    if (!is_third) {
        steps[count] = step;
        values[count] = value;
        return count + 1;
    }
    double low = fmin(values[count - 2], values[count - 1]);
    double high = fmax(values[count - 2], values[count - 1]);
    if (value >= low && value <= high)
        return count;
    /* the new one takes the place of the one that it goes beyond */
    bool drops_first =
            value > high ? values[count - 2] == high : values[count - 2] == low;
    if (drops_first) {
        steps[count - 2] = steps[count - 1];
        values[count - 2] = values[count - 1];
    }
    steps[count - 1] = step;
    values[count - 1] = value;
    return count;
}

/* Wider stretches until half of the room is free. */
static void thin(struct history *history)
{
    while (history->count > HISTORY_POINTS_MAX / 2) {
        int count = 0;
        history->stride = history->stride > 1 ? 2 * history->stride : 4;
        for (int i = 0; i < history->count; i++)
            count = put_thinned(
                    history, count, history->step[i], history->value[i]);
        history->count = count;
    }
}

void history_add(struct history *history, int64_t step, double value)
{
    if (!isfinite(value))
        return;
    if (history->count && step <= history->step[history->count - 1])
        return;
    if (history->count == HISTORY_POINTS_MAX)
        thin(history);
    if (history->count == history->capacity && !grow(history))
        return;
    history->count = put_thinned(history, history->count, step, value);
}

void history_fini(struct history *history)
{
    free(history->step);
    free(history->value);
    *history = (struct history){0};
}

/* --- as JSON --- */

struct points {
    json_t *step, *value;
};

static void append(
        const struct points *out, const struct history *history, int i)
{
    json_array_append_new(out->step, json_integer(history->step[i]));
    json_array_append_new(out->value, json_real(history->value[i]));
}

/* The smallest and the largest of points from..to-1, in their order. */
static void append_extremes(
        const struct points *out, const struct history *history, int from,
        int to)
{
    int low = from, high = from;
    for (int i = from + 1; i < to; i++) {
        if (history->value[i] < history->value[low])
            low = i;
        if (history->value[i] > history->value[high])
            high = i;
    }
    append(out, history, low < high ? low : high);
    if (low != high)
        append(out, history, low < high ? high : low);
}

static int first_above(const struct history *history, int64_t since)
{
    int low = 0, high = history->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (history->step[middle] > since)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

json_t *history_json(const struct history *history, int64_t since, int max)
{
    struct points out = {json_array(), json_array()};
    int first = first_above(history, since), count = history->count - first;
    int last = history->count - 1, stretches = (max - 1) / 2;
    if (count <= max)
        for (int i = first; i <= last; i++)
            append(&out, history, i);
    else {
        for (int s = 0; s < stretches; s++) {
            int from = first + (int)((int64_t)(count - 1) * s / stretches);
            int to = first + (int)((int64_t)(count - 1) * (s + 1) / stretches);
            if (from < to)
                append_extremes(&out, history, from, to);
        }
        append(&out, history, last);
    }
    return json_pack("{s:o, s:o}", "step", out.step, "value", out.value);
}

/* --- rows of metrics.jsonl --- */

static double number(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void add_row(struct resumed_rows *rows, const json_t *row, int64_t step)
{
    static const struct {
        enum run_series series;
        const char *object, *key;
    } columns[] = {
            {SERIES_LOSS, NULL, "loss"},
            {SERIES_GRAD_NORM, NULL, "grad_norm"},
            {SERIES_LEARNING_RATE, NULL, "learning_rate"},
            {SERIES_LOSS_SCALE, NULL, "loss_scale"},
            {SERIES_EVAL_LOSS, NULL, "eval_loss"},
            {SERIES_TOKENS_PER_SECOND, NULL, "tokens_per_second"},
            {SERIES_STEP_SECONDS, NULL, "step_seconds"},
            {SERIES_DATA_WAIT, "phase_seconds", "data"},
            {SERIES_FORWARD, "phase_seconds", "forward"},
            {SERIES_BACKWARD, "phase_seconds", "backward"},
            {SERIES_REDUCE, "phase_seconds", "reduce"},
            {SERIES_UPDATE, "phase_seconds", "update"},
            {SERIES_GATHER, "phase_seconds", "gather"}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        const json_t *in = columns[i].object
                                   ? json_object_get(row, columns[i].object)
                                   : row;
        history_add(
                &rows->series[columns[i].series], step,
                number(in, columns[i].key));
    }
}

static void add_offload_wait(
        struct resumed_rows *rows, const json_t *row, int64_t step)
{
    const json_t *waits =
            json_object_get(json_object_get(row, "offload"), "wait_seconds");
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)waits, key, value) sum +=
            json_number_value(value);
    if (waits)
        history_add(&rows->series[SERIES_OFFLOAD_WAIT], step, sum);
}

struct resumed_rows *resumed_rows_read(const char *path, int64_t step)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    FILE *file = fs_open_lines(path);
    struct resumed_rows *rows = file ? calloc(1, sizeof *rows) : NULL;
    while (rows && (bytes = getline(&line, &room, file)) > 0) {
        json_t *row = json_of_line(line, (size_t)bytes);
        json_t *at = json_object_get(row, "step");
        int64_t row_step = json_is_integer(at) ? json_integer_value(at) : -1;
        if (row_step >= 0 && row_step <= step)
            add_row(rows, row, row_step);
        if (row_step >= 0 && row_step <= step)
            add_offload_wait(rows, row, row_step);
        json_decref(row);
        if (row_step < 0 || row_step > step)
            break; /* torn, or of a step that the resumed run makes again */
    }
    free(line);
    if (file)
        fclose(file);
    return rows;
}

void resumed_rows_free(struct resumed_rows *rows)
{
    if (!rows)
        return;
    for (int i = 0; i < SERIES_COUNT; i++)
        history_fini(&rows->series[i]);
    free(rows);
}
