/* routes_events.c - streams of events and logs, and their end. GET /v1/events:
 * the kept events after an id, then new ones. GET /v1/logs: lines.
 *
 * A stream gets the kept events that it lacks in parts, as it reads, some times
 * a second. */
#include "daemon/control/routes_internal.h"

#include "base/clock.h"
#include "base/must.h"
#include "daemon/state/log_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- followers --- */

static void forget(struct follower *follower)
{
    struct follower **at = &follower->routes->followers;
    while (*at != follower)
        at = &(*at)->next;
    *at = follower->next;
    if (follower->fd >= 0)
        close(follower->fd);
    free(follower);
}

/* The client left, or reads too little. */
static void on_gone(void *owner)
{
    forget(owner);
}

/* A stream for the reply; `fd` is taken over. */
static struct follower *follower_create(
        const struct ask *ask, bool (*feed)(struct follower *follower), int fd)
{
    struct follower *follower = zd_must(calloc(1, sizeof *follower));
    *follower = (struct follower){
            .next = ask->routes->followers,
            .routes = ask->routes,
            .stream = zd_must(http_defer(ask->reply, on_gone, follower)),
            .feed = feed,
            .fd = fd,
            .sent_at = clock_seconds()};
    ask->routes->followers = follower;
    return follower;
}

static void finish(struct follower *follower)
{
    struct http_stream *stream = follower->stream;
    forget(follower);
    http_finish(stream);
}

/* The follower may be gone after it. */
static void follower_feed(struct follower *follower)
{
    if (follower->feed(follower) && follower->has_all && !follower->follows)
        finish(follower);
}

void followers_tick(struct routes *routes)
{
    double now = clock_seconds();
    struct follower *next;
    for (struct follower *f = routes->followers; f; f = next) {
        next = f->next;
        bool is_silent = f->fd < 0 && now - f->sent_at >= HEARTBEAT_SECONDS;
        if (is_silent)
            f->sent_at = now;
        if (!is_silent || http_send(f->stream, ": still here\n\n", 14))
            follower_feed(f);
    }
}

/* Sends the rest first, as far as it may be queued. */
void followers_end(struct routes *routes)
{
    while (routes->followers) {
        struct follower *follower = routes->followers;
        bool is_there = true;
        do
            is_there = follower->feed(follower);
        while (is_there && follower->has_more);
        if (is_there)
            finish(follower);
    }
}

/* --- events --- */

/* False: the stream is gone. */
static bool send_event(
        struct follower *follower, const struct kept_event *event)
{
    ZD_FREED char *text = NULL;
    int bytes = asprintf(
            &text, "id: %lld\nevent: %s\ndata: %s\n\n", (long long)event->id,
            event->kind, event->text);
    follower->at = event->id;
    follower->sent_at = clock_seconds();
    return http_send(follower->stream, zd_must(text), (size_t)bytes);
}

static bool feed(struct follower *follower)
{
    const struct past *past = &follower->routes->options.state->events;
    int i = past_after(past, follower->at);
    for (; i < past->count && http_queued(follower->stream) < STREAM_PART; i++)
        if (!send_event(follower, &past->events[i]))
            return false;
    follower->has_all = i == past->count;
    return true;
}

/* What a browser sends when it comes back wins over the address it came by. */
static bool read_since(const struct ask *ask, int64_t *after)
{
    const char *text = ask->request->last_event_id;
    char *end;
    if (!text || !text[0])
        return param_integer(ask, "since", 0, INT64_MAX, after);
    long long id = strtoll(text, &end, 10);
    if (*end || id < 0 || !strchr("0123456789", text[0]))
        return refuse(
                ask, 400, "E_BAD_REQUEST", "the number of the last `id:` line",
                "Last-Event-ID: %.40s is not the id of an event", text);
    *after = id;
    return true;
}

void route_events(const struct ask *ask)
{
    static const char hello[] = "retry: 2000\n: events of a zerod job\n\n";
    const struct past *past = &ask->state->events;
    int64_t after = -1;
    bool follows = true;
    if (!param_flag(ask, "follow", &follows) || !read_since(ask, &after))
        return;
    ask->reply->content_type = "text/event-stream";
    struct follower *follower = follower_create(ask, feed, -1);
    follower->at = after >= 0               ? after
                   : follows && past->count ? past->events[past->count - 1].id
                                            : 0;
    follower->follows = follows && !ask->routes->is_over;
    if (http_send(follower->stream, hello, sizeof hello - 1))
        follower_feed(follower);
}

/* --- logs: lines of output_dir/logs/rank-NNNNN.log ---
 *
 * The name is made of the rank's number alone. At most LOOK_BACK bytes before
 * the file's end are read, and PART bytes at a time of one that is followed. */

enum { LOOK_BACK = 4 << 20, PART = 64 << 10, TAIL_MAX = 100000 };

/* -1: the reply says why there is none. */
static int open_log(const struct ask *ask, int rank)
{
    char path[PATH_MAX];
    struct stat info;
    const struct run_state *state = ask->state;
    const struct train_job *job = state->job;
    if (state->has_banner && rank >= state->facts.world) {
        http_error(
                ask->reply, 404, "E_NOT_FOUND", "GET /v1/ranks lists them",
                "there is no rank %d: the ranks are 0 to %d", rank,
                state->facts.world - 1);
        return -1;
    }
    ZD_PRINT(path, "%.3900s/logs/rank-%05d.log", job->job.output_dir, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        return fd;
    int error = fd >= 0 ? EINVAL : errno;
    if (fd >= 0)
        close(fd);
    http_error(
            ask->reply, 404, "E_NOT_FOUND",
            job->log.rank_logs == RANK_LOGS_FILES
                    ? "try again when it has written a line"
                    : "rank_logs = \"files\" in [log] of the job file",
            "there is no log of rank %d: %s", rank, strerror(error));
    return -1;
}

/* New whole lines. */
static bool feed_log(struct follower *follower)
{
    static char part[PART]; /* the loop's thread alone comes here */
    follower->has_more = false;
    if (http_queued(follower->stream) >= STREAM_PART)
        return true;
    size_t bytes =
            log_lines_next(follower->fd, &follower->at, part, sizeof part);
    follower->has_more = bytes > 0;
    return !bytes || http_send(follower->stream, part, bytes);
}

void route_logs(const struct ask *ask)
{
    int64_t rank = 0, tail = 1000, end;
    bool follows = false;
    size_t bytes;
    if (!param_integer(ask, "rank", 0, 99999, &rank) ||
        !param_integer(ask, "tail", 0, TAIL_MAX, &tail) ||
        !param_flag(ask, "follow", &follows))
        return;
    int fd = open_log(ask, (int)rank);
    if (fd < 0)
        return;
    char *text = log_lines_last(fd, LOOK_BACK, tail, &end, &bytes);
    ask->reply->content_type = "text/plain; charset=utf-8";
    if (follows && !ask->routes->is_over) {
        /* what is queued for one client is bounded: the end of it */
        size_t cut = bytes > 2 * STREAM_PART ? bytes - 2 * STREAM_PART : 0;
        struct follower *follower = follower_create(ask, feed_log, fd);
        follower->follows = true;
        follower->at = end;
        http_send(follower->stream, text + cut, bytes - cut);
        free(text);
        return;
    }
    close(fd);
    ask->reply->body = text;
    ask->reply->body_bytes = bytes;
}
