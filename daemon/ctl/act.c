/* act.c - the commands that change what a job does: rows of a table, a request,
 * and its wait. */
#include "daemon/ctl/ctl.h"

#include "base/clock.h"
#include "base/file/json.h"
#include "base/must.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/show.h"
#include "train/job/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TELL_SECONDS 1   /* a wait that is longer is explained */
#define STOP_SECONDS 300 /* as docs/control.md has it */

struct act {
    const struct act_row *row;
    struct cli_args *args;
    double limit; /* of the wait, in seconds, after which it is given up (69);
                     0: none */
    bool is_told;
};

typedef enum zd_status make_body(const struct cli_args *args, json_t *body);
typedef void show_result(const struct cli_args *args, const json_t *answer);

struct act_row {
    const char *command;
    const char *waits_for; /* "waiting for .." */
    make_body *body;       /* NULL: {} */
    const char *result;    /* a template of the answer; NULL: show */
    show_result *show;
};

/* --- waiting --- */

/* Ctrl-C ends this program and changes nothing else. */
static bool tell_wait(void *ctx, double waited_seconds)
{
    struct act *act = ctx;
    if (waited_seconds > TELL_SECONDS && !act->is_told)
        fprintf(stderr,
                "waiting for %s; Ctrl-C leaves the command with the job\n",
                act->args->now ? "the step to end" : act->row->waits_for);
    act->is_told = act->is_told || waited_seconds > TELL_SECONDS;
    return !(act->limit > 0 && waited_seconds > act->limit);
}

static enum zd_status fail_files(const struct target *target)
{
    if (target_file_has_ended(target)) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1090",
                "the run in %s has ended and takes no command", target->dir);
        return zd_fail_help(
                "zerod with the same job file continues from its last "
                "checkpoint");
    }
    if (!json_is_string(json_object_get(target->file, "socket"))) {
        ZD_FAIL(ZD_ERR_UNFIT, "E1092",
                "the job has no socket (control.socket = \"none\"): it takes "
                "no command");
        return zd_fail_help(
                "a signal reaches it: `kill -USR1` of mpirun, or of the "
                "process, saves a checkpoint and ends it, unless "
                "run.on_sigusr1 says otherwise");
    }
    ZD_FAIL(ZD_ERR_UNFIT, "E1092",
            "the job's socket cannot be reached from here: it takes no "
            "command");
    return zd_fail_help(
            "run zerodctl on the job's host, %s",
            json_text_of(target->file, "host", "which is not known"));
}

/* *answer_out: {"accepted"} or {"done", "step", "result"}. */
static enum zd_status post(
        struct act *act, const json_t *body, json_t **answer_out)
{
    char path[64];
    ZD_FREED char *text =
            zd_must(json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17)));
    const struct client_request request = {
            .socket = act->args->target.socket,
            .question = {.method = "POST", .target = path, .body = text},
            .idle = tell_wait,
            .ctx = act,
            .timeout = act->args->no_wait ? 10 : 0};
    ZD_PRINT(path, "/v1/%s", act->row->command);
    ZD_TRY(client_object(&request, answer_out));
    return *answer_out ? ZD_OK
                       : ZD_FAIL(ZD_ERR_UNFIT, "E1092",
                                 "no result of %s within %g s; the command "
                                 "stays queued",
                                 act->row->command, act->limit);
}

/* --- what is typed --- */

/* "learning_rate" of "optim.learning_rate" and "lr"; what is none of a running
 * job's settings stays, and the job refuses it. */
static const char *setting_name(const char *key)
{
    if (strcmp(key, "lr") == 0)
        return train_settings[SET_LEARNING_RATE].name;
    for (int i = 0; i < SETTINGS; i++)
        if (strcmp(key, train_settings[i].key) == 0)
            return train_settings[i].name;
    return key;
}

static enum zd_status parse_setting(const char *word, json_t *body)
{
    char key[96], *end;
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : 0;
    double value = equals ? strtod(equals + 1, &end) : NAN;
    if (!length || length >= sizeof key || end == equals + 1 || *end ||
        !isfinite(value)) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "set takes KEY=NUMBER, not `%s`", word);
        return zd_fail_help("like zerodctl set learning_rate=1e-4");
    }
    while (length > 1 && word[length - 1] == ' ') /* as --set of zerod */
        length--;
    ZD_PRINT(key, "%.*s", (int)length, word);
    const char *name = setting_name(key);
    bool is_whole = value == floor(value) && fabs(value) < 1e15;
    json_auto_t *json =
            is_whole ? json_integer((json_int_t)value) : json_real(value);
    if (!json_object_get(body, name) && json_object_set(body, name, json) == 0)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_USAGE, "E0101", "`%s` is given twice, or is no name", key);
}

static enum zd_status set_body(const struct cli_args *args, json_t *body)
{
    for (int i = 0; i < args->line.operand_count; i++)
        ZD_TRY(parse_setting(args->line.operands[i], body));
    return ZD_OK;
}

/* --- bodies --- */

static enum zd_status sample_body(const struct cli_args *args, json_t *body)
{
    const char *text = args->line.operand_count ? args->line.operands[0] : NULL;
    json_t *prompt = text ? json_string(text) : NULL;
    if (text && !prompt)
        return ZD_FAIL(ZD_ERR_USAGE, "E0101", "the prompt is not UTF-8 text");
    if (prompt)
        json_object_set_new(body, "prompt", prompt);
    if (args->chat)
        json_object_set_new(body, "chat", json_true());
    if (args->max_new_tokens > 0)
        json_object_set_new(
                body, "max_new_tokens", json_integer(args->max_new_tokens));
    return ZD_OK;
}

static enum zd_status profile_body(const struct cli_args *args, json_t *body)
{
    char *end;
    const char *word = args->line.operand_count ? args->line.operands[0] : "3";
    long steps = strtol(word, &end, 10);
    if (end == word || *end)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "profile takes a number of steps, not `%s`", word);
    json_object_set_new(body, "steps", json_integer(steps));
    return ZD_OK;
}

static double stop_seconds(const struct cli_args *args)
{
    return args->timeout >= 0 ? args->timeout : STOP_SECONDS;
}

static enum zd_status stop_body(const struct cli_args *args, json_t *body)
{
    json_object_set_new(body, "checkpoint", json_boolean(!args->now));
    json_object_set_new(
            body, "timeout", json_real(fmax(stop_seconds(args), 1)));
    return ZD_OK;
}

/* --- results --- */

/* The answer to a prompt that was typed as a message stands alone. */
static void show_samples_of(const struct cli_args *args, const json_t *answer)
{
    json_t *list =
            json_object_get(json_object_get(answer, "result"), "samples");
    JSON_EACH_AT(i, sample, list) {
        fputs(i ? "\n" : "", stdout);
        if (args->chat)
            show_text(&args->look, sample);
        else
            show_sample(&args->look, sample);
    }
}

static const char *setting_text(
        const json_t *settings, const char *key, char out[TEXT_SHORT])
{
    const json_t *value = json_object_get(settings, key);
    double number = json_number_value(value);
    if (!json_is_integer(value))
        return text_number(number, out);
    snprintf(out, TEXT_SHORT, "%.0f", number);
    return out;
}

static void show_settings(const struct cli_args *args, const json_t *answer)
{
    json_t *result = json_object_get(answer, "result");
    char now[TEXT_SHORT], before[TEXT_SHORT];
    printf("from step %.0f on:\n", fmax(fill_number(answer, "step"), 0) + 1);
    JSON_MEMBERS(key, was, json_object_get(result, "before")) {
        fputs("  ", stdout);
        text_print(&args->look, key, false);
        printf(" = %s (was %s)\n", setting_text(result, key, now),
               setting_text(json_object_get(result, "before"), key, before));
    }
    fill_print(&args->look, result, "[{note|s}\n][warning: {warning|s}\n]");
}

/* --- the table --- */

static const struct act_row acts[] = {
        {"checkpoint", "the checkpoint to be written", NULL,
         "checkpoint of step {step|w}: {result.path|s}\n"},
        {"eval", "the evaluation", NULL,
         "eval loss {result.eval_loss|n} at step {step|w}\n"},
        {"sample", "the sample", sample_body, NULL, show_samples_of},
        {"pause", "the step to end", NULL,
         "paused after step {step|w}; zerodctl resume continues the run\n"},
        {"resume", "the ranks to go on", NULL,
         "running again after step {step|w}\n"},
        {"set", "the step to end", set_body, NULL, show_settings},
        {"profile", "the steps that are traced", profile_body,
         "{result.path|s}\nopen it at ui.perfetto.dev, or in "
         "chrome://tracing\n"},
        {"stop", "the step to end and the checkpoint to be written", stop_body,
         "stopped after step {step|w}[, checkpoint {result.path|s}]\n"}};

static void show_answer(const struct act *act, const json_t *answer)
{
    const struct act_row *row = act->row;
    if (ctl_wants_json(act->args))
        ctl_print_json(answer, false);
    else if (json_is_true(json_object_get(answer, "accepted")))
        printf("%s queued: the job does it at the next step boundary\n",
               row->command);
    else if (row->show)
        row->show(act->args, answer);
    else
        fill_print(&act->args->look, answer, row->result);
    fflush(stdout);
}

/* Until the process of a job that stops is gone. */
static enum zd_status wait_until_gone(const struct act *act, double seconds)
{
    const struct target *target = &act->args->target;
    if (target_has_ended(target, TELL_SECONDS))
        return ZD_OK;
    fputs("waiting for the ranks to end\n", stderr);
    if (target_has_ended(target, seconds))
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_UNFIT, "E1092",
            "the job is still stopping after %g s; it goes on", seconds);
}

static enum zd_status post_and_show(struct act *act, const json_t *body)
{
    double began = clock_seconds();
    bool stops = strcmp(act->row->command, "stop") == 0;
    json_auto_t *answer = NULL;
    if (!act->args->target.socket)
        return fail_files(&act->args->target);
    act->limit =
            stops ? stop_seconds(act->args) + 5 : fmax(act->args->timeout, 0);
    ZD_TRY(post(act, body, &answer));
    if (stops && !act->args->no_wait)
        ZD_TRY(wait_until_gone(
                act, fmax(act->limit - 5 - (clock_seconds() - began), 5)));
    show_answer(act, answer);
    return ZD_OK;
}

enum zd_status command_act(struct cli_args *args)
{
    struct act act = {.row = acts, .args = args};
    json_auto_t *body = json_object();
    while (strcmp(act.row->command, args->line.command) != 0)
        act.row++;
    if (act.row->body)
        ZD_TRY(act.row->body(args, body));
    json_object_set_new(body, "wait", json_boolean(!args->no_wait));
    ZD_TRY(ctl_target(args));
    return post_and_show(&act, body);
}
