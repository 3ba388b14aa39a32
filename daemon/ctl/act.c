#include "daemon/ctl/act.h"

#include "base/file/json.h"
#include "base/suggest.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TELL_SECONDS 1 /* a wait that is longer is explained */

/* --- waiting --- */

struct wait {
    const char *command, *for_what;
    double limit;
    bool is_told, is_over;
};

static bool tell_wait(void *ctx, double waited_seconds)
{
    struct wait *wait = ctx;
    if (waited_seconds > TELL_SECONDS && !wait->is_told) {
        fprintf(stderr,
                "waiting for %s; Ctrl-C leaves the command with the job\n",
                wait->for_what);
        wait->is_told = true;
    }
    wait->is_over = wait->limit > 0 && waited_seconds > wait->limit;
    return !wait->is_over;
}

static const char *what_is_waited_for(
        const struct cli_args *args, const char *command)
{
    static const char *const texts[][2] = {
            {"checkpoint", "the step to end and the checkpoint to be written"},
            {"eval", "the step to end and the evaluation"},
            {"sample", "the step to end and the text"},
            {"pause", "the step to end"},
            {"resume", "the ranks to go on"},
            {"stop", "the step to end and the checkpoint to be written"},
            {"set", "the step to end"},
            {"profile", "the steps that are traced"}};
    if (strcmp(command, "stop") == 0 && args->now)
        return "the step to end";
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(texts[i][0], command) == 0)
            return texts[i][1];
    return "the job";
}

static enum zd_status fail_cut(const struct wait *wait)
{
    if (wait->is_over)
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E1092",
                "no result of %s in %g s; the command stays with the job",
                wait->command, wait->limit);
    fprintf(stderr, "left: %s stays queued, and is done when its turn comes\n",
            wait->command);
    client_end_by_signal();
}

enum zd_status act_post(
        const struct target *target, const struct cli_args *args,
        const char *command, json_t *body, double limit, json_t **answer_out)
{
    char path[64];
    struct wait wait = {
            .command = command,
            .for_what = what_is_waited_for(args, command),
            .limit = limit};
    struct client_answer answer = {0};
    *answer_out = NULL;
    if (!target->socket && target_file_has_ended(target)) {
        json_decref(body);
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1090",
                "the run in %s has ended: it takes no command", target->dir);
        zd_fail_help("zerod with the same job file goes on from its last "
                     "checkpoint");
        return ZD_ERR_NO_INPUT;
    }
    if (!target->socket) {
        ZD_FAIL(ZD_ERR_UNFIT, "E1092",
                "the job's socket is out of reach from here: it takes no "
                "command");
        zd_fail_help(
                "run zerodctl on the job's host, %s",
                json_text_of(target->file, "host", "which is not known"));
        json_decref(body);
        return ZD_ERR_UNFIT;
    }
    snprintf(path, sizeof path, "/v1/%s", command);
    json_object_set_new(body, "wait", json_boolean(!args->no_wait));
    char *text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(body);
    if (!text)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0901", "no memory for a command");
    struct client_request request = {
            .socket = target->socket,
            .owner = target->owner,
            .method = "POST",
            .target = path,
            .body = text,
            .idle = tell_wait,
            .ctx = &wait,
            .timeout = args->no_wait ? 10 : 0};
    enum zd_status status = client_ask(&request, &answer);
    if (status == ZD_OK && answer.is_cut)
        status = fail_cut(&wait);
    if (status == ZD_OK)
        status = client_check(&answer);
    if (status == ZD_OK) {
        *answer_out = json_of_line(answer.body, answer.bytes);
        if (!json_is_object(*answer_out))
            status =
                    ZD_FAIL(ZD_ERR_UNFIT, "E1092",
                            "the answer to %s is no JSON object", command);
    }
    free(answer.body);
    free(text);
    return status;
}

/* --- what is typed --- */

static const struct {
    const char *name, *section;
    bool is_integer;
} settings[] = {
        {"learning_rate", "optim", false},
        {"max_grad_norm", "optim", false},
        {"gradient_accumulation_steps", "train", true},
        {"logging_steps", "log", true},
        {"save_steps", "checkpoint", true},
        {"eval_steps", "eval", true},
};
enum { SETTINGS_COUNT = sizeof settings / sizeof settings[0] };

static enum zd_status fail_setting(const char *key)
{
    struct suggestion nearest = {0};
    char all[256] = "";
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const char *name = settings[i].name;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", name);
        suggest_offer(&nearest, key, edit_distance(key, name), name);
    }
    ZD_FAIL(ZD_ERR_USAGE, "E1098", "`%s` cannot be set while a job runs", key);
    if (nearest.word)
        zd_fail_help("did you mean `%s`?", nearest.word);
    else
        zd_fail_help("these can: %s", all);
    return ZD_ERR_USAGE;
}

/* The setting of "learning_rate", "optim.learning_rate" or "lr"; -1: none. */
static int find_setting(const char *key)
{
    const char *dot = strchr(key, '.');
    if (strcmp(key, "lr") == 0)
        return 0;
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        size_t length = strlen(settings[i].section);
        bool has_section = dot && (size_t)(dot - key) == length &&
                           strncmp(key, settings[i].section, length) == 0;
        if (strcmp(has_section ? dot + 1 : key, settings[i].name) == 0)
            return i;
    }
    return -1;
}

static enum zd_status parse_setting(const char *word, json_t *body)
{
    char key[96], *end;
    const char *equals = strchr(word, '=');
    if (!equals || equals == word || (size_t)(equals - word) >= sizeof key) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "set takes KEY=VALUE, not `%s`", word);
        zd_fail_help("like zerodctl set learning_rate=1e-4");
        return ZD_ERR_USAGE;
    }
    size_t length = (size_t)(equals - word);
    while (length > 1 && word[length - 1] == ' ') /* as --set of zerod */
        length--;
    snprintf(key, sizeof key, "%.*s", (int)length, word);
    int which = find_setting(key);
    if (which < 0)
        return fail_setting(key);
    errno = 0;
    double value = strtod(equals + 1, &end);
    bool is_whole = value == floor(value) && fabs(value) < 1e15;
    if (end == equals + 1 || *end || !isfinite(value) ||
        (settings[which].is_integer && !is_whole))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1098", "%s takes a %snumber, not `%s`",
                settings[which].name,
                settings[which].is_integer ? "whole " : "", equals + 1);
    if (json_object_get(body, settings[which].name))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1098", "%s is given twice",
                settings[which].name);
    json_object_set_new(
            body, settings[which].name,
            settings[which].is_integer ? json_integer((json_int_t)value)
                                       : json_real(value));
    return ZD_OK;
}

enum zd_status act_parse_settings(
        const char *const *words, int count, json_t **body_out)
{
    json_t *body = json_object();
    for (int i = 0; i < count; i++) {
        enum zd_status status = parse_setting(words[i], body);
        if (status != ZD_OK) {
            json_decref(body);
            return status;
        }
    }
    *body_out = body;
    return ZD_OK;
}
