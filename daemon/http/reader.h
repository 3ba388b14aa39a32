/* reader.h - the answer to a request of HTTP/1.0 (connect.h), from whatever
 * pieces it arrives in.
 *
 *   head -> body of Content-Length, or until the connection ends
 *
 * Nothing is allocated; the body goes to `sink` as it comes. Source: RFC 9112,
 * sections 4 to 6. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_MAX = 16384 };

enum http_reader_state {
    HTTP_HEAD,
    HTTP_BODY_LENGTH,
    HTTP_BODY_CLOSE,
    HTTP_DONE,
    HTTP_BROKEN, /* not HTTP, or a head that is too long */
};

struct http_reader {
    /* Gets the body; false: the reader is done. */
    bool (*sink)(void *ctx, const char *data, size_t bytes);
    void *ctx;
    enum http_reader_state state; /* all 0 at first */
    int status;                   /* once the head is there */
    char type[64];                /* Content-Type, cut; "" without one */
    /* private */
    char head[HTTP_HEAD_MAX];
    size_t head_bytes;
    uint64_t left; /* of the body */
};

/* Take what arrived; false: no more is wanted (DONE, BROKEN, or the sink said
 * so). */
bool http_reader_take(
        struct http_reader *reader, const char *data, size_t bytes);
/* The connection ended: is the answer whole? */
bool http_reader_end(struct http_reader *reader);
