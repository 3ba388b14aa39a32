#include "daemon/state/history.h"

#include "base/file/json.h"

#include <math.h>
#include <stdlib.h>

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

/* Add a point after the first `count`, which are thinned already; returns the
 * new count. The caller has room for one more. */
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
    history->last = value;
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
