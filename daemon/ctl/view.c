/* view.c - the commands that look: rows of a table, each shown once, or again
 * and again until the job or the user ends. */
#include "daemon/ctl/ctl.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/cli/fill.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is asked, and how the answer is shown. */
struct view {
    const char *command, *what; /* GET `what`, .. */
    /* .. or what it says. A record where what was typed names nothing. */
    enum zd_status (*ask)(const struct cli_args *args, char what[WHAT_MAX]);
    /* Instead of both; on a terminal it is watched. */
    enum zd_status (*get)(const struct target *target, json_t **json_out);
    /* Cuts the answer to what was typed, and returns what is shown of it (a
     * table of CSV with --csv). NULL and a record: what was typed names
     * nothing. Not given: the answer. */
    json_t *(*select)(const struct cli_args *args, json_t *answer);
    void (*show)(const struct look *look, const json_t *shown);
    /* What a pipe gets of one round; may be NULL. */
    void (*line)(const struct look *look, const json_t *shown);
};

/* In place of what is on the terminal. */
static void redraw(
        const struct view *view, struct look look, const json_t *shown)
{
    ZD_FREED char *text = NULL;
    int rows = --look.rows;
    look.out = text_stream_open(&text, NULL);
    view->show(&look, shown);
    fclose(look.out);
    fputs("\033[H", stdout);
    for (const char *line = text; *line && rows-- > 0;) {
        int length = (int)strcspn(line, "\n");
        printf("%.*s\033[K\n", length, line);
        line += length + (line[length] == '\n');
    }
    fputs("\033[J", stdout);
}

/* In the width that the terminal has now. */
static enum zd_status show_once(
        const struct cli_args *args, const struct view *view, json_t *answer)
{
    const struct look look = look_of_stdout();
    json_auto_t *shown =
            view->select ? view->select(args, answer) : json_incref(answer);
    if (!shown)
        return zd_error_get()->status;
    if (ctl_wants_json(args))
        ctl_print_json(answer, args->watch);
    else if (args->csv)
        ctl_print_csv(shown);
    else if (args->watch && output_is_terminal(STDOUT_FILENO))
        redraw(view, look, shown);
    else if (args->watch && view->line)
        view->line(&look, shown);
    else
        view->show(&look, shown);
    fflush(stdout);
    return ZD_OK;
}

/* A run that ended badly, by what its files say. */
static enum zd_status fail_dead(const struct target *target)
{
    static const char template[] =
            "the run[{died|?} died][{died|!} failed] after step "
            "{step|w}[: rank {hang.rank|w} on {hang.host|s} hung in "
            "{hang.operation|s} for {hang.seconds|d}][: {cause.how|s}]"
            "[, {cause.code|s}: {cause.what|s}]";
    const struct look plain = {.has_utf8 = true};
    json_auto_t *file = json_copy(target->file);
    json_object_set_new(
            file, "died",
            json_boolean(strcmp(json_text_of(file, "state", ""), "died") == 0));
    ZD_FREED char *text = fill(&plain, file, template);
    bool is_final =
            strcmp(json_text_of(json_object_get(file, "cause"), "how", ""),
                   "exit 79") == 0;
    ZD_FAIL(ZD_ERR_UNFIT, "E1099", "%s", text);
    zd_fail_where("%s", target->dir);
    return zd_fail_help(
            "%s/logs has the last lines of each rank; %s", target->dir,
            is_final ? "its numbers went wrong: starting it again as it is "
                       "would end the same way"
                     : "zerod with the same job file goes on from the last "
                       "checkpoint");
}

/* Once, or with --watch every --interval seconds. On a terminal each replaces
 * the last; CSV and JSON follow each other. A job that ends ends it with ZD_OK;
 * after the status of a run that failed comes E1099 (69). */
static enum zd_status show_rounds(
        struct cli_args *args, const struct view *view, const char *what)
{
    struct target *target = &args->target;
    enum zd_status status = ZD_OK;
    for (bool is_first = true; status == ZD_OK; is_first = false) {
        json_auto_t *answer = NULL;
        status = view->get ? view->get(target, &answer)
                           : target_get(target, what, &answer);
        if (status != ZD_OK && !is_first && target_has_ended(target, 2)) {
            fputs("the job has ended\n", stderr);
            return ZD_OK;
        }
        ZD_THEN(status, show_once(args, view, answer));
        if (status == ZD_OK && target_file_has_failed(target) &&
            strcmp(view->command, "status") == 0)
            status = fail_dead(target);
        if (!args->watch || status != ZD_OK || ferror(stdout) ||
            (!target->socket && target_file_has_ended(target)))
            return status;
        double pause = args->interval > 0 ? fmin(args->interval, 3600) : 2;
        poll(NULL, 0, (int)(pause * 1000));
        status = target_renew(target);
    }
    return status;
}

/* --- config --- */

static bool is_meant(const char *word, const char *key)
{
    size_t length = strlen(word);
    const char *dot = strchr(key, '.');
    return strcmp(key, word) == 0 || (dot && strcmp(dot + 1, word) == 0) ||
           (strncmp(key, word, length) == 0 && key[length] == '.');
}

/* [{"key", "value", "origin"}] of the keys that were typed; the others leave
 * the answer. */
static json_t *config_select(const struct cli_args *args, json_t *answer)
{
    json_t *values = json_object_get(answer, "values"), *entry;
    json_t *rows = json_array();
    bool is_known[CLI_OPERANDS_MAX] = {false};
    const char *key, *unknown = NULL;
    void *next;
    json_object_foreach_safe(values, next, key, entry)
    {
        bool is_wanted = args->line.operand_count == 0;
        for (int i = 0; i < args->line.operand_count; i++)
            if (is_meant(args->line.operands[i], key))
                is_wanted = is_known[i] = true;
        if (is_wanted)
            json_array_append_new(
                    rows, json_pack(
                                  "{s:s, s:O?, s:O?}", "key", key, "value",
                                  json_object_get(entry, "value"), "origin",
                                  json_object_get(entry, "origin")));
        else
            json_object_del(values, key);
    }
    for (int i = 0; i < args->line.operand_count; i++)
        unknown = is_known[i] ? unknown : args->line.operands[i];
    if (unknown) {
        json_decref(rows);
        rows = ctl_unknown("key", unknown);
    }
    return rows;
}

static void config_show(const struct look *look, const json_t *rows)
{
    static const struct grid_column columns[] = {
            {"KEY", "{key|s}", 99},
            {"VALUE", "{value|j}", 90, .least = 24},
            {"ORIGIN", "{origin|s}", 50, .least = 16}};
    grid_show(look, columns, 3, rows);
}

/* --- all of them --- */

static enum zd_status samples_ask(
        const struct cli_args *args, char what[WHAT_MAX])
{
    int64_t max = args->tail < 0 ? 20 : args->tail > 100 ? 100 : args->tail;
    snprintf(what, WHAT_MAX, "/v1/samples?max=%lld", (long long)max);
    return ZD_OK;
}

enum zd_status command_look(struct cli_args *args)
{
    static const struct view views[] = {
            {"status", "/v1/status", .show = show_status,
             .line = show_status_line},
            {"ranks", "/v1/ranks", .show = show_ranks},
            {"memory", "/v1/memory", .show = show_memory},
            {"samples", .ask = samples_ask, .show = show_samples},
            {"config", "/v1/config", .select = config_select,
             .show = config_show},
            {"metrics", .ask = metrics_ask, .select = metrics_select,
             .show = metrics_show},
            {"plot", .ask = metrics_ask, .select = plot_select,
             .show = plot_show},
            {"top", .get = top_get, .show = top_show}};
    const struct view *view = views;
    char what[WHAT_MAX];
    while (strcmp(view->command, args->line.command) != 0)
        view++;
    ZD_PRINT(what, "%s", view->what ? view->what : "");
    if (view->ask)
        ZD_TRY(view->ask(args, what));
    ZD_TRY(ctl_target(args));
    args->watch |= view->get && output_is_terminal(STDOUT_FILENO);
    if (args->watch && output_is_terminal(STDOUT_FILENO) &&
        !ctl_wants_json(args))
        fputs("\033[2J", stdout);
    return show_rounds(args, view, what);
}
