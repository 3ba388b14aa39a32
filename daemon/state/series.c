#include "daemon/state/series.h"

#include "base/must.h"
#include "base/words.h"
#include "daemon/state/run_state.h"
#include "train/report/file_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- a series --- */

static int64_t stretch_of(const struct history *history, int64_t step)
{
    return history->stride > 1 ? (step - 1 - history->base) / history->stride
                               : step;
}

/* Add a point after the first `count`, which are thinned already; returns the
 * new count. The caller has room for one more. */
static int put_thinned(struct history *history, int count, struct point point)
{
    struct point *next = history->points + count, *last = next - 1;
    int64_t stretch = stretch_of(history, point.step);
    bool is_third = count >= 2 && history->stride > 1 &&
                    stretch_of(history, last[-1].step) == stretch;
    if (!is_third) {
        *next = point;
        return count + 1;
    }
    double low = fmin(last[-1].value, last->value);
    double high = fmax(last[-1].value, last->value);
    if (point.value >= low && point.value <= high)
        return count;
    /* the new one takes the place of the one that it goes beyond */
    if (last[-1].value == (point.value > high ? high : low))
        last[-1] = *last;
    *last = point;
    return count;
}

/* Wider stretches until half of the room is free. */
static void thin(struct history *history)
{
    while (history->count > HISTORY_POINTS_MAX / 2) {
        int count = 0;
        history->stride = history->stride > 1 ? 2 * history->stride : 4;
        for (int i = 0; i < history->count; i++)
            count = put_thinned(history, count, history->points[i]);
        history->count = count;
    }
}

void history_add(struct history *history, int64_t step, double value)
{
    if (!isfinite(value) ||
        (history->count && step <= history->points[history->count - 1].step))
        return;
    if (history->count == HISTORY_POINTS_MAX)
        thin(history);
    ZD_GROW(history->points, history->room, history->count + 1);
    history->count =
            put_thinned(history, history->count, (struct point){step, value});
    history->last = value;
}

void history_fini(struct history *history)
{
    free(history->points);
    *history = (struct history){0};
}

/* --- as JSON --- */

/* Thinned as the series itself, to two points a stretch, and the last one. */
json_t *history_json(const struct history *history, int64_t since, int max)
{
    const struct point *points = history->points;
    json_t *steps = json_array(), *values = json_array();
    int first = 0, last = history->count - 1;
    while (first <= last && points[first].step <= since)
        first++;
    int count = history->count - first, stretches = (max - 1) / 2;
    struct history out = {
            .points = zd_array((size_t)count + 1, sizeof *out.points)};
    if (count > max && stretches) {
        out.base = points[first].step - 1;
        out.stride = (points[last].step - out.base + stretches - 1) / stretches;
    }
    for (int i = first; i < last && (count <= max || stretches); i++)
        out.count = put_thinned(&out, out.count, points[i]);
    if (count)
        out.points[out.count++] = points[last];
    for (int i = 0; i < out.count; i++) {
        json_array_append_new(steps, json_integer(out.points[i].step));
        json_array_append_new(values, json_real(out.points[i].value));
    }
    history_fini(&out);
    return json_pack("{s:o, s:o}", "step", steps, "value", values);
}

/* --- the series of a run --- */

static const struct metric *run_series(int i)
{
    const struct metric_table *const tables[] = {
            &step_metrics, &run_metrics, &rank_metrics};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        ZD_EACH(metric, tables[t]->rows, tables[t]->count)
            if (metric->series && !(metric->flags & METRIC_LIVE) && i-- == 0)
                return metric;
    return NULL;
}

const char *run_series_name(int i)
{
    const struct metric *metric = run_series(i);
    return metric ? metric->series : NULL;
}

int run_series_find(const char *name)
{
    const char *each;
    for (int i = 0; (each = run_series_name(i)); i++)
        if (strcmp(each, name) == 0)
            return i;
    return -1;
}

void series_add(
        struct history series[SERIES_MAX], int64_t step,
        const struct metric_table *table, const void *from, int count)
{
    const struct metric *metric;
    for (int i = 0; (metric = run_series(i)); i++) {
        const char *at = from;
        double most = NAN;
        if (metric < table->rows || metric >= table->rows + table->count)
            continue;
        for (int one = 0; one < count; one++, at += table->bytes)
            most = fmax(most, metric_number(metric, at, 0));
        history_add(&series[i], step, most);
    }
}

json_t *series_json(
        const struct history series[SERIES_MAX], const char *names,
        int64_t since, int max)
{
    json_t *shown = json_object(), *all = json_array();
    const char *name;
    for (int i = 0; (name = run_series_name(i)); i++) {
        json_array_append_new(all, json_string(name));
        if (!names[0] || words_have(names, ",", name))
            json_object_set_new(
                    shown, name, history_json(&series[i], since, max));
    }
    return json_pack("{s:o, s:o}", "series", shown, "names", all);
}

/* --- rows of metrics.jsonl --- */

struct reading {
    struct history *series;
    int64_t last_step;
};

/* False: it is torn, or of a step that the resumed run makes again. */
static bool add_row(void *ctx, const char *line, const json_t *row)
{
    struct reading *to = ctx;
    const json_t *at = json_object_get(row, "step");
    int64_t step = json_is_integer(at) ? json_integer_value(at) : -1;
    const struct metric *metric;
    if (step < 0 || step > to->last_step)
        return false;
    for (int i = 0; (metric = run_series(i)); i++)
        if (metric->name)
            history_add(&to->series[i], step, metric_of_row(metric, row));
    return true;
}

struct history *series_read(const char *path, int64_t step)
{
    struct reading to = {zd_array(SERIES_MAX, sizeof *to.series), step};
    size_t kept;
    if (file_rows(path, add_row, &to, &kept) != ZD_OK)
        zd_error_clear();
    return to.series;
}

void series_free(struct history *series)
{
    for (int i = 0; series && i < SERIES_MAX; i++)
        history_fini(&series[i]);
    free(series);
}
