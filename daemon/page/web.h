/* web.h - `zerodctl web`: the page in a browser.
 *
 *   browser -> 127.0.0.1:PORT -> guard -> the job's unix socket
 *
 * The job itself opens no port. zerodctl web does, on loopback, as the user who
 * started it and for as long as that lasts; who may pass is web.c's business.
 * Answers pass through as they come (streams too), with headers that keep
 * the page to itself.
 *
 * Threads: none but the caller's. */
#pragma once

#include "base/status.h"

struct web;

/* To the job's `socket`, which outlives it; `port` 0: any that is free. Listens
 * from here on. ZD_ERR_CREATE (E1102): the port is taken. ZD_ERR_UNFIT (E1103):
 * too few descriptors. */
enum zd_status web_create(const char *socket, int port, struct web **web_out);
/* "http://127.0.0.1:PORT/SECRET/". Borrowed. */
const char *web_address(const struct web *web);
/* Serve until INT, TERM or HUP (true) or until the job is gone (false). */
bool web_serve(struct web *web);
/* Ends every connection. */
void web_destroy(struct web *web);
