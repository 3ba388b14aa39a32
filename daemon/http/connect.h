/* connect.h - the client's side: connect to a job's unix socket, and the bytes
 * of a request.
 *
 * Names of sockets lie where others can make files first (/tmp/zerod-UID), or
 * are read from files that others may write. So before a byte is sent or
 * believed, the process that listens (SO_PEERCRED), the folder and the socket's
 * file must belong to this user or to root. Root may ask anyone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A non-blocking descriptor; -1 and errno, EAGAIN: the job's queue of
 * connections is full, EKEYREJECTED: it belongs to *stranger_out, who is not to
 * be trusted. */
int http_connect(const char *path, uid_t *stranger_out);

/* A request of HTTP/1.0: the only one of its connection, whose answer comes in
 * no chunks. */
struct http_question {
    const char *method, *target;
    const char *body; /* JSON; NULL without one */
    size_t body_bytes;
    const char *last_event_id; /* a header; NULL: none */
};
/* malloc'd. */
char *http_question_text(
        const struct http_question *question, size_t *bytes_out);
