/* commands.c - ls, the commands that print lines as they come (logs, events),
 * and web: the page of a job in a browser. */
#include "base/file/fs.h"
#include "base/file/json.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"
#include "daemon/ctl/target.h"
#include "daemon/page/web.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum zd_status command_ls(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    json_t *jobs = jobs_find();
    if (ctl_wants_json(args))
        ctl_print_json(jobs, false);
    else
        show_jobs(&look, jobs, stdout);
    json_decref(jobs);
    return ZD_OK;
}

/* --- streams --- */

struct printing {
    struct look look;
    const struct cli_args *args;
    json_t *kept; /* events, oldest first, at most the last `tail` of them;
                     NULL: printed at once */
    size_t tail;
};

static bool print_log_line(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    text_print(&printing->look, line, true, stdout);
    fputc('\n', stdout);
    return !ferror(stdout);
}

static void print_event(const struct printing *printing, const json_t *event)
{
    if (ctl_wants_json(printing->args))
        ctl_print_json(event, true);
    else
        show_event(&printing->look, event, stdout);
}

static bool take_event(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    json_t *event = json_of_line(line, strlen(line));
    const char *kind = json_text_of(event, "event", "");
    if (json_is_object(event) &&
        (printing->args->with_steps || strcmp(kind, "step") != 0)) {
        if (!printing->kept)
            print_event(printing, event);
        json_array_append(printing->kept, event);
        if (json_array_size(printing->kept) > printing->tail)
            json_array_remove(printing->kept, 0);
    }
    json_decref(event);
    return !ferror(stdout);
}

static enum zd_status stream_of(
        struct printing *printing, struct target_stream *stream)
{
    const struct cli_args *args = printing->args;
    struct target target;
    stream->follow = args->follow;
    stream->ctx = printing;
    ZD_TRY(ctl_target(args, &printing->look, &target));
    enum zd_status status = target_stream(&target, stream);
    target_fini(&target);
    return status;
}

enum zd_status command_logs(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {.look = look_of_stdout(), .args = args};
    struct target_stream stream = {
            .rank = (int)args->rank,
            .tail = args->tail,
            .line = print_log_line};
    return stream_of(&printing, &stream);
}

enum zd_status command_events(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {
            .look = look_of_stdout(), .args = args, .tail = (size_t)args->tail};
    struct target_stream stream = {
            .is_events = true,
            .with_steps = args->with_steps,
            .tail = -1,
            .line = take_event};
    size_t i;
    json_t *event;
    if (args->tail >= 0 && !args->follow)
        printing.kept = json_array();
    enum zd_status status = stream_of(&printing, &stream);
    json_array_foreach(printing.kept, i, event) print_event(&printing, event);
    json_decref(printing.kept);
    return status;
}

/* --- web --- */

/* The address alone goes to stdout. */
static void tell_address(
        const struct look *look, const struct web *web, const json_t *status)
{
    const char *address = web_address(web);
    char host[256] = "HOST";
    printf("%s\n", address);
    fflush(stdout);
    fill_print(
            look, status,
            "The page of {job|s}: whoever has the address can steer the job. "
            "Ctrl-C ends it.\n",
            stderr);
    if (getenv("SSH_CONNECTION")) {
        int port = (int)strtol(strrchr(address, ':') + 1, NULL, 10);
        gethostname(host, sizeof host - 1);
        fprintf(stderr, "On your own machine: ssh -N -L %d:127.0.0.1:%d %s\n",
                port, port, host);
    }
}

static void tell_end(const struct look *look, const json_t *status)
{
    char report[PATH_MAX];
    snprintf(
            report, sizeof report, "%s/report.html",
            json_text_of(status, "output_dir", ""));
    fill_print(
            look, status,
            fs_exists(report) ? "{job|s} has ended; its page: "
                                "{output_dir|s}/report.html\n"
                              : "{job|s} has ended\n",
            stderr);
}

static enum zd_status serve(
        const struct cli_args *args, const struct look *look,
        const struct target *target)
{
    json_t *shown;
    struct web *web;
    if (!target->socket) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1104",
                "no page: it needs the job's socket, which cannot be reached");
        return zd_fail_help(
                "run zerodctl web on the job's host; of a run that ended, "
                "open report.html in %s",
                target->dir);
    }
    ZD_TRY(target_get(target, "/v1/status", &shown));
    enum zd_status status = web_create(target->socket, (int)args->port, &web);
    if (status == ZD_OK) {
        tell_address(look, web, shown);
        if (!web_serve(web))
            tell_end(look, shown);
        web_destroy(web);
    }
    json_decref(shown);
    return status;
}

enum zd_status command_web(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct target target;
    if (args->port > 65535)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101", "--port is at most 65535, not %lld",
                (long long)args->port);
    ZD_TRY(ctl_target(args, &look, &target));
    enum zd_status status = serve(args, &look, &target);
    target_fini(&target);
    return status;
}
