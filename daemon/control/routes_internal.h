/* routes_internal.h - for the files routes*.c alone. */
#pragma once

#include "daemon/control/routes.h"

#include <stdio.h>

/* A replay is sent in parts of about this size. */
enum { STREAM_PART = 256 << 10, HEARTBEAT_SECONDS = 15 };

struct waiter { /* a command that was accepted and not done */
    struct waiter *next;
    struct routes *routes;
    int64_t id;
    enum train_command_kind kind;
    struct http_stream *stream; /* NULL: no client waits */
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

struct routes {
    struct routes_options options;
    int64_t last_id; /* of a command */
    struct waiter *waiters;
    struct follower *followers;
    bool is_over;
};

struct ask { /* a request that is being answered */
    struct routes *routes;
    const struct run_state *state;
    const struct http_request *request;
    struct http_reply *reply;
};

typedef void route_answer(const struct ask *ask);

/* The reply is an error; false. */
#define refuse(ask, status, code, hint, ...)                                   \
    (http_error((ask)->reply, status, code, hint, __VA_ARGS__), false)

/* --- parameters of the query; a problem is the reply, and false --- */

/* NULL: not given. */
const char *param_text(const struct ask *ask, const char *name);
bool param_integer(
        const struct ask *ask, const char *name, int64_t min, int64_t max,
        int64_t *value);
bool param_flag(const struct ask *ask, const char *name, bool *value);

/* --- commands --- */

/* The answer of a command: 202, or later what became of it. */
void command_answer(const struct ask *ask, enum train_command_kind kind);

/* --- the other files --- */

route_answer route_events, route_logs;
void followers_tick(struct routes *routes);
void followers_end(struct routes *routes);
void commands_tick(struct routes *routes);
void commands_end(struct routes *routes);
