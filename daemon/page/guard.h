/* guard.h - who may speak to `zerodctl web`.
 *
 * A port on loopback is open to every user and every web page of this machine,
 * so each request is judged by what a stranger cannot have or cannot choose:
 *
 *   Host      127.0.0.1 or localhost with our port: a name that an attacker's
 *             DNS moves to 127.0.0.1 (rebinding) is not among them
 *   Origin    ours, where there is one: no other page's requests
 *   token     128 random bits in the printed address; used once, it leads to
 *   secret    256 random bits, the folder that holds the page and all it asks
 *             for: "/SECRET/v1/status". Not a cookie: a browser sends those to
 *             every port of the host, so to any user's server. What follows it
 *             goes to the job as it was sent: nothing is decoded */
#ifndef ZD_DAEMON_PAGE_GUARD_H
#define ZD_DAEMON_PAGE_GUARD_H

#include "daemon/http/http.h"

enum { GUARD_TOKEN_BYTES = 16, GUARD_SECRET_BYTES = 32 };

struct guard {
    int port;
    char token[2 * GUARD_TOKEN_BYTES + 1]; /* hexadecimal */
    char secret[2 * GUARD_SECRET_BYTES + 1];
    bool token_used; /* private */
};

enum guard_verdict {
    GUARD_PASS,
    GUARD_ENTER,  /* the token was right: lead to "/SECRET/" */
    GUARD_HOST,   /* 403 */
    GUARD_ORIGIN, /* 403 */
    GUARD_UNKNOWN /* 401: neither token nor secret, or a used token */
};

/* New secrets from the system. ZD_ERR_DEVICE (E1101) without any. */
enum zd_status guard_init(struct guard *guard, int port);
/* By its method, target, host and origin. A right token is used up by this
 * call. */
enum guard_verdict guard_judge(
        struct guard *guard, const struct http_request *request);
/* The job's path of a target: "/v1/status" of "/SECRET/v1/status"; NULL without
 * the secret. */
const char *guard_inside(const struct guard *guard, const char *target);

#endif
