/* command_top.c - zerodctl top: ask, draw, take a key, again. */
#include "base/text_stream.h"
#include "daemon/ctl/act.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/screen.h"
#include "daemon/ctl/show.h"
#include "daemon/ctl/top.h"

#include "base/clock.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_LINES = 60, MESSAGE_SECONDS = 5, PATIENCE_SECONDS = 2, CTRL_D = 4 };

enum { STATUS, RANKS, HISTORY, ANSWERS };
static const char *const questions[ANSWERS] = {
        [STATUS] = "/v1/status",
        [RANKS] = "/v1/ranks",
        [HISTORY] = "/v1/metrics/history?name=train/loss,eval/loss&max=400"};

struct top {
    struct cli_args *args;
    struct target target;
    json_t *answers[ANSWERS];
    char *log;
    char message[256];
    double message_until; /* clock_seconds */
    bool has_ended;
};

/* --- asking --- */

static bool add_line(void *ctx, const char *line)
{
    fprintf(ctx, "%s\n", line);
    return true;
}

static char *read_log(const struct target *target)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream_open(&text, &bytes);
    struct target_stream stream = {
            .tail = LOG_LINES, .line = add_line, .ctx = out};
    if (target_stream(target, &stream) != ZD_OK)
        zd_error_clear(); /* a job may write no log */
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Only the status must be there. */
static enum zd_status ask(struct top *top)
{
    ZD_TRY(target_renew(&top->target));
    for (int i = 0; i < ANSWERS; i++) {
        json_t *answer;
        enum zd_status status = target_get(&top->target, questions[i], &answer);
        if (status != ZD_OK && i == STATUS)
            return status;
        zd_error_clear();
        if (status == ZD_OK) {
            json_decref(top->answers[i]);
            top->answers[i] = answer;
        }
    }
    char *log = read_log(&top->target);
    if (log) {
        free(top->log);
        top->log = log;
    }
    return ZD_OK;
}

static void top_fini(struct top *top)
{
    for (int i = 0; i < ANSWERS; i++)
        json_decref(top->answers[i]);
    free(top->log);
    target_fini(&top->target);
}

/* False: the job is gone. One that does not answer, or whose files cannot be
 * read now, is asked again. */
static bool ask_again(struct top *top)
{
    if (ask(top) == ZD_OK)
        return true;
    top->has_ended = target_has_ended(&top->target);
    zd_error_clear();
    if (top->has_ended)
        return false;
    snprintf(
            top->message, sizeof top->message,
            "no answer from the job; this is what it said last");
    top->message_until = clock_seconds() + MESSAGE_SECONDS;
    return true;
}

/* --- drawing --- */

static void draw(const struct top *top, bool has_keys, FILE *out)
{
    struct look look = look_of_stdout();
    bool has_message = clock_seconds() < top->message_until;
    struct top_data data = {
            .status = top->answers[STATUS],
            .ranks = top->answers[RANKS],
            .history = top->answers[HISTORY],
            .log = top->log ? top->log : "",
            .message = has_message ? top->message : "",
            .has_keys = has_keys};
    top_frame(&look, &data, out);
}

static void draw_screen(const struct top *top)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream_open(&text, &bytes);
    draw(top, true, out);
    if (fclose(out) == 0)
        screen_draw(text, INT_MAX);
    free(text);
}

/* --- keys --- */

static void give_command(struct top *top, const char *command)
{
    struct act act = {.command = command, .body = json_object()};
    json_t *answer;
    if (act_post(&top->target, &act, &answer) == ZD_OK)
        snprintf(
                top->message, sizeof top->message,
                "%s: at the next step boundary", command);
    else
        snprintf(
                top->message, sizeof top->message, "%.200s",
                zd_error_get()->what);
    zd_error_clear();
    json_decref(answer);
    top->message_until = clock_seconds() + MESSAGE_SECONDS;
}

/* False: leave. */
static bool take_key(struct top *top, int key)
{
    static const struct {
        int key;
        const char *command;
    } keys[] = {
            {'p', "pause"},
            {'r', "resume"},
            {'c', "checkpoint"},
            {'e', "eval"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].key == key)
            give_command(top, keys[i].command);
    return key != 'q' && key != 'Q' && key != CTRL_D && key != -1;
}

/* Asks once a second; draws also when a key or a new size of the window came.
 */
static void run_screen(struct top *top, double interval)
{
    double next = clock_seconds() + interval;
    bool goes_on = true;
    draw_screen(top);
    while (goes_on) {
        double left = next - clock_seconds();
        int key = screen_key(left > 0 ? left : 0);
        goes_on = key == 0 || take_key(top, key);
        if (goes_on && (clock_seconds() >= next || key > 0)) {
            goes_on = ask_again(top);
            next = clock_seconds() + interval;
        }
        if (goes_on)
            draw_screen(top);
    }
}

/* A pipe gets text: one frame, or with -w one after another. */
static void run_pipe(struct top *top)
{
    for (;;) {
        draw(top, false, stdout);
        fflush(stdout);
        if (!top->args->watch || ferror(stdout))
            return;
        poll(NULL, 0, (int)(ctl_interval(top->args) * 1000));
        if (client_interrupted() || !ask_again(top))
            return;
        putchar('\n');
    }
}

enum zd_status command_top(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct top top = {.args = args};
    enum zd_status status = ctl_target(args, &look, &top.target);
    top.target.patience = PATIENCE_SECONDS;
    if (status == ZD_OK)
        status = ask(&top);
    if (status != ZD_OK) {
        top_fini(&top);
        return status;
    }
    if (screen_take())
        run_screen(&top, args->interval > 0 ? args->interval : 1);
    else
        run_pipe(&top);
    screen_restore();
    if (top.has_ended) {
        look = look_of_stdout();
        fputs("the job has ended; the last that it said:\n", stderr);
        show_status_line(&look, top.answers[STATUS], stderr);
    }
    top_fini(&top);
    return ZD_OK;
}
