/* answers.h - what the relay itself says, with the headers that keep the page
 * to itself. Internal to the relay. */
#ifndef ZD_DAEMON_PAGE_ANSWERS_H
#define ZD_DAEMON_PAGE_ANSWERS_H

#include "daemon/page/guard.h"

#include <microhttpd.h>

/* Takes `response`, which may be NULL: nothing is answered then. `type` may be
 * empty. */
enum MHD_Result answer(
        struct MHD_Connection *connection, int status, const char *type,
        struct MHD_Response *response);
/* The texts go into JSON as they are. */
enum MHD_Result answer_error(
        struct MHD_Connection *connection, int status, const char *code,
        const char *message, const char *hint);
/* To the page, for a token that was good. */
enum MHD_Result answer_enter(
        struct MHD_Connection *connection, const struct guard *guard);
/* Why the guard lets nothing through. */
enum MHD_Result answer_refused(
        struct MHD_Connection *connection, enum guard_verdict verdict,
        const char *target);

#endif
