/* relay.h - a request of the page is passed on to the job's unix socket, and
 * the answer back in pieces, as they come. */
#pragma once

#include "daemon/http/http.h"

struct relay {
    uv_loop_t *loop;
    const char *socket; /* of the job */
};

/* Ask for `target`, with the request's method, body and Last-Event-ID.
 * The answer comes later; a job that does not answer is a 503. When the browser
 * leaves, so does the question. */
void relay_ask(
        const struct relay *relay, const struct http_request *request,
        const char *target, struct http_reply *reply);
