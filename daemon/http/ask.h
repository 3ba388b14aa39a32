/* ask.h - the client: a request to a job's unix socket, and the reader of its
 * answer, which may arrive in pieces.
 *
 * Sockets are in folders where other users can create files first
 * (/tmp/zerod-UID), or are named in files that others may write. So before a
 * byte is sent or trusted, the listening process (SO_PEERCRED), the folder and
 * the socket's file must belong to this user or to root.
 *
 * Source: RFC 9112, sections 4 to 6. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A non-blocking descriptor, without checking who listens; -1 and errno.
 * EAGAIN: the queue of connections is full. */
int http_dial(const char *path);
/* The same with the check; -1 and EKEYREJECTED: it belongs to *stranger_out,
 * another user. */
int http_connect(const char *path, uid_t *stranger_out);

/* A request of HTTP/1.0: the only one of its connection, whose answer comes in
 * no chunks. It is smaller than what a socket takes at once. */
struct http_question {
    const char *method, *target;
    const char *body;          /* JSON; NULL without one */
    const char *last_event_id; /* a header; NULL: none */
};
/* Connected as above, and asked. */
int http_ask(
        const char *path, const struct http_question *question,
        uid_t *stranger_out);

/* A head, then a body of Content-Length or until the connection ends. */
enum http_reader_state {
    HTTP_HEAD,
    HTTP_BODY,
    HTTP_DONE,
    HTTP_BROKEN /* not HTTP, or a head that is too long */
};

struct http_reader {
    /* Gets the body; false: the reader is done. */
    bool (*sink)(void *ctx, const char *data, size_t bytes);
    void *ctx;
    enum http_reader_state state; /* all 0 at first */
    int status;                   /* once the head is there */
    char type[64];                /* Content-Type, cut; "" without one */
    /* private */
    char head[16384];
    size_t head_bytes;
    bool has_length;
    size_t left; /* of the body */
};

/* Reads the bytes that arrived; false: stop reading (DONE, BROKEN, or the sink
 * returned false). */
bool http_reader_take(
        struct http_reader *reader, const char *data, size_t bytes);
/* The connection ended: is the answer whole? */
bool http_reader_end(struct http_reader *reader);
