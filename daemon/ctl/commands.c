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

enum zd_status command_ls(struct cli_args *args)
{
    json_auto_t *jobs = jobs_find();
    if (ctl_wants_json(args))
        ctl_print_json(jobs, false);
    else
        show_jobs(&args->look, jobs);
    return ZD_OK;
}

/* --- streams --- */

struct printing {
    const struct cli_args *args;
    json_t *kept; /* events, oldest first, at most the last `tail` of them;
                     NULL: printed at once */
    size_t tail;
};

static bool print_log_line(void *ctx, const char *line)
{
    const struct cli_args *args = ctx;
    text_print(&args->look, line, true);
    fputc('\n', stdout);
    return !ferror(stdout);
}

static void print_event(const struct cli_args *args, const json_t *event)
{
    if (ctl_wants_json(args))
        ctl_print_json(event, true);
    else
        show_event(&args->look, event);
}

static bool take_event(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    const struct cli_args *args = printing->args;
    json_auto_t *event = json_of_line(line, strlen(line));
    const char *kind = json_text_of(event, "event", "");
    if (json_is_object(event) &&
        (args->with_steps || strcmp(kind, "step") != 0)) {
        if (!printing->kept)
            print_event(args, event);
        json_array_append(printing->kept, event);
        if (json_array_size(printing->kept) > printing->tail)
            json_array_remove(printing->kept, 0);
    }
    return !ferror(stdout);
}

enum zd_status command_logs(struct cli_args *args)
{
    const struct target_stream stream = {
            .rank = (int)args->rank,
            .tail = args->tail,
            .follow = args->follow,
            .line = print_log_line,
            .ctx = args};
    ZD_TRY(ctl_target(args));
    return target_stream(&args->target, &stream);
}

enum zd_status command_events(struct cli_args *args)
{
    bool keeps = args->tail >= 0 && !args->follow;
    json_auto_t *kept = keeps ? json_array() : NULL;
    struct printing printing = {args, kept, (size_t)args->tail};
    const struct target_stream stream = {
            .is_events = true,
            .with_steps = args->with_steps,
            .tail = -1,
            .follow = args->follow,
            .line = take_event,
            .ctx = &printing};
    ZD_TRY(ctl_target(args));
    enum zd_status status = target_stream(&args->target, &stream);
    JSON_EACH(event, kept)
        print_event(args, event);
    return status;
}

/* --- web --- */

/* The address alone goes to stdout; `look` is of stderr. */
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
            "Ctrl-C ends it.\n");
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
    ZD_PRINT(report, "%s/report.html", json_text_of(status, "output_dir", ""));
    fill_print(
            look, status,
            fs_exists(report) ? "{job|s} has ended; its page: "
                                "{output_dir|s}/report.html\n"
                              : "{job|s} has ended\n");
}

enum zd_status command_web(struct cli_args *args)
{
    struct look look = args->look;
    const struct target *target = &args->target;
    json_auto_t *shown = NULL;
    struct web *web;
    look.out = stderr;
    if (args->port > 65535)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101", "--port is at most 65535, not %lld",
                (long long)args->port);
    ZD_TRY(ctl_target(args));
    if (!target->socket) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1104",
                "no page: it needs the job's socket, which cannot be reached");
        return zd_fail_help(
                "run zerodctl web on the job's host; of a run that ended, "
                "open report.html in %s",
                target->dir);
    }
    ZD_TRY(target_get(target, "/v1/status", &shown));
    ZD_TRY(web_create(target->socket, (int)args->port, &web));
    tell_address(&look, web, shown);
    if (!web_serve(web))
        tell_end(&look, shown);
    web_destroy(web);
    return ZD_OK;
}
