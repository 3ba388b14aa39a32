/* routes_internal.h - for the files routes*.c alone. */
#ifndef ZD_DAEMON_CONTROL_ROUTES_INTERNAL_H
#define ZD_DAEMON_CONTROL_ROUTES_INTERNAL_H

#include "daemon/control/routes.h"

#include <stdio.h>

/* A replay is given in parts: the next one when this much was read. */
enum { STREAM_PART = 256 << 10, HEARTBEAT_SECONDS = 15 };

struct waiter { /* a command that was accepted and not done */
    struct waiter *next;
    struct routes *routes;
    int64_t id;
    enum train_command_kind kind;
    struct http_stream *stream; /* NULL: no one waits for the answer */
    double until;               /* clock; 0: as long as it takes */
};

/* A stream that is given more as it comes: events or a log. */
struct follower {
    struct follower *next;
    struct routes *routes;
    struct http_stream *stream;
    /* Give a part of what it lacks, as far as may be queued; false: the client
     * is gone, and the follower with it. */
    bool (*feed)(struct follower *follower);
    bool has_more; /* another part could follow at once */
    bool has_all;  /* it lacks nothing: then one that does not follow ends */
    bool follows;
    int64_t at;     /* the last id that was sent; how far a log was read */
    int fd;         /* of a log, owned; -1: events */
    double sent_at; /* clock */
};

/* The last answer of a route that takes a millisecond or more to write. */
struct cached_reply {
    char *target, *text; /* owned; NULL: none */
    size_t bytes;
    double made_at; /* clock */
};
#define CACHE_SECONDS 0.25

struct routes {
    struct cached_reply *cached; /* (count) */
    struct routes_options options;
    const struct route *table;
    int count;       /* of the table */
    int64_t last_id; /* of a command */
    struct waiter *waiters;
    struct follower *followers;
    bool is_over;
};

/* --- replies --- */

#define HTTP_JSON "application/json"
#define HTTP_TEXT "text/plain; charset=utf-8"

/* Takes the reference. */
void reply_json(struct http_reply *reply, int status, json_t *json);
/* malloc'd, one object and a newline; takes the reference. */
char *routes_dump(json_t *json, size_t *bytes_out);
/* {"error": {"code", "message", "hint"}}; `hint` may be NULL. */
void reply_error(
        struct http_reply *reply, int status, const char *code,
        const char *hint, const char *format, ...)
        __attribute__((format(printf, 5, 6)));
json_t *error_json(const char *code, const char *message, const char *hint);

/* --- replies that are kept for the next who asks the same --- */

/* Fill `reply` from the last one of this route and target, if it is fresh. */
bool cache_reply(
        const struct cached_reply *cached, const char *target,
        struct http_reply *reply);
void cache_keep(
        struct cached_reply *cached, const char *target,
        const struct http_reply *reply);
/* A command was done: who gave it wants to see what it changed. */
void cache_clear(struct routes *routes);

/* --- parameters of the query; a problem is the reply, and false --- */

/* NULL: not given. */
const char *param_text(const struct http_request *request, const char *name);
bool param_integer(
        const struct http_request *request, struct http_reply *reply,
        const char *name, int64_t min, int64_t max, int64_t *value);
bool param_flag(
        const struct http_request *request, struct http_reply *reply,
        const char *name, bool *value);

/* --- the other files --- */

route_answer route_hello, route_history, route_config, route_schema,
        route_samples, route_plan, route_health, route_ready, route_metrics,
        route_page, route_events, route_logs;
/* A stream for the reply; `fd` is taken over. */
struct follower *follower_create(
        struct routes *routes, struct http_reply *reply,
        bool (*feed)(struct follower *follower), int fd);
void follower_feed(struct follower *follower); /* it may be gone after it */
void followers_tick(struct routes *routes);
void followers_end(struct routes *routes);
void commands_tick(struct routes *routes);
void commands_end(struct routes *routes);

#endif
