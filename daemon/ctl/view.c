#include "daemon/ctl/view.h"

#include "base/suggest.h"
#include "base/text_stream.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/fill.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Print text over the last frame: each line cleared to its end, then all that
 * is below. Lines that the screen has no room for are left out. */
static void draw_over(const struct look *look, const char *text)
{
    fputs("\033[H", stdout);
    for (int row = 1; *text && row < look->rows; row++) {
        size_t length = strcspn(text, "\n");
        fwrite(text, 1, length, stdout);
        fputs("\033[K\n", stdout);
        text += length + (text[length] == '\n');
    }
    fputs("\033[J", stdout);
}

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
        draw_over(&look, text);
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

/* One object a line while it is watched. */
static void show_json(const struct cli_args *args, const json_t *answer)
{
    if (!args->watch) {
        ctl_print_json(answer);
        return;
    }
    json_dumpf(
            answer, stdout,
            JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII);
    fputc('\n', stdout);
}

static enum zd_status show_once(
        const struct cli_args *args, const struct view *view, json_t *answer)
{
    json_t *shown =
            view->select ? view->select(args, answer) : json_incref(answer);
    if (!shown)
        return zd_error_get()->status;
    if (ctl_output(args) == OUTPUT_JSON)
        show_json(args, answer);
    else if (ctl_output(args) == OUTPUT_CSV)
        show_csv(view, shown);
    else
        show_table(args, view, shown);
    fflush(stdout);
    json_decref(shown);
    return ZD_OK;
}

static enum zd_status fail_dead(const struct target *target)
{
    const struct look plain = {.has_utf8 = true};
    bool hung = json_object_get(target->file, "hang") != NULL;
    char *text = fill(
            &plain, target->file,
            hung ? "a hang ended the run after step {step|w}: rank "
                   "{hang.rank|w} on {hang.host|s} was waited for in "
                   "{hang.operation|s} for {hang.seconds|d}"
                 : "the run died after step {step|w}: process {pid|w} is gone "
                   "and did not report why");
    ZD_FAIL(ZD_ERR_UNFIT, "E1099", "%s", text);
    free(text);
    zd_fail_where("%s", target->dir);
    zd_fail_help(
            "%s/logs has the last lines of each rank; zerod with the same job "
            "file goes on from the last checkpoint",
            target->dir);
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
        if (status == ZD_OK && target->is_dead &&
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
