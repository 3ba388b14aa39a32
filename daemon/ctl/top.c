#include "daemon/ctl/top.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/dir.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_COLUMNS = 80, /* where the screen sets no limit */
    FRAME_ROWS = 30,
    PLOT_LEAST = 5,
    PLOT_MOST = 17,
    STAMP_BYTES = 20 /* of 2026-11-21T20:33:53Z */
};

/* A line from a template, cut at the width of the screen. */
static void put(
        const struct look *look, enum look_style style, const char *template,
        const json_t *object, FILE *out)
{
    char *text = fill(look, object, template);
    fputs(look_style(look, style), out);
    text_fit(look, text, look->columns, false, out);
    fprintf(out, "%s\n", look_style(look, LOOK_PLAIN));
    free(text);
}

/* At most `rows`. Returns the rows used. */
static int print_status(
        const struct look *look, const json_t *answer, int rows, FILE *out)
{
    static const char *const numbers[] = {
            "loss {loss|n}  eval {eval_loss|n}  lr {learning_rate|n}  grad "
            "{grad_norm|n}[  epoch {epoch|n}]",
            "tok/s {tokens_per_second|c}  step {step_seconds|d}  up "
            "{elapsed_seconds|d}[  saved {last_checkpoint_step|w}, "
            "{last_checkpoint_time|a} ago]  tokens {tokens|c}",
            "time  {phases|s}"};
    json_t *status = status_for_show(look, answer);
    bool has_phases = json_array_size(json_object_get(status, "phases")) > 0;
    int count = rows < 4 ? 0 : rows < 10 || !has_phases ? 2 : 3;
    put(look, status_style(look, status),
        "{words|s}  {percent|w}%[  eta {eta_seconds|d}]  step "
        "{step|w}/{max_steps|w}  {job|s}",
        status, out);
    show_bar(look, status, out);
    for (int i = 0; i < count; i++)
        put(look, LOOK_PLAIN, numbers[i], status, out);
    json_decref(status);
    return 2 + count;
}

static void print_plot(
        const struct look *look, const json_t *history, int rows, FILE *out)
{
    json_t *series = json_object_get(history, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, "train/loss")),
            .dots = curve_of(json_object_get(series, "eval/loss")),
            .columns = look->columns,
            .title = "train/loss",
            .rows = rows};
    plot_draw(look, &plot, out);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}

/* {"more", "least", "most", "slowest"}: how many ranks have no row, and what
 * they all are at. */
static json_t *summary_of(const json_t *ranks, size_t shown)
{
    json_t *rank, *slowest = NULL;
    double least = INFINITY, most = 0, longest = 0;
    size_t i;
    json_array_foreach(ranks, i, rank)
    {
        double step = fill_number(rank, "step"),
               seconds = fill_number(rank, "step_seconds");
        least = fmin(least, step);
        most = fmax(most, step);
        if (seconds > longest) {
            longest = seconds;
            slowest = json_object_get(rank, "rank");
        }
    }
    return json_pack(
            "{s:I, s:o, s:o, s:O?}", "more",
            (json_int_t)(json_array_size(ranks) - shown), "least",
            json_number_or_null(least), "most", json_number_or_null(most),
            "slowest", slowest);
}

/* The first ranks that fit, and a line for the others. The memory is what a
 * rank holds of its GPU's; on a CPU what it has taken of what was planned. */
static void print_ranks(
        const struct look *look, const json_t *answer, int rows, FILE *out)
{
    static const struct grid_column columns[] = {
            {"RANK", "{rank|w}", 99, true},
            {"STEP", "{step|w}", 95, true},
            {"LAG", "{lag|w}", 90, true, .style = rank_lag_style},
            {"TIME", "{step_seconds|d}", 85, true},
            {"MEMORY", "{held_share|B}", 75},
            {"HELD", "{held|b}", 80, true},
            {"OF", "{held_of|b}", 70, true},
            {"RESIDENT", "{resident|b}", 60, true},
            {"SEEN", "{heartbeat|a}", 65, true, .style = rank_seen_style},
            {"HOST", "{host|s}", 50}};
    json_t *ranks = ranks_for_show(answer);
    size_t count = json_array_size(ranks), room = (size_t)rows - 1;
    size_t shown = count > room ? room - 1 : count;
    json_t *summary = summary_of(ranks, shown);
    while (json_array_size(ranks) > shown)
        json_array_remove(ranks, json_array_size(ranks) - 1);
    grid_show(look, columns, sizeof columns / sizeof columns[0], ranks, out);
    if (shown < count)
        put(look, LOOK_DIM,
            "{more|w} more; steps {least|w} to {most|w}, slowest rank "
            "{slowest|w}",
            summary, out);
    json_decref(summary);
    json_decref(ranks);
}

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* The last `rows` lines, with the local time in place of UTC. */
static void print_log(
        const struct look *look, const char *log, int rows, FILE *out)
{
    for (int skip = count_lines(log) - rows; skip > 0; skip--)
        log = strchr(log, '\n') + 1;
    while (*log && rows-- > 0) {
        size_t length = strcspn(log, "\n");
        double time = length > STAMP_BYTES && log[STAMP_BYTES - 1] == 'Z'
                              ? dir_line_time(log)
                              : 0;
        size_t stamp = time > 0 ? STAMP_BYTES : 0;
        char *safe = text_escape(look, log + stamp, length - stamp, false);
        json_t *line = json_pack(
                "{s:o, s:s*}", "time", time > 0 ? json_real(time) : json_null(),
                "text", safe);
        put(look, LOOK_PLAIN, "[{time|t}]{text|s}", line, out);
        free(safe);
        json_decref(line);
        log += length + (log[length] == '\n');
    }
}

static void print_foot(
        const struct look *look, const struct top_data *data, FILE *out)
{
    bool is_paused = json_is_true(json_object_get(data->status, "paused"));
    char keys[64];
    snprintf(
            keys, sizeof keys,
            look->columns >= 60 ? "q quit   %s   c checkpoint   e evaluate"
                                : "q quit %s c save e eval",
            is_paused ? "r resume" : "p pause");
    char *safe = text_escape(look, data->message, strlen(data->message), false);
    bool has_message = safe && safe[0];
    fputs(look_style(look, has_message ? LOOK_INVERSE : LOOK_DIM), out);
    text_fit(look, has_message ? safe : keys, look->columns, false, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    free(safe);
}

void top_frame(const struct look *look, const struct top_data *data, FILE *out)
{
    struct look fitted = *look;
    int rows = look->rows > 0 ? look->rows : FRAME_ROWS;
    int columns = look->columns > 0 ? look->columns : FRAME_COLUMNS;
    int ranks = (int)json_array_size(json_object_get(data->ranks, "ranks"));
    int lines = count_lines(data->log);
    bool has_foot = data->has_keys || data->message[0];
    fitted.columns = columns < 20 ? 20 : columns > 200 ? 200 : columns;
    int left = rows - has_foot;
    left -= print_status(&fitted, data->status, left, out);
    int for_ranks = !ranks || left < 8     ? 0
                    : ranks + 1 < left / 3 ? ranks + 1
                                           : left / 3;
    left -= for_ranks;
    int plot = lines < left / 3 ? left - lines : left - left / 3;
    plot = plot < PLOT_LEAST ? 0 : plot > PLOT_MOST ? PLOT_MOST : plot;
    if (plot)
        print_plot(&fitted, data->history, plot, out);
    if (for_ranks)
        print_ranks(&fitted, data->ranks, for_ranks, out);
    print_log(&fitted, data->log, left - plot, out);
    if (has_foot)
        print_foot(&fitted, data, out);
}
