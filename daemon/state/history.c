#include "daemon/state/history.h"

#include "base/must.h"

#include <math.h>
#include <stdlib.h>

/* --- a series --- */

static int64_t stretch_of(const struct history *history, int64_t step)
{
    return history->stride > 1 ? (step - 1 - history->base) / history->stride
                               : step;
}

static void grow(struct history *history)
{
    size_t count = history->capacity ? 2 * (size_t)history->capacity : 64;
    history->step =
            zd_must(realloc(history->step, count * sizeof *history->step));
    history->value =
            zd_must(realloc(history->value, count * sizeof *history->value));
    history->capacity = (int)count;
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
    if (history->count == history->capacity)
        grow(history);
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

static json_t *points_json(const struct history *history)
{
    json_t *steps = json_array(), *values = json_array();
    for (int i = 0; i < history->count; i++) {
        json_array_append_new(steps, json_integer(history->step[i]));
        json_array_append_new(values, json_real(history->value[i]));
    }
    return json_pack("{s:o, s:o}", "step", steps, "value", values);
}

/* Thinned as the series itself, to two points a stretch, and the last one. */
json_t *history_json(const struct history *history, int64_t since, int max)
{
    int first = 0, last = history->count - 1;
    while (first <= last && history->step[first] <= since)
        first++;
    int count = history->count - first, stretches = (max - 1) / 2;
    struct history out = {
            .step = zd_array((size_t)count + 1, sizeof *out.step),
            .value = zd_array((size_t)count + 1, sizeof *out.value)};
    if (count > max && stretches) {
        out.base = history->step[first] - 1;
        out.stride =
                (history->step[last] - out.base + stretches - 1) / stretches;
    }
    for (int i = first; i < last && (count <= max || stretches); i++)
        out.count = put_thinned(
                &out, out.count, history->step[i], history->value[i]);
    if (count) {
        out.step[out.count] = history->step[last];
        out.value[out.count++] = history->value[last];
    }
    json_t *json = points_json(&out);
    history_fini(&out);
    return json;
}
