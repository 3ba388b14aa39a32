/* routes.h - the paths of docs/control.md, as one table. */
#pragma once

#include "daemon/http/http.h"
#include "daemon/state/run_state.h"

struct routes; /* run_state, waiting commands, streams */

struct routes_options {
    struct run_state *state;
    bool readonly;
    /* Take in pending messages of the run before an answer; may be NULL. */
    void (*refresh)(void *ctx);
    /* Give a command to the trainer; false: too many wait. */
    bool (*post)(void *ctx, const struct train_command *command);
    void *ctx;
};
struct routes *routes_create(const struct routes_options *options);
void routes_destroy(struct routes *routes);

/* An http_handler; ctx is the struct routes. Also what the fuzzer feeds. */
void routes_handle(
        void *ctx, const struct http_request *request,
        struct http_reply *reply);
/* From the control thread, for waiting clients. */
void routes_done(struct routes *routes, const struct message_done *done);
/* Several times a second: new events and lines of followed logs, comments on
 * streams, commands whose timeout has passed. */
void routes_tick(struct routes *routes);
/* The run has ended: commands that wait get 503, streams end. */
void routes_end(struct routes *routes);
