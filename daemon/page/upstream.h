/* upstream.h - the relay's side towards the job: one request on its unix
 * socket, the answer in pieces, as they come. */
#ifndef ZD_DAEMON_PAGE_UPSTREAM_H
#define ZD_DAEMON_PAGE_UPSTREAM_H

#include "daemon/http/reader.h"

#include <sys/types.h>

enum { UPSTREAM_PIECE = 32768 };

struct upstream {
    struct http_reader reader;  /* its status and type, once open */
    int fd, client_fd, stop_fd; /* borrowed but fd; -1: none */
    bool is_over;               /* nothing more comes from the job */
    size_t begin, end;          /* of piece: read, and not yet taken */
    char piece[UPSTREAM_PIECE]; /* of the body */
};

struct upstream_request {
    const char *socket; /* path */
    uid_t owner;        /* of the job (daemon/http/owner.h) */
    const char *method, *target;
    const char *body; /* "" without one */
    size_t body_bytes;
    const char *accept, *last_event_id; /* headers; NULL: none */
    int client_fd; /* who asks: when it hangs up, so do we; -1: nobody */
    int stop_fd;   /* readable: give up; -1: none */
};

/* Send the request and wait for the head of its answer, for as long as it
 * takes: a command may wait for its step. NULL: nobody listens, the job ended,
 * the client left, or there is no memory. */
struct upstream *upstream_open(const struct upstream_request *request);
/* Bytes of the body, waiting for at least one; 0: it is complete; -1: it broke
 * off. */
ssize_t upstream_read(struct upstream *upstream, char *out, size_t bytes);
void upstream_close(struct upstream *upstream);

/* Connect to a unix socket; -1 and errno: ECONNREFUSED too when it is not whose
 * it should be (daemon/http/owner.h). */
int upstream_connect(const char *socket, uid_t owner, bool acts);

#endif
