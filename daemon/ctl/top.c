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

/* "name value  " when all of it fits; a line holds as many as it can. */
static void put_pair(struct line *line, const char *name, const char *value)
{
    int width = (line->used ? 2 : 0) + text_width(name) + 1 + text_width(value);
    if (line->used + width > line->columns)
        return;
    if (line->used)
        put(line, LOOK_PLAIN, "  ");
    put(line, LOOK_DIM, "%s ", name);
    put(line, LOOK_PLAIN, "%s", value);
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
    char words[TEXT_SHORT];
    const char *state = status_state(status, words);
    char eta[TEXT_SHORT], clock[TEXT_SHORT], right[64];
    snprintf(
            right, sizeof right, "step %.0f/%.0f %.0f%%",
            fmax(json_real_of(status, "step"), 0),
            fmax(json_real_of(status, "max_steps"), 0),
            100 * status_share(status));
    int room = columns - (int)strlen(right) - (int)strlen(state) - 4;
    char *name = text_escape(
            look, json_text_of(status, "job", "?"),
            strlen(json_text_of(status, "job", "?")), false);
    fputs(look_style(look, LOOK_BOLD), out);
    line.used +=
            text_fit(look, name ? name : "?", room > 6 ? room : 6, false, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    free(name);
    put(&line, LOOK_PLAIN, "  ");
    put(&line, look_of_state(state), "%s", state);
    put(&line, LOOK_PLAIN, "  ");
    put(&line, LOOK_PLAIN, "%s", right);
    text_time(look, look->now, clock);
    if (columns - line.used > (int)strlen(clock) + 2) {
        put_blanks(&line, columns - (int)strlen(clock));
        put(&line, LOOK_DIM, "%s", clock);
    }
    line_end(&line);
    text_duration(json_real_of(status, "eta_seconds"), eta);
    put_bar(&line, status_share(status), columns - 6 - (int)strlen(eta));
    put(&line, LOOK_PLAIN, "  ");
    put(&line, LOOK_DIM, "eta ");
    put(&line, LOOK_PLAIN, "%s", eta);
    line_end(&line);
}

static void print_numbers(
        const struct look *look, const json_t *status, int columns, FILE *out)
{
    struct line line = line_begin(look, columns, out);
    char text[TEXT_SHORT], both[TEXT_SHORT * 2];
    put_pair(&line, "loss", text_number(json_real_of(status, "loss"), text));
    put_pair(
            &line, "eval",
            text_number(json_real_of(status, "eval_loss"), text));
    put_pair(
            &line, "lr",
            text_number(json_real_of(status, "learning_rate"), text));
    put_pair(
            &line, "grad",
            text_number(json_real_of(status, "grad_norm"), text));
    if (isfinite(json_real_of(status, "epoch")))
        put_pair(
                &line, "epoch",
                text_number(json_real_of(status, "epoch"), text));
    line_end(&line);
    put_pair(
            &line, "tok/s",
            text_count(json_real_of(status, "tokens_per_second"), text));
    put_pair(
            &line, "step",
            text_duration(json_real_of(status, "step_seconds"), text));
    put_pair(
            &line, "up",
            text_duration(json_real_of(status, "elapsed_seconds"), text));
    double saved = json_real_of(status, "last_checkpoint_step");
    if (isfinite(saved) && json_text_of(status, "last_checkpoint", NULL)) {
        snprintf(
                both, sizeof both, "%.0f, %s ago", saved,
                text_duration(
                        look->now -
                                json_real_of(status, "last_checkpoint_time"),
                        text));
        put_pair(&line, "saved", both);
    }
    put_pair(&line, "tokens", text_count(json_real_of(status, "tokens"), text));
    line_end(&line);
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

/* rank 0  step 120  lag 0  220ms  [####----] 1.2 GiB of 2.0 GiB  seen 1s ago
 * The memory is what the rank holds of its GPU's, on a CPU what it has taken of
 * what was planned. */
static void print_rank(
        const struct look *look, const json_t *rank, double last_step,
        int columns, FILE *out)
{
    struct line line = line_begin(look, columns, out);
    double step = json_real_of(rank, "step"), lag = last_step - step;
    double seen = look->now - json_real_of(rank, "heartbeat");
    const json_t *gpu = json_object_get(rank, "gpu");
    bool on_gpu = json_is_object(gpu);
    double taken = on_gpu ? json_real_of(gpu, "held")
                          : rank_memory(rank, "taken"),
           planned = on_gpu ? json_real_of(gpu, "total")
                            : rank_memory(rank, "planned");
    char text[TEXT_SHORT], of[TEXT_SHORT], size[TEXT_SHORT * 2 + 8];
    put(&line, LOOK_PLAIN, "%4.0f", fmax(json_real_of(rank, "rank"), 0));
    put(&line, LOOK_PLAIN, " %7.0f", isfinite(step) ? step : 0);
    put(&line, lag > 0 ? LOOK_WARN : LOOK_DIM, " %4.0f", fmax(lag, 0));
    put(&line, LOOK_PLAIN, " %7s",
        text_duration(json_real_of(rank, "step_seconds"), text));
    bool is_wide = columns >= 76;
    int bar = columns >= 100 ? 30 : columns >= 60 ? 14 : 4;
    put(&line, LOOK_PLAIN, "  ");
    put_bar(&line, planned > 0 ? taken / planned : 0, bar);
    if (is_wide)
        snprintf(
                size, sizeof size, "%s of %s", text_bytes(taken, text),
                text_bytes(planned, of));
    else
        snprintf(size, sizeof size, "%s", text_bytes(taken, text));
    put(&line, LOOK_PLAIN, is_wide ? " %-20s" : " %s", size);
    if (is_wide) {
        put(&line, LOOK_PLAIN, " %9s",
            text_bytes(json_real_of(rank, "resident"), text));
        put(&line, seen > 60 ? LOOK_BAD : LOOK_DIM, " %6s",
            text_duration(seen, text));
    }
    if (columns >= 100)
        put(&line, LOOK_DIM, "  %s", json_text_of(rank, "host", ""));
    line_end(&line);
}

static void print_rank_titles(const struct look *look, int columns, FILE *out)
{
    struct line line = line_begin(look, columns, out);
    bool is_wide = columns >= 76;
    int bar = columns >= 100 ? 30 : columns >= 60 ? 14 : 4;
    put(&line, LOOK_BOLD, "RANK    STEP  LAG    TIME  MEMORY");
    if (is_wide) {
        put_blanks(&line, 26 + bar + 1 + 20);
        put(&line, LOOK_BOLD, "  RESIDENT   SEEN");
    }
    if (columns >= 100)
        put(&line, LOOK_BOLD, "  HOST");
    line_end(&line);
}

static void print_ranks(
        const struct look *look, const json_t *answer, int rows, int columns,
        FILE *out)
{
    json_t *ranks = json_object_get(answer, "ranks"), *rank;
    size_t count = json_array_size(ranks), i;
    double last = 0, least = INFINITY, slowest = -1, most = 0;
    json_array_foreach(ranks, i, rank)
    {
        double seconds = json_real_of(rank, "step_seconds");
        last = fmax(last, json_real_of(rank, "step"));
        least = fmin(least, json_real_of(rank, "step"));
        if (seconds > most) {
            most = seconds;
            slowest = json_real_of(rank, "rank");
        }
    }
    print_rank_titles(look, columns, out);
    size_t shown = count <= (size_t)(rows - 1) ? count : (size_t)(rows - 2);
    json_array_foreach(ranks, i, rank) if (i < shown)
            print_rank(look, rank, last, columns, out);
    if (shown < count) {
        struct line line = line_begin(look, columns, out);
        put(&line, LOOK_DIM, "%zu more; steps %.0f to %.0f, slowest rank %.0f",
            count - shown, least, last, slowest);
        line_end(&line);
    }
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

/* The curve and the ranks come first; the log takes what nobody needs. */
static struct layout lay_out(
        int rows, int columns, int rank_count, int phase_count, int log_lines)
{
    struct layout layout = {0};
    int left = rows;
    int beside = columns >= 76 ? 2 : 1;
    layout.ranks = rank_count > 0 && left >= 8 ? 3 : 0;
    left -= layout.ranks;
    if (left >= 4) {
        layout.plot = left >= 14 ? 7 : left >= 9 ? 5 : 4;
        left -= layout.plot;
    }
    int wanted = (phase_count + beside - 1) / beside;
    wanted = wanted > PHASES_SHOWN / beside ? PHASES_SHOWN / beside : wanted;
    layout.phases = left >= wanted + 3 ? wanted : left >= 5 ? 2 : left >= 2;
    layout.phases = layout.phases > wanted ? wanted : layout.phases;
    left -= layout.phases;
    layout.log = left < 3 ? left : 3;
    layout.log = layout.log > log_lines ? log_lines : layout.log;
    left -= layout.log;
    int more = layout.ranks ? rank_count + 1 - layout.ranks : 0;
    more = more > left / 2 ? left / 2 : more;
    if (layout.ranks && more > -2)
        layout.ranks += more;
    left -= layout.ranks ? (more > -2 ? more : 0) : 0;
    int plot = left / 2 + layout.plot > 16 ? 16 - layout.plot : left / 2;
    if (layout.plot && plot > 0) {
        layout.plot += plot;
        left -= plot;
    }
    more = log_lines - layout.log < left ? log_lines - layout.log : left;
    layout.log += more;
    left -= more;
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
    print_head(&fitted, data->status, columns, out);
    if (rows >= HEAD_ROWS + foot)
        print_numbers(&fitted, data->status, columns, out);
    if (layout.plot >= 4)
        print_plot(&fitted, data->history, columns, layout.plot, out);
    if (layout.phases > 0)
        print_phases(&fitted, data->status, columns, layout.phases, out);
    if (layout.ranks > 1)
        print_ranks(&fitted, data->ranks, layout.ranks, columns, out);
    if (layout.log > 0)
        print_log(&fitted, data->log, layout.log, columns, out);
    if (foot)
        print_foot(&fitted, data, columns, out);
}
