/* client.h - ask a job on its unix socket: one request, one connection.
 *
 * Blocking. A signal ends a wait early (client_interrupted). What is refused,
 * broken or missing becomes a record:
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

struct client_request {
    const char *socket; /* path */
    const char *method; /* "GET" | "POST" */
    const char *target; /* "/v1/logs?tail=10" */
    const char *body;   /* JSON; NULL without one */
    double timeout;     /* seconds without a byte from the job; 0: no limit */
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
    bool is_cut; /* by data, idle or a signal */
};

/* ZD_OK for every whole answer, whatever its status is. The body is the
 * caller's to free, also after a failure. */
enum zd_status client_ask(
        const struct client_request *request, struct client_answer *answer);
/* ZD_OK for 2xx; else the record of the job's own words. */
enum zd_status client_check(const struct client_answer *answer);
/* Ask for an object; an answer that is none or is refused makes a record.
 * ZD_OK and no object: *is_cut_out. */
enum zd_status client_object(
        const struct client_request *request, bool *is_cut_out,
        json_t **json_out);
/* The same of GET `what`; a signal ends the process. */
enum zd_status client_get(
        const char *socket, const char *what, double timeout,
        json_t **json_out);

/* Does this thread's record have the code? */
bool client_failed_with(const char *code);

/* INT and TERM are noted from here on and end waits. */
void client_catch_signals(void);
/* The signal that came, or 0. */
int client_interrupted(void);
/* End as the signal would have ended the process. Does not return. */
_Noreturn void client_end_by_signal(void);
