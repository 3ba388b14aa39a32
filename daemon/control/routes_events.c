/* routes_events.c - streams of events and logs, and their end. GET /v1/events:
 * the kept events after an id, then new ones.
 *
 * A stream gets the kept events that it lacks in parts, as it reads, some times
 * a second. */
#include "daemon/control/routes_internal.h"

#include "base/clock.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
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

struct follower *follower_create(
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
    char *text = NULL;
    int bytes = asprintf(
            &text, "id: %lld\nevent: %s\ndata: %s\n\n", (long long)event->id,
            event->kind, event->text);
    follower->at = event->id;
    follower->sent_at = clock_seconds();
    bool is_there = http_send(follower->stream, zd_must(text), (size_t)bytes);
    free(text);
    return is_there;
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

static int64_t newest_id(const struct past *past)
{
    return past->count ? past->events[past->count - 1].id : 0;
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
    int64_t after = -1;
    bool follows = true;
    if (!param_flag(ask, "follow", &follows) || !read_since(ask, &after))
        return;
    ask->reply->content_type = "text/event-stream";
    struct follower *follower = follower_create(ask, feed, -1);
    follower->at = after >= 0 ? after
                   : follows  ? newest_id(&ask->state->events)
                              : 0;
    follower->follows = follows && !ask->routes->is_over;
    if (http_send(follower->stream, hello, sizeof hello - 1))
        follower_feed(follower);
}
