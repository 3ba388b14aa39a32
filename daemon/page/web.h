/* web.h - `zerodctl web`: the page in a browser.
 *
 *   browser -> 127.0.0.1:PORT -> guard -> the job's unix socket
 *
 * The job itself opens no port. This relay does, on loopback, as the user who
 * started it and for as long as that lasts; who may pass is guard.h's. The
 * printed address has a token that works once; that it was used is said.
 * Answers go through as they come (streams too), with headers that keep the
 * page to itself.
 *
 * Threads: one a connection, libmicrohttpd's; they share the guard, and under
 * a mutex the table of connections. */
#ifndef ZD_DAEMON_PAGE_WEB_H
#define ZD_DAEMON_PAGE_WEB_H

#include "base/status.h"

#include <sys/types.h>

struct web;

struct web_options {
    const char *socket; /* of the job; outlives the relay */
    uid_t owner;        /* of the job (daemon/http/owner.h) */
    int port;           /* 0: any that is free */
};

/* Listens from here on. ZD_ERR_CREATE (E1102): the port is taken; E1103: no
 * thread. */
enum zd_status web_create(
        const struct web_options *options, struct web **web_out);
/* "http://127.0.0.1:PORT/?token=T". Borrowed. */
const char *web_address(const struct web *web);
/* Until INT or TERM (true) or until the job is gone (false). The caller has
 * blocked both signals in all threads (web_block_signals). */
bool web_wait(struct web *web);
/* Ends every connection. */
void web_destroy(struct web *web);

/* Before web_create, so that its threads have it too. */
void web_block_signals(void);
/* Start the user's browser (xdg-open) with a file of mode 0600 that leads to
 * the address: what a program is started with, every user of this machine may
 * read. The file goes when the token is used, at the latest with the relay. A
 * line when there is no browser, or no place for the file. */
void web_open_browser(struct web *web);

#endif
