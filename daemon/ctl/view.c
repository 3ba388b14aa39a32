#include "daemon/ctl/view.h"

#include "base/suggest.h"
#include "base/text_stream.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/fill.h"
#include "daemon/ctl/screen.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void show_table(
        const struct cli_args *args, const struct view *view,
        const json_t *shown)
{
    struct look look = look_of_stdout();
    char *text = NULL;
    size_t bytes;
    bool is_screen = args->watch && output_is_terminal(STDOUT_FILENO);
    if (args->watch && !is_screen && view->line) {
        view->line(&look, shown, stdout);
        return;
    }
    if (!is_screen) {
        view->show(&look, shown, stdout);
        return;
    }
    FILE *out = text_stream_open(&text, &bytes);
    view->show(&look, shown, out);
    if (fclose(out) == 0)
        screen_draw(text, look.rows - 1);
    free(text);
}

static void show_csv(const struct view *view, json_t *shown)
{
    json_t *rows = view->rows ? json_incref(json_object_get(shown, view->rows))
                   : json_is_array(shown) ? json_incref(shown)
                                          : json_pack("[O]", shown);
    ctl_print_csv(rows);
    json_decref(rows);
}

static enum zd_status show_once(
        const struct cli_args *args, const struct view *view, json_t *answer)
{
    json_t *shown =
            view->select ? view->select(args, answer) : json_incref(answer);
    if (!shown)
        return zd_error_get()->status;
    if (ctl_output(args) == OUTPUT_JSON && args->watch)
        ctl_print_json_line(answer);
    else if (ctl_output(args) == OUTPUT_JSON)
        ctl_print_json(answer);
    else if (ctl_output(args) == OUTPUT_CSV)
        show_csv(view, shown);
    else
        show_table(args, view, shown);
    fflush(stdout);
    json_decref(shown);
    return ZD_OK;
}

/* A run that ended badly, by what its files say. */
static enum zd_status fail_dead(const struct target *target)
{
    static const char *const texts[] = {
            "[a hang ended the run after step {step|w}: rank {hang.rank|w} on "
            "{hang.host|s} was waited for in {hang.operation|s} for "
            "{hang.seconds|d}]",
            "[the run ended with {cause.how|s} after step {cause.step|w}: "
            "{cause.code|s}: {cause.what|s}]",
            "[the run ended with {cause.how|s} after step {cause.step|w}]",
            "[{died|?}the run died after step {step|w}: process {pid|w} is "
            "gone and did not report why]",
            "the run failed after step {step|w}"};
    const struct look plain = {.has_utf8 = true};
    json_t *file = json_copy(target->file);
    char *text = NULL;
    json_object_set_new(
            file, "died",
            json_boolean(strcmp(json_text_of(file, "state", ""), "died") == 0));
    for (int i = 0; !text || !text[0]; i++) {
        free(text);
        text = fill(&plain, file, texts[i]);
    }
    bool is_final =
            strcmp(json_text_of(json_object_get(file, "cause"), "how", ""),
                   "exit 79") == 0;
    json_decref(file);
    ZD_FAIL(ZD_ERR_UNFIT, "E1099", "%s", text);
    free(text);
    zd_fail_where("%s", target->dir);
    zd_fail_help(
            "%s/logs has the last lines of each rank; %s", target->dir,
            is_final ? "its numbers went wrong: starting it again as it is "
                       "would end the same way"
                     : "zerod with the same job file goes on from the last "
                       "checkpoint");
    return ZD_ERR_UNFIT;
}

static enum zd_status show_rounds(
        const struct cli_args *args, const struct view *view,
        struct target *target, const char *what)
{
    json_t *answer;
    enum zd_status status = ZD_OK;
    for (bool is_first = true; status == ZD_OK; is_first = false) {
        status = target_get(target, what, &answer);
        if (status != ZD_OK && !is_first && target_has_ended(target)) {
            fputs("the job has ended\n", stderr);
            return ZD_OK;
        }
        if (status == ZD_OK)
            status = show_once(args, view, answer);
        json_decref(answer);
        if (status == ZD_OK && target_file_has_failed(target) &&
            strcmp(view->command, "status") == 0)
            status = fail_dead(target);
        if (!args->watch || status != ZD_OK || ferror(stdout) ||
            (!target->job.socket && target_file_has_ended(target)))
            return status;
        poll(NULL, 0, (int)(ctl_interval(args) * 1000)); /* or a signal */
        if (client_interrupted())
            return status;
        status = target_renew(target);
    }
    return status;
}

enum zd_status view_run(const struct cli_args *args, const struct view *view)
{
    struct look look = look_of_stdout();
    struct target target;
    char what[WHAT_MAX] = "";
    enum zd_status status = ctl_target(args, &look, &target);
    if (status == ZD_OK && view->ask)
        status = view->ask(args, &target, what);
    if (args->watch && output_is_terminal(STDOUT_FILENO) &&
        ctl_output(args) == OUTPUT_TABLE)
        fputs("\033[2J", stdout);
    if (status == ZD_OK)
        status =
                show_rounds(args, view, &target, view->ask ? what : view->what);
    target_fini(&target);
    return status;
}

void *view_unknown(
        const char *kind, const json_t *names, const char *typed,
        char separator)
{
    struct suggestion nearest = {0};
    json_t *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        const char *end = text ? strchr(text, separator) : NULL;
        if (text)
            suggest_offer(&nearest, typed, edit_distance(typed, text), text);
        if (end)
            suggest_offer(&nearest, typed, edit_distance(typed, end + 1), text);
    }
    ZD_FAIL(ZD_ERR_USAGE, "E1095", "there is no %s `%s`", kind, typed);
    if (nearest.word)
        zd_fail_help("did you mean `%s`?", nearest.word);
    else
        zd_fail_help("without a name, all are listed");
    return NULL;
}
