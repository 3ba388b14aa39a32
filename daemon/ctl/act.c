#include "daemon/ctl/act.h"

#include "base/file/json.h"
#include "base/must.h"
#include "base/suggest.h"
#include "daemon/ctl/client.h"
#include "train/job/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TELL_SECONDS 1 /* a wait that is longer is explained */

/* --- waiting --- */

struct wait {
    const struct act *act;
    bool is_told, is_over;
};

static bool tell_wait(void *ctx, double waited_seconds)
{
    struct wait *wait = ctx;
    if (waited_seconds > TELL_SECONDS && !wait->is_told) {
        fprintf(stderr,
                "waiting for %s; Ctrl-C leaves the command with the job\n",
                wait->act->waits_for);
        wait->is_told = true;
    }
    wait->is_over = wait->act->limit > 0 && waited_seconds > wait->act->limit;
    return !wait->is_over;
}

static enum zd_status fail_cut(const struct wait *wait)
{
    if (wait->is_over)
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E1092",
                "no result of %s in %g s; the command stays with the job",
                wait->act->command, wait->act->limit);
    fprintf(stderr, "left: %s stays queued, and is done when its turn comes\n",
            wait->act->command);
    client_end_by_signal();
}

static enum zd_status fail_files(const struct target *target)
{
    if (target_file_has_ended(target)) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1090",
                "the run in %s has ended: it takes no command", target->dir);
        zd_fail_help("zerod with the same job file goes on from its last "
                     "checkpoint");
        return ZD_ERR_NO_INPUT;
    }
    if (!json_is_string(json_object_get(target->file, "socket"))) {
        ZD_FAIL(ZD_ERR_UNFIT, "E1092",
                "the job has no socket (control.socket = \"none\"): it takes "
                "no command");
        zd_fail_help("a signal reaches it: `kill -USR1` of mpirun, or of the "
                     "process, saves a checkpoint and ends it, unless "
                     "run.on_sigusr1 says otherwise");
        return ZD_ERR_UNFIT;
    }
    ZD_FAIL(ZD_ERR_UNFIT, "E1092",
            "the job's socket cannot be reached from here: it takes no "
            "command");
    zd_fail_help(
            "run zerodctl on the job's host, %s",
            json_text_of(target->file, "host", "which is not known"));
    return ZD_ERR_UNFIT;
}

static enum zd_status post(
        const struct target *target, const struct act *act, const char *body,
        json_t **answer_out)
{
    char path[64];
    struct wait wait = {.act = act};
    struct client_answer answer;
    struct client_request request = {
            .job = target->job,
            .method = "POST",
            .target = path,
            .body = body,
            .idle = tell_wait,
            .ctx = &wait,
            .timeout = act->waits ? 0 : 10};
    snprintf(path, sizeof path, "/v1/%s", act->command);
    enum zd_status status = client_ask(&request, &answer);
    if (status == ZD_OK && answer.is_cut)
        status = fail_cut(&wait);
    if (status == ZD_OK)
        status = client_object(&request, &answer, answer_out);
    free(answer.body);
    return status;
}

enum zd_status act_post(
        const struct target *target, const struct act *act, json_t **answer_out)
{
    *answer_out = NULL;
    json_object_set_new(act->body, "wait", json_boolean(act->waits));
    char *text = json_dumps(act->body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(act->body);
    enum zd_status status =
            target->job.socket ? post(target, act, zd_must(text), answer_out)
                               : fail_files(target);
    free(text);
    return status;
}

/* --- what is typed --- */

static enum zd_status fail_setting(const char *key)
{
    struct suggestion nearest = {0};
    char all[256] = "";
    for (int i = 0; i < SETTINGS; i++) {
        const char *name = train_settings[i].name;
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

/* The setting of "learning_rate", "optim.learning_rate" or "lr"; NULL: none. */
static const struct train_setting *find_setting(const char *key)
{
    if (strcmp(key, "lr") == 0)
        key = train_settings[SET_LEARNING_RATE].name;
    for (int i = 0; i < SETTINGS; i++)
        if (strcmp(key, train_settings[i].name) == 0 ||
            strcmp(key, train_settings[i].key) == 0)
            return &train_settings[i];
    return NULL;
}

static bool is_within(const struct train_setting *setting, double value)
{
    bool is_whole = value == floor(value) && fabs(value) < 1e15;
    return (setting->is_integer ? is_whole : isfinite(value)) &&
           (setting->is_above_min ? value > setting->min
                                  : value >= setting->min) &&
           value <= setting->max;
}

static enum zd_status fail_value(
        const struct train_setting *setting, const char *typed)
{
    ZD_FAIL(ZD_ERR_USAGE, "E1098",
            "%s takes a %snumber %s %.15g and at most %.15g, not `%s`",
            setting->name, setting->is_integer ? "whole " : "",
            setting->is_above_min ? "above" : "of at least", setting->min,
            setting->max, typed);
    zd_fail_help("%s: %s", setting->name, setting->help);
    return ZD_ERR_USAGE;
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
    const struct train_setting *setting = find_setting(key);
    if (!setting)
        return fail_setting(key);
    double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !is_within(setting, value))
        return fail_value(setting, equals + 1);
    if (json_object_get(body, setting->name))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1098", "%s is given twice", setting->name);
    json_object_set_new(
            body, setting->name,
            setting->is_integer ? json_integer((json_int_t)value)
                                : json_real(value));
    return ZD_OK;
}

enum zd_status act_parse_settings(const struct cli_args *args, json_t *body)
{
    for (int i = 0; i < args->line.operand_count; i++)
        ZD_TRY(parse_setting(args->line.operands[i], body));
    return ZD_OK;
}
