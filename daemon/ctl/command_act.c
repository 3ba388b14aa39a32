/* command_act.c - the commands that change what a job does. */
#include "daemon/ctl/act.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/show.h"

#include "base/clock.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define STOP_SECONDS 300 /* as docs/control.md has it */

/* `show` prints the result of a command that was done. */
typedef void show_result(
        const struct look *look, const json_t *answer, const json_t *result);

static enum zd_status check_output(const struct cli_args *args)
{
    if (args->wait && args->no_wait)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "--wait and --no-wait exclude each "
                "other");
    return ZD_OK;
}

static void show_answer(
        const struct cli_args *args, const struct look *look,
        const char *command, const json_t *answer, show_result *show)
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
               command);
    } else {
        show(look, answer, result);
    }
    fflush(stdout);
}

/* What was asked for is so already: nothing is left to do, and nothing went
 * wrong. */
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
        printf("%s already, after step %.0f; zerodctl %s\n", state,
               json_real_of(status, "step"),
               pauses ? "resume goes on" : "pause holds it");
    json_decref(status);
    return is_so;
}

static enum zd_status act(
        const struct cli_args *args, const char *command, json_t *body,
        show_result *show)
{
    struct look look = look_of_stdout();
    struct target target = {0};
    json_t *answer;
    enum zd_status status = check_output(args);
    if (status == ZD_OK)
        status = ctl_target(args, &look, &target);
    if (status != ZD_OK) {
        json_decref(body);
        return status;
    }
    status = act_post(
            &target, args, command, body, fmax(args->timeout, 0), &answer);
    if (status != ZD_OK && is_so_already(&target, args, command))
        status = ZD_OK;
    else if (status == ZD_OK)
        show_answer(args, &look, command, answer, show);
    json_decref(answer);
    target_fini(&target);
    return status;
}

static double step_of(const json_t *answer)
{
    double step = json_real_of(answer, "step");
    return isfinite(step) ? step : 0;
}

/* --- results --- */

static void show_checkpoint(
        const struct look *look, const json_t *answer, const json_t *result)
{
    printf("checkpoint of step %.0f: ", step_of(answer));
    text_print(look, json_text_of(result, "path", "-"), false, stdout);
    putchar('\n');
}

static void show_eval(
        const struct look *look, const json_t *answer, const json_t *result)
{
    char text[TEXT_SHORT];
    printf("eval loss %s at step %.0f\n",
           text_number(json_real_of(result, "eval_loss"), text),
           step_of(answer));
}

static void show_sample(
        const struct look *look, const json_t *answer, const json_t *result)
{
    json_t *list = json_object_get(result, "samples"), *sample;
    size_t i;
    json_array_foreach(list, i, sample)
    {
        if (i)
            putchar('\n');
        fputs(look_style(look, LOOK_BOLD), stdout);
        text_print(look, json_text_of(sample, "prompt", ""), true, stdout);
        fputs(look_style(look, LOOK_PLAIN), stdout);
        text_print(look, json_text_of(sample, "text", ""), true, stdout);
        putchar('\n');
    }
}

static void show_pause(
        const struct look *look, const json_t *answer, const json_t *result)
{
    printf("paused after step %.0f; zerodctl resume goes on\n",
           step_of(answer));
}

static void show_resume(
        const struct look *look, const json_t *answer, const json_t *result)
{
    printf("running again after step %.0f\n", step_of(answer));
}

static void show_set(
        const struct look *look, const json_t *answer, const json_t *result)
{
    const char *key;
    json_t *value;
    char text[TEXT_SHORT];
    printf("from step %.0f on:\n", step_of(answer) + 1);
    json_object_foreach((json_t *)result, key, value)
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
    static const char *const words[] = {"note", "warning"};
    for (int i = 0; i < 2; i++) {
        const char *sentence = json_text_of(result, words[i], NULL);
        if (!sentence)
            continue;
        fputs(i ? "warning: " : "", stdout);
        text_print(look, sentence, false, stdout);
        putchar('\n');
    }
}

static void show_profile(
        const struct look *look, const json_t *answer, const json_t *result)
{
    text_print(look, json_text_of(result, "path", "-"), false, stdout);
    printf("\nopen it at ui.perfetto.dev, or in chrome://tracing\n");
}

/* --- commands --- */

enum zd_status command_checkpoint(
        struct cli_args *args, int *argc, char ***argv)
{
    return act(args, "checkpoint", json_object(), show_checkpoint);
}

enum zd_status command_eval(struct cli_args *args, int *argc, char ***argv)
{
    return act(args, "eval", json_object(), show_eval);
}

enum zd_status command_sample(struct cli_args *args, int *argc, char ***argv)
{
    json_t *body = json_object();
    if (args->line.operand_count) {
        json_t *prompt = json_string(args->line.operands[0]);
        if (!prompt) {
            json_decref(body);
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E0101", "the prompt is not UTF-8 text");
        }
        json_object_set_new(body, "prompt", prompt);
    }
    if (args->max_new_tokens > 0)
        json_object_set_new(
                body, "max_new_tokens", json_integer(args->max_new_tokens));
    return act(args, "sample", body, show_sample);
}

enum zd_status command_pause(struct cli_args *args, int *argc, char ***argv)
{
    return act(args, "pause", json_object(), show_pause);
}

enum zd_status command_resume(struct cli_args *args, int *argc, char ***argv)
{
    return act(args, "resume", json_object(), show_resume);
}

enum zd_status command_set(struct cli_args *args, int *argc, char ***argv)
{
    json_t *body;
    ZD_TRY(act_parse_settings(
            args->line.operands, args->line.operand_count, &body));
    return act(args, "set", body, show_set);
}

enum zd_status command_profile(struct cli_args *args, int *argc, char ***argv)
{
    char *end;
    const char *word = args->line.operand_count ? args->line.operands[0] : "3";
    long steps = strtol(word, &end, 10);
    if (end == word || *end || steps < 1 || steps > 100)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "profile takes a number of steps, 1 to 100, not `%s`", word);
    return act(
            args, "profile", json_pack("{s:i}", "steps", (int)steps),
            show_profile);
}

/* --- stop: until the process is gone --- */

/* What the job was before it was told to stop: where its files are. */
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

static bool is_gone(const struct target *target)
{
    struct client_request request = {
            .socket = target->socket,
            .owner = target->owner,
            .method = "GET",
            .target = "/healthz",
            .timeout = 2};
    struct client_answer answer;
    enum zd_status status = client_ask(&request, &answer);
    free(answer.body);
    zd_error_clear();
    return status != ZD_OK;
}

static enum zd_status wait_until_gone(
        const struct target *target, double seconds)
{
    double end = clock_seconds() + seconds;
    bool is_told = false;
    while (!is_gone(target)) {
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
    return ZD_OK;
}

static void show_stop(
        const struct look *look, const json_t *answer, const json_t *result)
{
    const char *path = json_text_of(result, "path", NULL);
    printf("stopped after step %.0f", step_of(answer));
    if (path) {
        fputs(", checkpoint ", stdout);
        text_print(look, path, false, stdout);
    }
    putchar('\n');
}

enum zd_status command_stop(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct target target;
    json_t *answer;
    double seconds = args->timeout >= 0 ? args->timeout : STOP_SECONDS;
    double began = clock_seconds();
    ZD_TRY(check_output(args));
    ZD_TRY(ctl_target(args, &look, &target));
    char *dir = output_dir_of(&target);
    json_t *body = json_pack(
            "{s:b, s:f}", "checkpoint", !args->now, "timeout",
            fmax(seconds, 1));
    enum zd_status status =
            act_post(&target, args, "stop", body, seconds + 5, &answer);
    if (status == ZD_OK && !args->no_wait)
        status = wait_until_gone(
                &target, fmax(seconds - (clock_seconds() - began), 5));
    if (status == ZD_OK)
        show_answer(args, &look, "stop", answer, show_stop);
    if (status == ZD_OK && dir && ctl_output(args) == OUTPUT_TABLE) {
        fputs("output in ", stdout);
        text_print(&look, dir, false, stdout);
        putchar('\n');
    }
    free(dir);
    json_decref(answer);
    target_fini(&target);
    return status;
}
