/* routes_case.h - the control routes of a run that does not run, without a
 * socket: requests, replies, and a run's messages. Streams are
 * http/stream.c's, which keep what is sent when no connection takes it. */
#ifndef ZD_TESTS_DAEMON_CONTROL_ROUTES_CASE_H
#define ZD_TESTS_DAEMON_CONTROL_ROUTES_CASE_H

#include "daemon/control/routes.h"
#include "daemon/http/server.h"
#include "daemon/state/messages.h"
#include "tests/support/scratch.h"

struct routes_case {
    struct scratch scratch;
    struct train_job job;
    struct run_state *state;
    struct routes *routes;
    json_t *config, *schema;
    struct train_command posted; /* the last */
    int post_count;
    bool is_full;
    struct http_request request;
    struct http_reply reply;
};
extern struct routes_case t; /* of the test's own process */

void routes_setup(void);
void routes_teardown(void);
void open_routes(bool readonly);

/* --- requests and replies --- */

/* "/v1/x?a=1&b=2", nothing escaped. */
void ask_as(
        const char *method, const char *target, const char *body, bool may_act);
void get(const char *target);
void post(const char *target, const char *body);
/* The body, or what was sent on the stream so far. Borrowed. */
const char *text_of_reply(void);
json_t *json_of_reply(void);
/* The status, and the code of the error. */
void expect_error(int status, const char *code);
void forget_reply(void);

/* --- a run, told by messages --- */

const struct kept_event *take(
        enum message_kind kind, const void *payload, size_t bytes);
void begin_run(void);
void make_step(int64_t step);
/* `members`: ",\"key\":value"..; an id of 0 is no one's: */
void tell_event(
        int64_t id, int64_t step, const char *kind, const char *members);
void make_event(int64_t id);
void finish_command(const struct zd_error *error, json_t *result);
void set_state(enum train_run_state state);

#endif
