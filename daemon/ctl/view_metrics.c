/* view_metrics.c - metrics and plot: values over the steps. */
#include "base/must.h"
#include "base/text_buffer.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/show.h"
#include "daemon/state/series.h"

#include <math.h>
#include <string.h>

enum { POINTS_MAX = 10000, PLOT_POINTS = 2000, TABLE_ROWS = 20 };

/* --- names --- */

static bool is_plot(const struct cli_args *args)
{
    return strcmp(args->line.command, "plot") == 0;
}

/* "loss" is train/loss, "learning_rate" train/learning_rate: the first series
 * whose name ends so. NULL: there is none. */
static const char *find_name(const char *typed)
{
    size_t length = strlen(typed);
    for (int whole = 1; whole >= 0; whole--)
        for (int i = 0; run_series_name(i); i++) {
            const char *name = run_series_name(i);
            size_t before = strlen(name) - length;
            if (strlen(name) >= length && strcmp(name + before, typed) == 0 &&
                (whole ? before == 0 : before && name[before - 1] == '/'))
                return name;
        }
    return NULL;
}

/* The series that were typed, by their whole names; without any those of
 * `series` (of plot: train/loss). NULL and a record: there is no such. */
static json_t *names_of(const struct cli_args *args, json_t *series)
{
    json_t *names = json_array();
    int count = args->line.operand_count;
    for (int i = 0; i < (is_plot(args) ? 1 : count); i++) {
        const char *typed = i < count ? args->line.operands[i] : "train/loss";
        const char *name = find_name(typed);
        if (!name) {
            json_decref(names);
            return ctl_unknown("series", typed);
        }
        json_array_append_new(names, json_string(name));
    }
    if (json_array_size(names) == 0)
        JSON_MEMBERS(name, values, series)
            json_array_append_new(names, json_string(name));
    return names;
}

enum zd_status metrics_ask(const struct cli_args *args, char what[WHAT_MAX])
{
    struct text_buffer text = {what, WHAT_MAX, 0};
    json_t *names = names_of(args, NULL);
    if (!names)
        return zd_error_get()->status;
    text_buffer_add(
            &text, "/v1/metrics/history?max=%d",
            is_plot(args) ? PLOT_POINTS : POINTS_MAX);
    if (args->since_step) /* without it step 0 is told too: an evaluation */
        text_buffer_add(&text, "&since=%lld", (long long)args->since_step);
    JSON_EACH_AT(i, name, names)
        text_buffer_add(
                &text, "%s%s", i ? "," : "&name=", json_string_value(name));
    if (is_plot(args) && /* the loss has the evaluations beside it */
        strcmp(json_string_value(json_array_get(names, 0)), "train/loss") == 0)
        text_buffer_add(&text, ",eval/loss");
    json_decref(names);
    return ZD_OK;
}

/* --- metrics --- */

/* {"name", "last", "least", "most", "points"}; NULL without a point. */
static json_t *overview_row(const char *name, const json_t *values)
{
    struct curve curve = curve_of(values);
    double least = INFINITY, most = -INFINITY;
    json_t *row = NULL;
    for (int i = 0; i < curve.count; i++) {
        least = fmin(least, curve.y[i]);
        most = fmax(most, curve.y[i]);
    }
    if (curve.count)
        row = json_pack(
                "{s:s, s:f, s:f, s:f, s:i}", "name", name, "last",
                curve.y[curve.count - 1], "least", least, "most", most,
                "points", curve.count);
    curve_fini(&curve);
    return row;
}

static void show_overview(const struct look *look, const json_t *answer)
{
    static const struct grid_column columns[] = {
            {"NAME", "{name|s}", 99},
            {"LAST", "{last|n}", 90, true},
            {"LEAST", "{least|n}", 60, true},
            {"MOST", "{most|n}", 50, true},
            {"POINTS", "{points|w}", 40, true}};
    json_t *series = json_object_get(answer, "series");
    json_auto_t *rows = json_array();
    JSON_MEMBERS(name, values, series)
        json_array_append_new(rows, overview_row(name, values));
    grid_show(look, columns, 5, rows);
}

/* The smallest of the series' next steps; NULL: no more. */
static json_t *next_step(
        const json_t *series, const json_t *names, const size_t *at)
{
    json_t *least = NULL;
    JSON_EACH_AT(i, name, names) {
        json_t *of = json_object_get(series, json_string_value(name));
        json_t *step = json_array_get(json_object_get(of, "step"), at[i]);
        if (!least || json_number_value(step) < json_number_value(least))
            least = step ? step : least;
    }
    return least;
}

/* Rows {"step", NAME..} of every step that one of the series has, rising, with
 * null for one that has it not; the last `keep`. */
static json_t *rows_of(const json_t *series, const json_t *names, size_t keep)
{
    ZD_FREED size_t *at = zd_array(json_array_size(names), sizeof *at);
    json_t *rows = json_array(), *step;
    while ((step = next_step(series, names, at))) {
        json_t *row = json_pack("{s:O}", "step", step);
        JSON_EACH_AT(i, name, names) {
            const char *key = json_string_value(name);
            json_t *of = json_object_get(series, key);
            bool is_here = json_equal(
                    step, json_array_get(json_object_get(of, "step"), at[i]));
            json_object_set_new(row, key, json_null());
            if (is_here)
                json_object_set(
                        row, key,
                        json_array_get(json_object_get(of, "value"), at[i]++));
        }
        json_array_append_new(rows, row);
        if (json_array_size(rows) > keep)
            json_array_remove(rows, 0);
    }
    return rows;
}

/* The last steps of the series that were typed: as rows, or (a table of all)
 * the answer, of which one line a series is shown. */
json_t *metrics_select(const struct cli_args *args, json_t *answer)
{
    json_t *series = json_object_get(answer, "series");
    json_auto_t *names = names_of(args, series);
    bool is_table = !args->csv && !ctl_wants_json(args);
    bool is_overview = is_table && args->line.operand_count == 0;
    size_t keep = args->tail >= 0            ? (size_t)args->tail
                  : is_table && !is_overview ? TABLE_ROWS
                                             : SIZE_MAX;
    if (!names)
        return NULL;
    json_t *rows =
            is_overview ? json_incref(answer) : rows_of(series, names, keep);
    return rows;
}

/* Each member of a row is a column. */
static void show_rows(const struct look *look, const json_t *rows)
{
    struct grid_column columns[GRID_COLUMNS_MAX] = {
            {"STEP", "{step|w}", 99, true}};
    char cells[GRID_COLUMNS_MAX][80];
    int count = 1;
    JSON_MEMBERS(name, value, json_array_get(rows, 0)) {
        if (strcmp(name, "step") == 0 || count == GRID_COLUMNS_MAX)
            continue;
        snprintf(cells[count], sizeof cells[0], "{%.70s|n}", name);
        columns[count] =
                (struct grid_column){name, cells[count], 90 - count, true};
        count++;
    }
    grid_show(look, columns, count, rows);
}

void metrics_show(const struct look *look, const json_t *shown)
{
    if (json_is_array(shown))
        show_rows(look, shown);
    else
        show_overview(look, shown);
}

/* --- plot --- */

json_t *plot_select(const struct cli_args *args, json_t *answer)
{
    json_t *series = json_object_get(answer, "series");
    json_auto_t *names = names_of(args, series);
    return json_pack(
            "{s:O, s:O?}", "name", json_array_get(names, 0), "series", series);
}

void plot_show(const struct look *look, const json_t *shown)
{
    const char *name = json_text_of(shown, "name", "");
    json_t *series = json_object_get(shown, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, name)),
            .columns = look->columns ? look->columns : 80,
            .title = name,
            .rows = look->rows ? (look->rows < 25 ? look->rows - 2 : 23) : 19};
    if (strcmp(name, "train/loss") == 0)
        plot.dots = curve_of(json_object_get(series, "eval/loss"));
    plot.rows = plot.rows < 6 ? 6 : plot.rows;
    plot_draw(look, &plot);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}
