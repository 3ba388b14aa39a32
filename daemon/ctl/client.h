/* client.h - ask a job on its unix socket: one request, one connection.
 *
 * Blocking. What is refused, broken or missing becomes a record:
 *
 *   E1090  66  there is no such socket
 *   E1092  69  no answer in time, or an answer that breaks off
 *   E1093  77  refused by the job (403)
 *   E1094  77  the socket may not be opened, or is not whose it should be
 *   E1095  64  the job does not have what was asked for (400, 404, ..)
 *   E1096  69  the command failed, or the run is ending (500, 503)
 *   E1087  69  it cannot be done now (409) */
#pragma once

#include "base/file/json.h"
#include "daemon/http/ask.h"

struct client_request {
    const char *socket; /* path */
    struct http_question question;
    double timeout; /* seconds without a byte from the job; 0: no limit */
    /* Gets the body of a 200 as it comes; false: enough. NULL: it is
     * collected in the answer. */
    bool (*data)(void *ctx, const char *data, size_t bytes);
    /* Some times a second while nothing comes; false: give up. May be NULL. */
    bool (*idle)(void *ctx, double waited_seconds);
    void *ctx;
};

struct client_answer {
    int status; /* of HTTP; 0: given up before one came */
    char *body; /* NUL-terminated; empty when it went to `data` */
    size_t bytes;
    bool is_cut; /* by data or idle */
};

/* ZD_OK for 2xx and for an answer that was cut; else the record, also in the
 * job's own words. The body is the caller's to free, also after a failure. */
enum zd_status client_ask(
        const struct client_request *request, struct client_answer *answer);
/* Ask for an object; an answer that is none makes a record. ZD_OK and NULL:
 * idle gave up. */
enum zd_status client_object(
        const struct client_request *request, json_t **json_out);
/* The same of GET `what`. */
enum zd_status client_get(
        const char *socket, const char *what, double timeout,
        json_t **json_out);

/* Does this thread's record have the code? */
bool client_failed_with(const char *code);
