/* routes_follow.c - streams of events and logs: who follows, what is still to
 * be given, and the end. */
#include "daemon/control/routes_internal.h"

#include "base/clock.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        struct routes *routes, struct http_reply *reply,
        bool (*feed)(struct follower *follower), int fd)
{
    struct follower *follower = zd_must(calloc(1, sizeof *follower));
    *follower = (struct follower){
            .next = routes->followers,
            .routes = routes,
            .stream = zd_must(http_defer(reply, on_gone, follower)),
            .feed = feed,
            .fd = fd,
            .sent_at = clock_seconds()};
    routes->followers = follower;
    return follower;
}

static void finish(struct follower *follower)
{
    struct http_stream *stream = follower->stream;
    forget(follower);
    http_finish(stream);
}

void follower_feed(struct follower *follower)
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

/* They get what they lack, as far as it may be queued. */
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
