#include "daemon/ctl/top.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/dir.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAME_COLUMNS = 80, /* where the screen sets no limit */
    FRAME_ROWS = 30,
    HEAD_ROWS = 4,
    PHASES_SHOWN = 6,
    PHASE_NAME = 11,
    STAMP_BYTES = 20 /* of 2026-11-21T20:33:53Z */
};

/* --- a line that never grows wider than the screen --- */

struct line {
    const struct look *look;
    FILE *out;
    int columns, used;
};

static struct line line_begin(const struct look *look, int columns, FILE *out)
{
    return (struct line){look, out, columns, 0};
}

static void line_end(struct line *line)
{
    fputc('\n', line->out);
    line->used = 0;
}

/* Text of a job or ours, escaped; cut at the end of the line. */
static void put(
        struct line *line, enum look_style style, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static void put(
        struct line *line, enum look_style style, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&text, format, args);
    va_end(args);
    if (bytes < 0)
        return;
    char *safe = text_escape(line->look, text, (size_t)bytes, false);
    free(text);
    if (style != LOOK_PLAIN)
        fputs(look_style(line->look, style), line->out);
    line->used += text_fit(
            line->look, safe ? safe : "", line->columns - line->used, false,
            line->out);
    if (style != LOOK_PLAIN)
        fputs(look_style(line->look, LOOK_PLAIN), line->out);
    free(safe);
}

static void put_blanks(struct line *line, int to)
{
    for (; line->used < to && line->used < line->columns; line->used++)
        fputc(' ', line->out);
}

static void put_bar(struct line *line, double share, int columns)
{
    if (columns > line->columns - line->used)
        columns = line->columns - line->used;
    if (columns < 1)
        return;
    look_bar(line->look, share, columns, line->out);
    line->used += columns;
}

/* --- the head --- */

static void print_head(
        const struct look *look, const json_t *status, int columns, FILE *out)
{
    struct line line = line_begin(look, columns, out);
    char *name = fill(look, status, "{job|s}");
    char *state = fill(look, status, "{words|s}");
    char *right =
            fill(look, status, "step {step|w}/{max_steps|w} {percent|w}%");
    char *eta = fill(look, status, "{eta_seconds|d}");
    char *clock = fill(look, status, "{now|t}");
    int room = columns - text_width(right) - text_width(state) - 4;
    fputs(look_style(look, LOOK_BOLD), out);
    line.used += text_fit(look, name, room > 6 ? room : 6, false, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    put(&line, LOOK_PLAIN, "  ");
    put(&line, status_style(look, status), "%s", state);
    put(&line, LOOK_PLAIN, "  %s", right);
    if (columns - line.used > (int)strlen(clock) + 2) {
        put_blanks(&line, columns - (int)strlen(clock));
        put(&line, LOOK_DIM, "%s", clock);
    }
    line_end(&line);
    put_bar(&line, fill_number(status, "share"),
            columns - 6 - (int)strlen(eta));
    put(&line, LOOK_DIM, "  eta ");
    put(&line, LOOK_PLAIN, "%s", eta);
    line_end(&line);
    free(name);
    free(state);
    free(right);
    free(eta);
    free(clock);
}

/* "name value  "; a line holds as many as fit. */
static void print_numbers(
        const struct look *look, const json_t *status, int columns, FILE *out)
{
    static const struct {
        const char *name, *value; /* NULL: the line ends */
    } numbers[] = {
            {"loss", "{loss|n}"},
            {"eval", "{eval_loss|n}"},
            {"lr", "{learning_rate|n}"},
            {"grad", "{grad_norm|n}"},
            {"epoch", "[{epoch|n}]"},
            {NULL},
            {"tok/s", "{tokens_per_second|c}"},
            {"step", "{step_seconds|d}"},
            {"up", "{elapsed_seconds|d}"},
            {"saved",
             "[{last_checkpoint_step|w}, {last_checkpoint_time|a} ago]"},
            {"tokens", "{tokens|c}"},
            {NULL}};
    struct line line = line_begin(look, columns, out);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *name = numbers[i].name;
        if (!name) {
            line_end(&line);
            continue;
        }
        char *value = fill(look, status, numbers[i].value);
        int width =
                (line.used ? 2 : 0) + text_width(name) + 1 + text_width(value);
        if (value[0] && line.used + width <= columns) {
            put(&line, LOOK_DIM, "%s%s ", line.used ? "  " : "", name);
            put(&line, LOOK_PLAIN, "%s", value);
        }
        free(value);
    }
}

/* --- where the time goes --- */

struct phase {
    const char *name;
    double seconds;
};

static int by_seconds(const void *a, const void *b)
{
    double left = ((const struct phase *)a)->seconds,
           right = ((const struct phase *)b)->seconds;
    return (left < right) - (left > right);
}

/* The largest phases first, two beside each other where there is room. Returns
 * the rows used. */
static int print_phases(
        const struct look *look, const json_t *status, int columns,
        int rows_max, FILE *out)
{
    json_t *object = json_object_get(status, "phase_seconds"), *value;
    struct phase phases[32];
    const char *name;
    int count = 0, beside = columns >= 76 ? 2 : 1;
    double total = 0;
    json_object_foreach(object, name, value)
    {
        if (count < 32 && json_number_value(value) > 0)
            phases[count++] = (struct phase){name, json_number_value(value)};
        total += json_number_value(value);
    }
    qsort(phases, (size_t)count, sizeof phases[0], by_seconds);
    count = count > PHASES_SHOWN ? PHASES_SHOWN : count;
    if (count > rows_max * beside)
        count = rows_max * beside;
    int rows = (count + beside - 1) / beside, width = columns / beside;
    struct line line = line_begin(look, columns, out);
    for (int r = 0; r < rows; r++) {
        for (int b = 0; b < beside && r + b * rows < count; b++) {
            const struct phase *phase = &phases[r + b * rows];
            double share = phase->seconds / total;
            put_blanks(&line, b * width);
            char *safe =
                    text_escape(look, phase->name, strlen(phase->name), false);
            line.used +=
                    text_fit(look, safe ? safe : "", PHASE_NAME, true, out);
            free(safe);
            put(&line, LOOK_PLAIN, " %3.0f%% ", 100 * share);
            put_bar(&line, share, width - PHASE_NAME - 8);
        }
        line_end(&line);
    }
    return rows;
}

/* --- ranks --- */

/* The first ranks that fit, and a line for the others. The memory is what a
 * rank holds of its GPU's, on a CPU what it has taken of what was planned. */
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
    json_t *ranks = ranks_for_show(answer), *rank, *slowest = NULL;
    size_t count = json_array_size(ranks), i;
    double last = 0, least = INFINITY, most = 0;
    json_array_foreach(ranks, i, rank)
    {
        double seconds = fill_number(rank, "step_seconds");
        last = fmax(last, fill_number(rank, "step"));
        least = fmin(least, fill_number(rank, "step"));
        if (seconds > most) {
            most = seconds;
            slowest = rank;
        }
    }
    struct line line = line_begin(look, look->columns, out);
    char *slow = fill(look, slowest, "{rank|w}");
    bool has_more = count > (size_t)(rows - 1);
    while (has_more && json_array_size(ranks) > (size_t)(rows - 2))
        json_array_remove(ranks, json_array_size(ranks) - 1);
    grid_show(look, columns, sizeof columns / sizeof columns[0], ranks, out);
    if (has_more) {
        put(&line, LOOK_DIM, "%zu more; steps %.0f to %.0f, slowest rank %s",
            count - json_array_size(ranks), least, last, slow);
        line_end(&line);
    }
    free(slow);
    json_decref(ranks);
}

/* --- the log --- */

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void print_log(
        const struct look *look, const char *log, int rows, int columns,
        FILE *out)
{
    for (int skip = count_lines(log) - rows; skip > 0; skip--)
        log = strchr(log, '\n') + 1;
    while (*log && rows-- > 0) {
        size_t length = strcspn(log, "\n");
        struct line line = line_begin(look, columns, out);
        char when[TEXT_SHORT];
        size_t stamp = 0;
        if (length > STAMP_BYTES && log[STAMP_BYTES - 1] == 'Z')
            stamp = dir_line_time(log) > 0 ? STAMP_BYTES : 0;
        if (stamp)
            put(&line, LOOK_DIM, "%s",
                text_time(look, dir_line_time(log), when));
        put(&line, LOOK_PLAIN, "%.*s", (int)(length - stamp), log + stamp);
        line_end(&line);
        log += length + (log[length] == '\n');
    }
}

static void print_foot(
        const struct look *look, const struct top_data *data, int columns,
        FILE *out)
{
    struct line line = line_begin(look, columns, out);
    bool is_paused = json_is_true(json_object_get(data->status, "paused"));
    if (data->message[0]) {
        put(&line, LOOK_INVERSE, "%s", data->message);
    } else if (columns >= 60) {
        put(&line, LOOK_DIM, "q quit   %s   c checkpoint   e evaluate",
            is_paused ? "r resume" : "p pause");
    } else {
        put(&line, LOOK_DIM, "q quit %s c save e eval",
            is_paused ? "r resume" : "p pause");
    }
}

/* --- the frame --- */

/* How the rows are shared out. */
struct layout {
    int plot, phases, ranks, log;
};

/* Rows for a part that has less than `wanted`; none if it has less than `least`
 * even then. */
static void give(int *left, int *part, int wanted, int least)
{
    int more = wanted - *part < *left ? wanted - *part : *left;
    if (more <= 0 || *part + more < least)
        return;
    *part += more;
    *left -= more;
}

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* The curve and the ranks come first; the log takes what no part needs. */
static struct layout lay_out(
        int left, int columns, int rank_count, int phase_count, int log_lines)
{
    struct layout layout = {0};
    int beside = columns >= 76 ? 2 : 1;
    int phases = (phase_count + beside - 1) / beside;
    if (rank_count > 0 && left >= 8)
        give(&left, &layout.ranks, least_of(3, rank_count + 1), 2);
    give(&left, &layout.plot, left >= 14 ? 7 : left >= 9 ? 5 : 4, 4);
    give(&left, &layout.phases, least_of(phases, PHASES_SHOWN / beside), 1);
    give(&left, &layout.log, least_of(3, log_lines), 1);
    if (layout.ranks)
        give(&left, &layout.ranks,
             least_of(rank_count + 1, layout.ranks + left / 2), 0);
    if (layout.plot)
        give(&left, &layout.plot, least_of(16, layout.plot + left / 2), 0);
    give(&left, &layout.log, log_lines, 0);
    if (layout.plot)
        layout.plot += left;
    return layout;
}

static void print_plot(
        const struct look *look, const json_t *history, int columns, int rows,
        FILE *out)
{
    json_t *series = json_object_get(history, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, "train/loss")),
            .dots = curve_of(json_object_get(series, "eval/loss")),
            .columns = columns,
            .rows = rows};
    plot.legend = !plot.dots.count ? "loss"
                  : look->has_utf8 ? "loss  ● eval"
                                   : "* loss  o eval";
    plot_draw(look, &plot, out);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}

static int count_phases(const json_t *status)
{
    json_t *object = json_object_get(status, "phase_seconds"), *value;
    const char *name;
    int count = 0;
    json_object_foreach(object, name, value) count +=
            json_number_value(value) > 0;
    return count;
}

void top_frame(const struct look *look, const struct top_data *data, FILE *out)
{
    int columns = look->columns > 0 ? look->columns : FRAME_COLUMNS;
    int rows = look->rows > 0 ? look->rows : FRAME_ROWS;
    int foot = data->has_keys || data->message[0] ? 1 : 0;
    struct look fitted = *look;
    columns = columns < 20 ? 20 : columns > 200 ? 200 : columns;
    fitted.columns = columns;
    struct layout layout =
            lay_out(rows - HEAD_ROWS - foot, columns,
                    (int)json_array_size(json_object_get(data->ranks, "ranks")),
                    count_phases(data->status), count_lines(data->log));
    json_t *status = status_for_show(&fitted, data->status);
    print_head(&fitted, status, columns, out);
    if (rows >= HEAD_ROWS + foot)
        print_numbers(&fitted, status, columns, out);
    json_decref(status);
    if (layout.plot >= 4)
        print_plot(&fitted, data->history, columns, layout.plot, out);
    if (layout.phases > 0)
        print_phases(&fitted, data->status, columns, layout.phases, out);
    if (layout.ranks > 1)
        print_ranks(&fitted, data->ranks, layout.ranks, out);
    if (layout.log > 0)
        print_log(&fitted, data->log, layout.log, columns, out);
    if (foot)
        print_foot(&fitted, data, columns, out);
}
