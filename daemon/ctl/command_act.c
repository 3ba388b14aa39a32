/* command_act.c - the commands that change what a job does: rows of a table. */
#include "base/clock.h"
#include "daemon/ctl/act.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/fill.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define STOP_SECONDS 300 /* as docs/control.md has it */

/* --- bodies --- */

typedef enum zd_status make_body(const struct cli_args *args, json_t *body);

static enum zd_status sample_body(const struct cli_args *args, json_t *body)
{
    const char *text = args->line.operand_count ? args->line.operands[0] : NULL;
    json_t *prompt = text ? json_string(text) : NULL;
    if (text && !prompt)
        return ZD_FAIL(ZD_ERR_USAGE, "E0101", "the prompt is not UTF-8 text");
    if (prompt)
        json_object_set_new(body, "prompt", prompt);
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
    if (end == word || *end || steps < 1 || steps > 100)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "profile takes a number of steps, 1 to 100, not `%s`", word);
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

typedef void show_result(const struct look *look, const json_t *answer);

static void show_samples_of(const struct look *look, const json_t *answer)
{
    json_t *list =
            json_object_get(json_object_get(answer, "result"), "samples");
    json_t *sample;
    size_t i;
    json_array_foreach(list, i, sample)
    {
        fputs(i ? "\n" : "", stdout);
        show_sample(look, sample, stdout);
    }
}

static void show_settings(const struct look *look, const json_t *answer)
{
    const char *key;
    json_t *value, *result = json_object_get(answer, "result");
    char text[TEXT_SHORT];
    printf("from step %.0f on:\n", fmax(fill_number(answer, "step"), 0) + 1);
    json_object_foreach(result, key, value)
    {
        if (!json_is_number(value))
            continue;
        fputs("  ", stdout);
        text_print(look, key, false, stdout);
        double number = json_number_value(value);
        if (json_is_integer(value))
            printf(" = %.0f\n", number);
        else
            printf(" = %s\n", text_number(number, text));
    }
    fill_print(look, result, "[{note|s}\n][warning: {warning|s}\n]", stdout);
}

/* --- the table --- */

static const struct act_row {
    const char *command;
    const char *waits_for; /* "waiting for .." */
    make_body *body;       /* NULL: {} */
    const char *result;    /* a template of the answer; NULL: show */
    show_result *show;
} acts[] = {
        {"checkpoint", "the step to end and the checkpoint to be written", NULL,
         "checkpoint of step {step|w}: {result.path|s}\n"},
        {"eval", "the step to end and the evaluation", NULL,
         "eval loss {result.eval_loss|n} at step {step|w}\n"},
        {"sample", "the step to end and the text", sample_body, NULL,
         show_samples_of},
        {"pause", "the step to end", NULL,
         "paused after step {step|w}; zerodctl resume continues the run\n"},
        {"resume", "the ranks to go on", NULL,
         "running again after step {step|w}\n"},
        {"set", "the step to end", act_parse_settings, NULL, show_settings},
        {"profile", "the steps that are traced", profile_body,
         "{result.path|s}\nopen it at ui.perfetto.dev, or in "
         "chrome://tracing\n"},
        {"stop", "the step to end and the checkpoint to be written", stop_body,
         "stopped after step {step|w}[, checkpoint {result.path|s}]\n"}};

static const struct act_row *find_row(const char *command)
{
    size_t i = 0;
    while (strcmp(acts[i].command, command) != 0)
        i++;
    return &acts[i];
}

static void show_answer(
        const struct cli_args *args, const struct look *look,
        const struct act_row *row, const json_t *answer)
{
    json_t *result = json_object_get(answer, "result");
    if (ctl_output(args) == OUTPUT_JSON) {
        ctl_print_json(answer);
    } else if (ctl_output(args) == OUTPUT_CSV) {
        json_t *rows = json_pack("[O]", result ? result : answer);
        ctl_print_csv(rows);
        json_decref(rows);
    } else if (json_is_true(json_object_get(answer, "accepted"))) {
        printf("%s queued: the job does it at the next step boundary\n",
               row->command);
    } else if (row->show) {
        row->show(look, answer);
    } else {
        fill_print(look, answer, row->result, stdout);
    }
    fflush(stdout);
}

/* Is the run already in the state that was asked for? That is no error. */
static bool is_so_already(
        const struct target *target, const struct cli_args *args,
        const char *command)
{
    struct zd_error refusal = *zd_error_get();
    bool pauses = strcmp(command, "pause") == 0;
    json_t *status;
    if (!client_is_conflict() || !(pauses || strcmp(command, "resume") == 0))
        return false;
    zd_error_clear();
    bool is_known = target_get(target, "/v1/status", &status) == ZD_OK;
    const char *state = is_known ? json_text_of(status, "state", "") : "";
    bool is_so = strcmp(state, pauses ? "paused" : "running") == 0;
    zd_error_clear();
    if (!is_so)
        zd_error_set(&refusal);
    else if (ctl_output(args) == OUTPUT_JSON)
        ctl_print_json(status);
    else
        printf("already %s, after step %.0f; zerodctl %s\n", state,
               fill_number(status, "step"),
               pauses ? "resume continues the run" : "pause pauses it");
    json_decref(status);
    return is_so;
}

/* --- stop: until the process is gone --- */

/* Where the files of a job are that is about to stop; NULL: not known. */
static char *output_dir_of(const struct target *target)
{
    json_t *status;
    char *dir = NULL;
    if (target_get(target, "/v1/status", &status) == ZD_OK) {
        const char *path = json_text_of(status, "output_dir", NULL);
        dir = path ? strdup(path) : NULL;
    }
    zd_error_clear();
    json_decref(status);
    return dir;
}

static enum zd_status wait_until_gone(
        const struct target *target, double seconds)
{
    double end = clock_seconds() + seconds;
    bool is_told = false;
    while (target_ping(target, 2) == ZD_OK) {
        double left = end - clock_seconds();
        if (client_interrupted()) {
            fputs("left: the job goes on stopping\n", stderr);
            client_end_by_signal();
        }
        if (left <= 0)
            return ZD_FAIL(
                    ZD_ERR_UNFIT, "E1092",
                    "the job is still stopping after %g s; it goes on",
                    seconds);
        if (!is_told && left < seconds - 1)
            fputs("waiting for the ranks to end\n", stderr);
        is_told = is_told || left < seconds - 1;
        poll(NULL, 0, 100);
    }
    zd_error_clear();
    return ZD_OK;
}

static enum zd_status stop(
        const struct target *target, const struct cli_args *args,
        const struct look *look, struct act *act)
{
    json_t *answer;
    double seconds = stop_seconds(args), began = clock_seconds();
    char *dir = output_dir_of(target);
    act->limit = seconds + 5;
    act->waits_for = args->now ? "the step to end" : act->waits_for;
    enum zd_status status = act_post(target, act, &answer);
    if (status == ZD_OK && act->waits)
        status = wait_until_gone(
                target, fmax(seconds - (clock_seconds() - began), 5));
    if (status == ZD_OK)
        show_answer(args, look, find_row("stop"), answer);
    if (status == ZD_OK && dir && ctl_output(args) == OUTPUT_TABLE) {
        fputs("output in ", stdout);
        text_print(look, dir, false, stdout);
        putchar('\n');
    }
    free(dir);
    json_decref(answer);
    return status;
}

/* --- any of them --- */

static enum zd_status post_and_show(
        const struct target *target, const struct cli_args *args,
        const struct look *look, const struct act *act)
{
    json_t *answer;
    enum zd_status status = act_post(target, act, &answer);
    if (status == ZD_OK)
        show_answer(args, look, find_row(act->command), answer);
    else if (is_so_already(target, args, act->command))
        status = ZD_OK;
    json_decref(answer);
    return status;
}

enum zd_status command_act(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    const struct act_row *row = find_row(args->line.command);
    struct target target = {0};
    struct act act = {
            .command = row->command,
            .waits_for = row->waits_for,
            .body = json_object(),
            .waits = !args->no_wait,
            .limit = fmax(args->timeout, 0)};
    enum zd_status status = ZD_OK;
    if (args->wait && args->no_wait)
        status =
                ZD_FAIL(ZD_ERR_USAGE, "E0101",
                        "--wait and --no-wait exclude each other");
    if (status == ZD_OK && row->body)
        status = row->body(args, act.body);
    if (status == ZD_OK)
        status = ctl_target(args, &look, &target);
    if (status != ZD_OK) {
        json_decref(act.body);
        return status;
    }
    status = strcmp(row->command, "stop") == 0
                     ? stop(&target, args, &look, &act)
                     : post_and_show(&target, args, &look, &act);
    target_fini(&target);
    return status;
}
