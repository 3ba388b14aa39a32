/* command_metrics.c - metrics and plot: values over the steps. */
#include "base/suggest.h"
#include "base/text_stream.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/grid.h"
#include "daemon/ctl/plot.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS_MAX = 10000, TABLE_ROWS = 20 };

/* --- names --- */

/* "loss" is train/loss, "learning_rate" train/learning_rate: the first series
 * whose name ends so. NULL: there is none. */
static const char *find_name(const json_t *names, const char *typed)
{
    json_t *name;
    size_t i, length = strlen(typed);
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        if (text && strcmp(text, typed) == 0)
            return text;
    }
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        size_t bytes = text ? strlen(text) : 0;
        if (bytes > length && text[bytes - length - 1] == '/' &&
            strcmp(text + bytes - length, typed) == 0)
            return text;
    }
    return NULL;
}

static enum zd_status fail_name(const json_t *names, const char *typed)
{
    struct suggestion nearest = {0};
    json_t *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        const char *slash = text ? strchr(text, '/') : NULL;
        for (int whole = 0; text && whole < 2; whole++) {
            const char *word = whole || !slash ? text : slash + 1;
            suggest_offer(&nearest, typed, edit_distance(typed, word), text);
        }
    }
    ZD_FAIL(ZD_ERR_USAGE, "E1095", "there is no series `%s`", typed);
    if (nearest.word)
        zd_fail_help("did you mean `%s`?", nearest.word);
    else
        zd_fail_help("zerodctl metrics lists them");
    return ZD_ERR_USAGE;
}

static enum zd_status get_history(
        const struct target *target, const char *names, int64_t since,
        int64_t max, json_t **json_out)
{
    char what[1024];
    snprintf(
            what, sizeof what, "/v1/metrics/history?since=%lld&max=%lld%s%s",
            (long long)since, (long long)max, names[0] ? "&name=" : "", names);
    return target_get(target, what, json_out);
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

static void show_overview(const struct look *look, const json_t *answer)
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
    grid_show(look, columns, 6, rows, stdout);
    json_decref(rows);
}

/* Rows {"step", NAME..} of all steps that one of the series has. */
static json_t *rows_of(const json_t *answer, json_t *names)
{
    json_t *rows = json_array(), *series = json_object_get(answer, "series");
    size_t count = json_array_size(names), at[CLI_OPERANDS_MAX] = {0};
    for (;;) {
        double step = INFINITY;
        for (size_t i = 0; i < count; i++) {
            json_t *of = json_object_get(
                    json_object_get(
                            series,
                            json_string_value(json_array_get(names, i))),
                    "step");
            if (at[i] < json_array_size(of))
                step = fmin(step, json_number_value(json_array_get(of, at[i])));
        }
        if (!isfinite(step))
            return rows;
        json_t *row = json_pack(
                "{s:o}", "step",
                fabs(step) < 0x1p53 ? json_integer((json_int_t)step)
                                    : json_real(step));
        for (size_t i = 0; i < count; i++) {
            const char *name = json_string_value(json_array_get(names, i));
            json_t *of = json_object_get(series, name);
            json_t *steps = json_object_get(of, "step");
            bool has = at[i] < json_array_size(steps) &&
                       json_number_value(json_array_get(steps, at[i])) == step;
            json_object_set_new(
                    row, name,
                    has ? json_incref(json_array_get(
                                  json_object_get(of, "value"), at[i]))
                        : json_null());
            at[i] += has;
        }
        json_array_append_new(rows, row);
    }
}

static void show_rows(
        const struct look *look, const json_t *rows, const json_t *names)
{
    struct grid_column columns[GRID_COLUMNS_MAX] = {
            {"STEP", "{step|w}", 99, true}};
    char cells[GRID_COLUMNS_MAX][80];
    json_t *name;
    size_t i;
    int count = 1;
    json_array_foreach(names, i, name)
    {
        if (count == GRID_COLUMNS_MAX)
            break;
        snprintf(
                cells[count], sizeof cells[0], "{%.70s|n}",
                json_string_value(name));
        columns[count] = (struct grid_column){
                json_string_value(name), cells[count], 90 - count, true};
        count++;
    }
    grid_show(look, columns, count, rows, stdout);
}

/* The series that were typed, by their whole names; all without any. */
static enum zd_status name_series(
        const struct cli_args *args, const struct target *target,
        json_t **names_out, char *query, size_t query_bytes)
{
    json_t *answer, *names = json_array();
    enum zd_status status =
            get_history(target, "", INT64_C(1) << 53, 1, &answer);
    json_t *known = json_object_get(answer, "names");
    query[0] = '\0';
    for (int i = 0; status == ZD_OK && i < args->line.operand_count; i++) {
        const char *typed = args->line.operands[i];
        const char *name = find_name(known, typed);
        size_t used = strlen(query);
        if (!name) {
            status = fail_name(known, typed);
            break;
        }
        json_array_append_new(names, json_string(name));
        snprintf(
                query + used, query_bytes - used, "%s%s", used ? "," : "",
                name);
    }
    if (status == ZD_OK && args->line.operand_count == 0)
        json_array_extend(names, known);
    json_decref(answer);
    if (status == ZD_OK) {
        *names_out = names;
    } else {
        json_decref(names);
        *names_out = NULL;
    }
    return status;
}

static enum zd_status print_metrics(
        const struct cli_args *args, const struct look *look,
        const struct target *target)
{
    json_t *names, *answer;
    char query[900];
    enum ctl_output output = ctl_output(args);
    ZD_TRY(name_series(args, target, &names, query, sizeof query));
    enum zd_status status =
            get_history(target, query, args->since_step, POINTS_MAX, &answer);
    if (status == ZD_OK && output == OUTPUT_JSON) {
        ctl_print_json(answer);
    } else if (
            status == ZD_OK && output == OUTPUT_TABLE &&
            args->line.operand_count == 0) {
        show_overview(look, answer);
    } else if (status == ZD_OK) {
        json_t *rows = rows_of(answer, names);
        int64_t keep = args->tail >= 0          ? args->tail
                       : output == OUTPUT_TABLE ? TABLE_ROWS
                                                : INT64_MAX;
        while ((int64_t)json_array_size(rows) > keep)
            json_array_remove(rows, 0);
        if (output == OUTPUT_CSV)
            ctl_print_csv(rows);
        else
            show_rows(look, rows, names);
        json_decref(rows);
    }
    json_decref(answer);
    json_decref(names);
    return status;
}

enum zd_status command_metrics(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct target target;
    ZD_TRY(ctl_target(args, &look, &target));
    enum zd_status status = print_metrics(args, &look, &target);
    target_fini(&target);
    return status;
}

/* --- plot --- */

static enum zd_status draw(
        const struct cli_args *args, const struct target *target,
        const char *name, bool has_eval, bool is_screen)
{
    struct look look = look_of_stdout();
    json_t *answer, *series;
    char query[256];
    snprintf(query, sizeof query, "%s%s", name, has_eval ? ",eval/loss" : "");
    ZD_TRY(get_history(target, query, args->since_step, 2000, &answer));
    series = json_object_get(answer, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, name)),
            .columns = look.columns ? look.columns : 80,
            .rows = args->height ? (int)args->height
                    : look.rows  ? (look.rows < 25 ? look.rows - 3 : 22)
                                 : 18,
            .is_log = args->log_scale};
    if (has_eval)
        plot.dots = curve_of(json_object_get(series, "eval/loss"));
    plot.rows = plot.rows < 5 ? 5 : plot.rows;
    if (is_screen)
        fputs("\033[H\033[2J", stdout);
    fputs(look_style(&look, LOOK_BOLD), stdout);
    text_print(&look, name, false, stdout);
    fputs(look_style(&look, LOOK_PLAIN), stdout);
    if (plot.dots.count)
        printf("  %s eval/loss", look.has_utf8 ? "●" : "o");
    putchar('\n');
    plot_draw(&look, &plot, stdout);
    fflush(stdout);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
    json_decref(answer);
    return ZD_OK;
}

enum zd_status command_plot(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct target target;
    json_t *names = NULL;
    char query[900];
    bool is_screen = args->watch && output_is_terminal(STDOUT_FILENO);
    bool is_first = true;
    if (args->line.operand_count == 0)
        args->line.operands[args->line.operand_count++] = "train/loss";
    ZD_TRY(ctl_target(args, &look, &target));
    enum zd_status status =
            name_series(args, &target, &names, query, sizeof query);
    const char *name = json_string_value(json_array_get(names, 0));
    while (status == ZD_OK) {
        status =
                draw(args, &target, name, strcmp(name, "train/loss") == 0,
                     is_screen);
        if (status != ZD_OK && !is_first && target_has_ended(&target)) {
            status = ZD_OK;
            break;
        }
        if (!args->watch || ferror(stdout))
            break;
        is_first = false;
        poll(NULL, 0, (int)(ctl_interval(args) * 1000));
        if (client_interrupted())
            break;
    }
    json_decref(names);
    target_fini(&target);
    return status;
}
