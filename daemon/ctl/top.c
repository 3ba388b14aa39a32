/* top.c - zerodctl top: what is asked for a frame, and the frame. */
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/show.h"

#include <string.h>

enum {
    LOG_LINES = 60,
    FRAME_COLUMNS = 80, /* where the screen sets no limit */
    FRAME_ROWS = 30,
    PLOT_LEAST = 5,
    PLOT_MOST = 17
};

/* --- what is asked --- */

static bool add_line(void *ctx, const char *line)
{
    fprintf(ctx, "%s\n", line);
    return true;
}

static json_t *read_log(const struct target *target)
{
    ZD_FREED char *text = NULL;
    FILE *out = text_stream_open(&text, NULL);
    struct target_stream stream = {
            .tail = LOG_LINES, .line = add_line, .ctx = out};
    if (target_stream(target, &stream) != ZD_OK)
        zd_error_clear(); /* a job may write no log */
    fclose(out);
    return json_string_nocheck(text);
}

enum zd_status top_get(const struct target *target, json_t **json_out)
{
    static const char *const parts[][2] = {
            {"ranks", "/v1/ranks"},
            {"history",
             "/v1/metrics/history?name=train/loss,eval/loss&max=400"}};
    json_t *answer;
    *json_out = NULL;
    ZD_TRY(target_get(target, "/v1/status", &answer));
    *json_out = json_pack("{s:o}", "status", answer);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (target_get(target, parts[i][1], &answer) == ZD_OK)
            json_object_set_new(*json_out, parts[i][0], answer);
    zd_error_clear();
    json_object_set_new(*json_out, "log", read_log(target));
    return ZD_OK;
}

/* --- the frame --- */

/* At most `rows`. Returns the rows used. */
static int print_status(const struct look *look, const json_t *answer, int rows)
{
    static const char *const numbers[] = {
            "loss {loss|n}  eval {eval_loss|n}  lr {learning_rate|n}  grad "
            "{grad_norm|n}[  epoch {epoch|n}]",
            "tok/s {tokens_per_second|c}  step {step_seconds|d}  up "
            "{elapsed_seconds|d}[  saved {last_checkpoint_step|w}, "
            "{last_checkpoint_time|a} ago]  tokens {tokens|c}",
            "time  {phases|s}"};
    json_auto_t *status = status_for_show(look, answer);
    bool has_phases = json_array_size(json_object_get(status, "phases")) > 0;
    int count = rows < 4 ? 0 : rows < 10 || !has_phases ? 2 : 3;
    show_line(
            look, status_style(look, status),
            "{words|s}  {percent|w}%[  eta {eta_seconds|d}]  step "
            "{step|w}/{max_steps|w}  {job|s}",
            status);
    show_bar(look, status);
    for (int i = 0; i < count; i++)
        show_line(look, LOOK_PLAIN, numbers[i], status);
    return 2 + count;
}

static void print_plot(const struct look *look, const json_t *history, int rows)
{
    json_t *series = json_object_get(history, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, "train/loss")),
            .dots = curve_of(json_object_get(series, "eval/loss")),
            .columns = look->columns,
            .title = "train/loss",
            .rows = rows};
    plot_draw(look, &plot);
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* The last `rows` lines (less than 0: none). */
static void print_log(const struct look *look, const char *log, int rows)
{
    for (int lines = count_lines(log); lines > 0 && lines > rows; lines--)
        log = strchr(log, '\n') + 1;
    while (*log && rows-- > 0) {
        size_t length = strcspn(log, "\n");
        ZD_FREED char *safe = text_escape(look, log, length, false);
        text_fit(look, safe, look->columns);
        fputc('\n', look->out);
        log += length + (log[length] == '\n');
    }
}

void top_show(const struct look *look, const json_t *shown)
{
    struct look fitted = *look;
    json_t *status = json_object_get(shown, "status"),
           *answer = json_object_get(shown, "ranks");
    const char *log = json_text_of(shown, "log", "");
    int rows = look->rows > 0 ? look->rows : FRAME_ROWS;
    int columns = look->columns > 0 ? look->columns : FRAME_COLUMNS;
    int ranks = (int)json_array_size(json_object_get(answer, "ranks"));
    int lines = count_lines(log);
    fitted.columns = columns < 20 ? 20 : columns > 200 ? 200 : columns;
    int left = rows - print_status(&fitted, status, rows);
    int for_ranks = !ranks || left < 8     ? 0
                    : ranks + 1 < left / 3 ? ranks + 1
                                           : left / 3;
    left -= for_ranks;
    int plot = lines < left / 3 ? left - lines : left - left / 3;
    plot = plot < PLOT_LEAST ? 0 : plot > PLOT_MOST ? PLOT_MOST : plot;
    if (plot)
        print_plot(&fitted, json_object_get(shown, "history"), plot);
    if (for_ranks)
        show_first_ranks(&fitted, answer, for_ranks);
    print_log(&fitted, log, left - plot);
}
