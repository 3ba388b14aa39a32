/* routes.h - what is answered to whom: docs/control.md as one table. */
#ifndef ZD_DAEMON_CONTROL_ROUTES_H
#define ZD_DAEMON_CONTROL_ROUTES_H

#include "daemon/control/http.h"
#include "daemon/control/run_state.h"

struct route {
    const char *method, *path;
    const char *params; /* of the query, separated by spaces; "" for none */
    bool acts;          /* a command */
    const char *help;   /* one line */
};
extern const struct route routes_table[];
extern const int routes_count;

struct routes; /* run_state, waiting commands, streams */
struct routes_options {
    struct run_state *state;
    json_t *config; /* borrowed */
    bool readonly;
    /* Give a command to the trainer; false: too many wait. */
    bool (*post)(void *ctx, const struct train_command *command);
    void *ctx;
};
enum zd_status routes_create(
        const struct routes_options *options, struct routes **routes_out);
void routes_destroy(struct routes *routes);

/* An http_handler; ctx is the struct routes. Also what the fuzzer feeds. */
void routes_handle(
        void *ctx, const struct http_request *request,
        struct http_reply *reply);
/* The control thread tells: to streams of events, and to who waits. */
void routes_event(struct routes *routes, const struct kept_event *event);
void routes_done(
        struct routes *routes, const struct train_command *command,
        int64_t step, const struct zd_error *error, const json_t *result);
/* Every second: comments on streams, lines of logs that are followed. */
void routes_tick(struct routes *routes);
/* The run has ended: commands that wait get 503. */
void routes_end(struct routes *routes);

#endif
