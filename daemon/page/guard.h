/* guard.h - who may speak to the relay of `zerodctl web`.
 *
 * A port on loopback is open to every user and every web page of this machine,
 * so each request is judged by what a stranger cannot have or cannot choose:
 *
 *   Host      127.0.0.1 or localhost with our port: a name that an attacker's
 *             DNS moves to 127.0.0.1 (rebinding) is not among them
 *   Origin    ours, where there is one: no other page's requests
 *   token     128 random bits in the printed address; used once, it buys
 *   cookie    256 random bits, HttpOnly, SameSite=Strict, named after the port
 *             (cookies do not know ports)
 *   path      one of docs/control.md, as it was sent: nothing is decoded
 *
 * Threads: guard_judge may be called by several at once. */
#ifndef ZD_DAEMON_PAGE_GUARD_H
#define ZD_DAEMON_PAGE_GUARD_H

#include "base/status.h"

#include <stdatomic.h>

enum { GUARD_TOKEN_BYTES = 16, GUARD_COOKIE_BYTES = 32 };

struct guard {
    int port;
    char token[2 * GUARD_TOKEN_BYTES + 1]; /* hexadecimal */
    char cookie[2 * GUARD_COOKIE_BYTES + 1];
    char cookie_name[24];   /* "zerod_PORT" */
    atomic_bool token_used; /* private */
};

struct guard_request {  /* NULL: the header is not there */
    const char *method; /* "GET" */
    const char *target; /* "/v1/logs?tail=10", as it was sent */
    const char *host;   /* NULL too when there are several */
    const char *origin;
    const char *cookies; /* "a=b; c=d" */
};

enum guard_verdict {
    GUARD_PASS,
    GUARD_ENTER,   /* the token was right: give the cookie */
    GUARD_HOST,    /* 403 */
    GUARD_ORIGIN,  /* 403 */
    GUARD_UNKNOWN, /* 401: neither token nor cookie, or a used token */
    GUARD_PATH,    /* 404 */
    GUARD_METHOD,  /* 405 */
};

/* New secrets from the system. ZD_ERR_DEVICE (E1101) without any. */
enum zd_status guard_init(struct guard *guard, int port);
/* A right token is used up by this call. */
enum guard_verdict guard_judge(
        struct guard *guard, const struct guard_request *request);

#endif
