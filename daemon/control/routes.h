/* routes.h - the paths of docs/control.md, as one table. */
#pragma once

#include "daemon/http/http.h"
#include "daemon/state/run_state.h"

struct routes; /* run_state, waiting commands, streams */

struct routes_options {
    struct run_state *state;
    json_t *config; /* borrowed: of GET /v1/config */
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
/* From the control thread, for waiting clients. `error` NULL: it was done. */
void routes_done(
        struct routes *routes, const struct train_command *command,
        int64_t step, const struct zd_error *error, const json_t *result);
/* Several times a second: new events and lines of followed logs, comments on
 * streams, commands whose timeout has passed. */
void routes_tick(struct routes *routes);
/* The run has ended: commands that wait get 503, streams end. */
void routes_end(struct routes *routes);
