/* routes_events.c - GET /v1/events: what was kept after an id, then what comes.
 *
 * A stream that is behind is given the kept events in parts, as it reads; one
 * that has caught up gets each event at once. */
#include "base/clock.h"
#include "daemon/control/routes_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void unlink_stream(struct event_stream *stream)
{
    struct event_stream **at = &stream->routes->events;
    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = stream->next;
    free(stream);
}

/* The client left, or reads too little. */
static void on_gone(void *owner)
{
    unlink_stream(owner);
}

/* False: the stream is gone. */
static bool send_event(
        struct event_stream *stream, const struct kept_event *event)
{
    char *text = NULL;
    if (!event->text)
        return true;
    int bytes = asprintf(
            &text, "id: %lld\nevent: %s\ndata: %s\n\n", (long long)event->id,
            event->kind, event->text);
    stream->after = event->id;
    stream->sent_at = clock_seconds();
    bool is_there = bytes < 0 || http_send(stream->stream, text, (size_t)bytes);
    if (bytes >= 0)
        free(text);
    return is_there;
}

static void finish(struct event_stream *stream)
{
    struct http_stream *http = stream->stream;
    unlink_stream(stream);
    http_finish(http);
}

/* The next part of what it lacks; one that does not follow ends then. */
static void catch_up(struct event_stream *stream)
{
    const struct run_state *state = stream->routes->options.state;
    int i = run_state_events_after(state, stream->after);
    size_t queued = http_queued(stream->stream);
    for (; i < state->event_count && queued < STREAM_PART; i++) {
        if (!send_event(stream, run_state_event(state, i)))
            return;
        queued = http_queued(stream->stream);
    }
    if (i == state->event_count && !stream->follows)
        finish(stream);
}

static int64_t newest_id(const struct run_state *state)
{
    if (!state->event_count)
        return 0;
    return run_state_event(state, state->event_count - 1)->id;
}

/* What a browser sends when it comes back wins over the address it came by. */
static bool read_since(
        const struct http_request *request, struct http_reply *reply,
        int64_t *after)
{
    const char *text = request->last_event_id;
    char *end;
    if (!text || !text[0])
        return param_integer(request, reply, "since", 0, INT64_MAX, after);
    long long id = strtoll(text, &end, 10);
    if (*end || id < 0 || !strchr("0123456789", text[0])) {
        reply_error(
                reply, 400, "E_BAD_REQUEST",
                "the number of the last `id:` line",
                "Last-Event-ID: %.40s is no id of an event", text);
        return false;
    }
    *after = id;
    return true;
}

void route_events(
        struct routes *routes, const struct http_request *request,
        struct http_reply *reply)
{
    static const char hello[] = "retry: 2000\n: events of a zerod job\n\n";
    int64_t after = -1;
    bool follows = true;
    if (!param_flag(request, reply, "follow", &follows) ||
        !read_since(request, reply, &after))
        return;
    struct event_stream *stream = calloc(1, sizeof *stream);
    reply->status = 200;
    reply->content_type = "text/event-stream";
    struct http_stream *http =
            stream ? http_defer(reply, on_gone, stream) : NULL;
    if (!http) {
        free(stream);
        reply_error(reply, 500, "E_FAILED", NULL, "out of memory");
        return;
    }
    if (after < 0)
        after = follows ? newest_id(routes->options.state) : 0;
    *stream = (struct event_stream){
            .next = routes->events,
            .routes = routes,
            .stream = http,
            .after = after,
            .sent_at = clock_seconds(),
            .follows = follows && !routes->is_over};
    routes->events = stream;
    if (http_send(http, hello, sizeof hello - 1))
        catch_up(stream);
}

void routes_event(struct routes *routes, const struct kept_event *event)
{
    const struct run_state *state = routes->options.state;
    struct event_stream *next;
    for (struct event_stream *s = routes->events; s; s = next) {
        next = s->next;
        int first = run_state_events_after(state, s->after);
        if (first >= state->event_count - 1) /* it lacks this one alone */
            send_event(s, event);
    }
}

void events_tick(struct routes *routes)
{
    double now = clock_seconds();
    struct event_stream *next;
    for (struct event_stream *s = routes->events; s; s = next) {
        next = s->next;
        if (now - s->sent_at >= HEARTBEAT_SECONDS) {
            s->sent_at = now;
            if (!http_send(s->stream, ": still here\n\n", 14))
                continue;
        }
        catch_up(s);
    }
}

/* What they lack is given as far as it may be queued. */
void events_end(struct routes *routes)
{
    struct event_stream *next;
    for (struct event_stream *s = routes->events; s; s = next) {
        next = s->next;
        if (s->follows) {
            s->follows = false;
            catch_up(s);
        }
    }
    while (routes->events)
        finish(routes->events);
}
