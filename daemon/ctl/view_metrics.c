/* view_metrics.c - metrics and plot: values over the steps. */
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/ctl/grid.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 10000, PLOT_POINTS = 2000, TABLE_ROWS = 20 };

/* --- names --- */

/* A name of the job that may be a column: its title is printed, and its cell is
 * a template. NULL: it may not. */
static const char *plain_name(const json_t *name)
{
    const char *text = json_string_value(name);
    bool is_plain = text && strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789/_-") == strlen(text);
    return is_plain ? text : NULL;
}

/* "loss" is train/loss, "learning_rate" train/learning_rate: the first series
 * whose name ends so. NULL: there is none. */
static const char *find_name(const json_t *names, const char *typed)
{
    json_t *name;
    size_t i, length = strlen(typed);
    json_array_foreach(names, i, name)
    {
        const char *text = plain_name(name);
        if (text && strcmp(text, typed) == 0)
            return text;
    }
    json_array_foreach(names, i, name)
    {
        const char *text = plain_name(name);
        size_t bytes = text ? strlen(text) : 0;
        if (bytes > length && text[bytes - length - 1] == '/' &&
            strcmp(text + bytes - length, typed) == 0)
            return text;
    }
    return NULL;
}

/* The series that were typed, by their whole names; all without any (of plot:
 * train/loss). NULL and a record: there is no such. */
static json_t *names_of(const struct cli_args *args, const json_t *answer)
{
    json_t *known = json_object_get(answer, "names"), *names = json_array();
    bool is_plot = strcmp(args->line.command, "plot") == 0;
    int count = args->line.operand_count;
    if (count == 0 && !is_plot)
        json_array_extend(names, known);
    for (int i = 0; i < (is_plot ? 1 : count); i++) {
        const char *typed = i < count ? args->line.operands[i] : "train/loss";
        const char *name = find_name(known, typed);
        if (!name) {
            json_decref(names);
            return view_unknown("series", known, typed, '/');
        }
        json_array_append_new(names, json_string(name));
    }
    return names;
}

/* The loss has the evaluations beside it. */
static bool has_dots(const struct cli_args *args, const char *name)
{
    return strcmp(args->line.command, "plot") == 0 &&
           strcmp(name, "train/loss") == 0;
}

enum zd_status metrics_ask(
        const struct cli_args *args, const struct target *target,
        char what[WHAT_MAX])
{
    json_t *answer, *name;
    size_t i;
    snprintf(
            what, WHAT_MAX, "/v1/metrics/history?since=%lld&max=1",
            (long long)(INT64_C(1) << 53)); /* the names alone */
    ZD_TRY(target_get(target, what, &answer));
    json_t *names = names_of(args, answer);
    snprintf(
            what, WHAT_MAX, "/v1/metrics/history?max=%d",
            strcmp(args->line.command, "plot") == 0 ? PLOT_POINTS : POINTS_MAX);
    if (args->since_step) /* without it step 0 is told too: an evaluation */
        snprintf(
                what + strlen(what), WHAT_MAX - strlen(what), "&since=%lld",
                (long long)args->since_step);
    bool all = args->line.operand_count == 0 && json_array_size(names) > 1;
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        if (!all)
            snprintf(
                    what + strlen(what), WHAT_MAX - strlen(what), "%s%s%s",
                    i ? "," : "&name=", text,
                    has_dots(args, text) ? ",eval/loss" : "");
    }
    json_decref(answer);
    json_decref(names);
    return names ? ZD_OK : zd_error_get()->status;
}

/* --- metrics --- */

/* {"name", "last", "least", "most", "points", "curve"}; NULL without a point.
 */
static json_t *overview_row(
        const struct look *look, const char *name, const json_t *values)
{
    struct curve curve = curve_of(values);
    double least = INFINITY, most = -INFINITY;
    char *line = NULL;
    size_t bytes;
    json_t *row = NULL;
    FILE *out = text_stream_open(&line, &bytes);
    plot_sparkline(look, &curve, 24, out);
    fclose(out);
    for (int i = 0; i < curve.count; i++) {
        least = fmin(least, curve.y[i]);
        most = fmax(most, curve.y[i]);
    }
    if (curve.count)
        row = json_pack(
                "{s:s, s:f, s:f, s:f, s:i, s:s}", "name", name, "last",
                curve.y[curve.count - 1], "least", least, "most", most,
                "points", curve.count, "curve", line);
    free(line);
    curve_fini(&curve);
    return row;
}

static enum look_style curve_style(const struct look *look, const json_t *row)
{
    return LOOK_ACCENT;
}

static void show_overview(
        const struct look *look, const json_t *answer, FILE *out)
{
    static const struct grid_column columns[] = {
            {"NAME", "{name|s}", 99},
            {"LAST", "{last|n}", 90, true},
            {"LEAST", "{least|n}", 60, true},
            {"MOST", "{most|n}", 50, true},
            {"POINTS", "{points|w}", 40, true},
            {"CURVE", "{curve|s}", 70, .style = curve_style}};
    json_t *series = json_object_get(answer, "series"), *values;
    json_t *rows = json_array();
    const char *name;
    json_object_foreach(series, name, values)
            json_array_append_new(rows, overview_row(look, name, values));
    grid_show(look, columns, 6, rows, out);
    json_decref(rows);
}

static int by_step(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Every step that one of the series has, rising; malloc'd. */
static double *steps_of(
        const json_t *series, const json_t *names, size_t *count_out)
{
    double *steps = NULL;
    json_t *name, *step;
    size_t i, k, count = 0, kept = 0;
    json_array_foreach(names, i, name)
    {
        const json_t *of = json_object_get(
                json_object_get(series, json_string_value(name)), "step");
        steps = zd_must(realloc(
                steps, (count + json_array_size(of) + 1) * sizeof *steps));
        json_array_foreach(of, k, step) steps[count++] =
                json_number_value(step);
    }
    if (count)
        qsort(steps, count, sizeof *steps, by_step);
    for (i = 0; i < count; i++)
        if (kept == 0 || steps[i] != steps[kept - 1])
            steps[kept++] = steps[i];
    *count_out = kept;
    return steps;
}

/* Points of a series from step `from` on. */
static void cut_series(json_t *series, double from)
{
    json_t *steps = json_object_get(series, "step"), *step;
    json_t *values = json_object_get(series, "value");
    json_t *kept_steps = json_array(), *kept_values = json_array();
    size_t i;
    json_array_foreach(steps, i, step)
    {
        if (json_number_value(step) < from)
            continue;
        json_array_append(kept_steps, step);
        json_array_append(kept_values, json_array_get(values, i));
    }
    json_object_set_new(series, "step", kept_steps);
    json_object_set_new(series, "value", kept_values);
}

/* Rows {"step", NAME..} of those steps; null where a series has none. */
static json_t *rows_of(
        const json_t *series, const json_t *names, const double *steps,
        size_t count)
{
    json_t *rows = json_array(), *name;
    size_t i, *at = zd_array(json_array_size(names) + 1, sizeof *at);
    for (size_t s = 0; s < count; s++) {
        bool is_whole = fabs(steps[s]) < 0x1p53;
        json_t *row = json_pack(
                "{s:o}", "step",
                is_whole ? json_integer((json_int_t)steps[s])
                         : json_real(steps[s]));
        json_array_foreach(names, i, name)
        {
            const char *text = json_string_value(name);
            const json_t *of = json_object_get(series, text);
            const json_t *step =
                    json_array_get(json_object_get(of, "step"), at[i]);
            json_t *value = json_array_get(json_object_get(of, "value"), at[i]);
            bool has =
                    json_is_number(step) && json_number_value(step) == steps[s];
            json_object_set(row, text, has && value ? value : json_null());
            at[i] += has;
        }
        json_array_append_new(rows, row);
    }
    free(at);
    return rows;
}

/* The last steps of the series that were typed: as rows, or (a table of all)
 * the answer, of which one line a series is shown. */
json_t *metrics_select(const struct cli_args *args, json_t *answer)
{
    json_t *names = names_of(args, answer), *name, *shown;
    json_t *series = json_object_get(answer, "series");
    bool is_table = ctl_output(args) == OUTPUT_TABLE;
    bool is_overview = is_table && args->line.operand_count == 0;
    size_t i, count, from = 0;
    if (!names)
        return NULL;
    double *steps = steps_of(series, names, &count);
    size_t keep = args->tail >= 0            ? (size_t)args->tail
                  : is_table && !is_overview ? TABLE_ROWS
                                             : SIZE_MAX;
    if (count > keep) {
        from = count - keep;
        json_array_foreach(names, i, name) cut_series(
                json_object_get(series, json_string_value(name)),
                keep ? steps[from] : INFINITY);
    }
    shown = is_overview ? json_incref(answer)
                        : rows_of(series, names, steps + from, count - from);
    free(steps);
    json_decref(names);
    return shown;
}

/* Each member of a row is a column. */
static void show_rows(const struct look *look, const json_t *rows, FILE *out)
{
    struct grid_column columns[GRID_COLUMNS_MAX] = {
            {"STEP", "{step|w}", 99, true}};
    char cells[GRID_COLUMNS_MAX][80];
    const char *name;
    json_t *value;
    int count = 1;
    json_object_foreach(json_array_get(rows, 0), name, value)
    {
        if (strcmp(name, "step") == 0 || count == GRID_COLUMNS_MAX)
            continue;
        snprintf(cells[count], sizeof cells[0], "{%.70s|n}", name);
        columns[count] =
                (struct grid_column){name, cells[count], 90 - count, true};
        count++;
    }
    grid_show(look, columns, count, rows, out);
}

void metrics_show(const struct look *look, const json_t *shown, FILE *out)
{
    if (json_is_array(shown))
        show_rows(look, shown, out);
    else
        show_overview(look, shown, out);
}

/* --- plot --- */

json_t *plot_select(const struct cli_args *args, json_t *answer)
{
    json_t *names = names_of(args, answer);
    json_t *shown =
            names ? json_pack(
                            "{s:O, s:O?, s:I, s:b}", "name",
                            json_array_get(names, 0), "series",
                            json_object_get(answer, "series"), "height",
                            (json_int_t)args->height, "log", args->log_scale)
                  : NULL;
    json_decref(names);
    return shown;
}

void plot_show(const struct look *look, const json_t *shown, FILE *out)
{
    const char *name = json_text_of(shown, "name", "");
    json_t *series = json_object_get(shown, "series");
    int height = (int)json_integer_value(json_object_get(shown, "height"));
    bool is_loss = strcmp(name, "train/loss") == 0;
    struct plot plot = {
            .line = curve_of(json_object_get(series, name)),
            .columns = look->columns ? look->columns : 80,
            .title = name,
            .rows = height       ? height + 1
                    : look->rows ? (look->rows < 25 ? look->rows - 2 : 23)
                                 : 19,
            .is_log = json_is_true(json_object_get(shown, "log"))};
    if (is_loss)
        plot.dots = curve_of(json_object_get(series, "eval/loss"));
    plot.rows = plot.rows < 6 ? 6 : plot.rows;
    plot_draw(look, &plot, out);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}
