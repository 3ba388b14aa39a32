/* command_web.c - zerodctl web: the page of a job in a browser. */
#include "daemon/ctl/ctl.h"
#include "daemon/page/web.h"

#include "base/file/fs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
