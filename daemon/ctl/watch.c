#include "daemon/ctl/watch.h"

#include "base/text_stream.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/fill.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
        const struct cli_args *args, const struct watch *watch,
        const json_t *answer)
{
    struct look look = look_of_stdout();
    char *text = NULL;
    size_t bytes;
    bool is_screen = args->watch && output_is_terminal(STDOUT_FILENO);
    if (args->watch && !is_screen && watch->line) {
        watch->line(&look, answer, stdout);
        return;
    }
    if (!is_screen) {
        watch->show(&look, answer, stdout);
        return;
    }
    FILE *out = text_stream_open(&text, &bytes);
    watch->show(&look, answer, out);
    if (fclose(out) == 0)
        draw_over(&look, text);
    free(text);
}

static void show_once(
        const struct cli_args *args, const struct watch *watch, json_t *answer)
{
    enum ctl_output output = ctl_output(args);
    if (output == OUTPUT_TABLE) {
        show_table(args, watch, answer);
    } else if (output == OUTPUT_CSV) {
        json_t *rows =
                watch->rows ? json_incref(json_object_get(answer, watch->rows))
                            : json_pack("[O]", answer);
        ctl_print_csv(rows);
        json_decref(rows);
    } else if (args->watch) {
        json_dumpf(
                answer, stdout,
                JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII);
        fputc('\n', stdout);
    } else {
        ctl_print_json(answer);
    }
    fflush(stdout);
}

/* Files are read again; a socket is asked again. */
static enum zd_status renew(struct target *target)
{
    struct target newer;
    if (target->socket)
        return ZD_OK;
    ZD_TRY(target_of_dir(target->dir, &newer));
    target_fini(target);
    *target = newer;
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

enum zd_status watch_run(const struct cli_args *args, const struct watch *watch)
{
    struct look look = look_of_stdout();
    struct target target;
    json_t *answer;
    enum zd_status status = ctl_target(args, &look, &target);
    bool is_first = true;
    if (args->watch && output_is_terminal(STDOUT_FILENO) &&
        ctl_output(args) == OUTPUT_TABLE)
        fputs("\033[2J", stdout);
    while (status == ZD_OK) {
        status = target_get(&target, watch->what, &answer);
        if (status != ZD_OK && !is_first && target_has_ended(&target)) {
            fputs("the job has ended\n", stderr);
            status = ZD_OK;
            break;
        }
        if (status == ZD_OK)
            show_once(args, watch, answer);
        json_decref(answer);
        if (status == ZD_OK && target.is_dead &&
            strcmp(watch->command, "status") == 0)
            status = fail_dead(&target);
        if (!args->watch || status != ZD_OK || ferror(stdout))
            break;
        is_first = false;
        poll(NULL, 0, (int)(ctl_interval(args) * 1000)); /* or a signal */
        if (client_interrupted())
            break;
        status = renew(&target);
    }
    target_fini(&target);
    return status;
}
