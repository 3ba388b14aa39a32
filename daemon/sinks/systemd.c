/* systemd.c - messages of a unit of Type=notify, as datagrams to the socket
 * that NOTIFY_SOCKET names (sd_notify(3); "@" begins an abstract name).
 *
 *   READY=1        after the first step: the model is loaded, all memory is
 *                  taken, the data is readable and a step went through, so
 *                  what waits for the unit waits for a job that trains
 *   STATUS=        a line for `systemctl status`, when it changed
 *   WATCHDOG=1     while the run makes progress (below)
 *   STOPPING=1     once, when the run is stopping or has ended
 *
 * The run is alive, for the watchdog, if it made a step since the last message
 * or does something else than steps (the watch of the ranks limits that). That
 * this thread answers does not count: a trainer that hangs must be caught. So
 * WatchdogSec must be longer than two steps.
 *
 * Under mpirun the main process of a unit is mpirun, which says nothing: the
 * unit needs NotifyAccess=all, and WATCHDOG_PID is not ours to compare with. */
#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "daemon/cli/look.h"
#include "daemon/sinks/sink.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct systemd {
    int socket;
    double watchdog_seconds; /* WatchdogSec; 0: none */
    double told_at;          /* clock_seconds of the last WATCHDOG=1 */
    int64_t told_step;       /* the last step by then */
    bool is_ready, is_stopping, was_told;
    char status[160];
};

/* --- the socket --- */

/* Never waits: if systemd does not read, the message is lost. */
static void tell(struct systemd *systemd, const char *text)
{
    ssize_t n = send(
            systemd->socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && !systemd->was_told) {
        systemd->was_told = true;
        zd_log_warning(
                "cannot tell systemd of the run: %s; training goes on",
                strerror(errno));
    }
}

/* --- messages --- */

static void tell_ready(struct systemd *systemd, const struct run_state *state)
{
    if (systemd->is_ready)
        return;
    systemd->is_ready = true;
    systemd->told_at = clock_seconds();
    systemd->told_step = state->step.step;
    tell(systemd, "READY=1\nWATCHDOG=1");
}

static void status_line(const struct run_state *state, char *out, size_t room)
{
    const char *name = train_run_state_name(state->state);
    double left = run_state_eta(state);
    char eta[40] = "", loss[32] = "";
    if (isfinite(left) && state->state == RUN_RUNNING)
        ZD_PRINT(eta, " eta %s", TEXT_DURATION(left));
    double last = run_state_last(state, "train/loss");
    if (isfinite(last))
        ZD_PRINT(loss, " loss %.4g", last);
    if (!state->has_banner)
        snprintf(out, room, "%s", name);
    else
        snprintf(
                out, room, "%s%sstep %lld/%lld%s%s",
                state->state == RUN_RUNNING ? "" : name,
                state->state == RUN_RUNNING ? "" : ", ",
                (long long)state->step.step, (long long)state->facts.max_steps,
                loss, eta);
}

static void tell_status(struct systemd *systemd, const struct run_state *state)
{
    char line[sizeof systemd->status], text[sizeof line + 16];
    status_line(state, line, sizeof line);
    if (strcmp(line, systemd->status) == 0)
        return;
    memcpy(systemd->status, line, sizeof line);
    ZD_PRINT(text, "STATUS=%s", line);
    tell(systemd, text);
}

static void tell_watchdog(
        struct systemd *systemd, const struct run_state *state)
{
    double now = clock_seconds();
    /* else it hangs, or its steps take longer than WatchdogSec */
    bool is_alive =
            state->step.step > systemd->told_step ||
            (state->state != RUN_RUNNING && state->state != RUN_STALLED);
    if (systemd->watchdog_seconds <= 0 || !systemd->is_ready ||
        now - systemd->told_at < systemd->watchdog_seconds / 2 || !is_alive)
        return;
    systemd->told_at = now;
    systemd->told_step = state->step.step;
    tell(systemd, "WATCHDOG=1");
}

/* --- the sink --- */

static void tick(struct systemd *systemd, const struct run_state *state)
{
    if (state->state >= RUN_STOPPING && !systemd->is_stopping) {
        systemd->is_stopping = true;
        tell(systemd, "STOPPING=1");
    }
    tell_watchdog(systemd, state);
    tell_status(systemd, state);
}

static void take(void *ctx, const char *news, const struct run_state *state)
{
    if (strcmp(news, "tick") == 0)
        tick(ctx, state);
    if (strcmp(news, "step") != 0)
        return;
    tell_ready(ctx, state);
    tell_watchdog(ctx, state);
}

/* A run without a step to make is ready too: without READY=1 the unit would
 * have failed. */
static void close_systemd(void *ctx, const struct run_state *state)
{
    struct systemd *systemd = ctx;
    if (state->state != RUN_FAILED)
        tell_ready(systemd, state);
    tick(systemd, state);
    close(systemd->socket);
    free(systemd);
}

/* WATCHDOG_USEC; 0: none. */
static double watchdog_seconds(void)
{
    const char *text = getenv("WATCHDOG_USEC");
    char *end;
    double usec = text ? strtod(text, &end) : 0;
    return text && !*end && usec > 0 ? usec / 1e6 : 0;
}

/* -1: none. */
static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    bool is_name = (path[0] == '/' || path[0] == '@') && length > 1 &&
                   length < sizeof address.sun_path;
    int fd = is_name ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    memcpy(address.sun_path, path, is_name ? length : 0);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    length += offsetof(struct sockaddr_un, sun_path);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&address, (socklen_t)length) == 0)
        return fd;
    zd_log_warning(
            "cannot tell systemd of the run (NOTIFY_SOCKET=%s): %s", path,
            is_name ? strerror(errno) : "this names no socket");
    if (fd >= 0)
        close(fd);
    return -1;
}

enum zd_status systemd_open(const struct train_job *job, struct sink *sink_out)
{
    const char *path = getenv("NOTIFY_SOCKET");
    int fd = path && *path ? connect_socket(path) : -1;
    if (fd < 0)
        return ZD_OK;
    struct systemd *systemd = zd_array(1, sizeof *systemd);
    systemd->socket = fd;
    systemd->watchdog_seconds = watchdog_seconds();
    *sink_out =
            (struct sink){.ctx = systemd, .take = take, .close = close_systemd};
    return ZD_OK;
}
