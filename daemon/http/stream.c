/* stream.c - answers that come later: a queue of at most 1 MiB. */
#include "daemon/http/server.h"

#include <stdlib.h>
#include <string.h>

struct http_stream *http_defer(
        struct http_reply *reply, void (*gone)(void *owner), void *owner)
{
    struct http_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->gone = gone;
    stream->owner = owner;
    stream->status = reply->status ? reply->status : 200;
    stream->type =
            reply->content_type ? reply->content_type : "application/json";
    reply->stream = stream;
    return stream;
}

void http_set_status(struct http_stream *stream, int status, const char *type)
{
    stream->status = status;
    stream->type = type;
}

static bool make_room(struct http_stream *stream, size_t bytes)
{
    size_t waiting = stream->end - stream->begin;
    if (stream->end + bytes <= stream->capacity)
        return true;
    if (waiting + bytes > stream->capacity) {
        size_t capacity = stream->capacity ? stream->capacity : 4096;
        while (capacity < waiting + bytes)
            capacity *= 2;
        char *data = malloc(capacity);
        if (!data)
            return false;
        if (waiting)
            memcpy(data, stream->data + stream->begin, waiting);
        free(stream->data);
        stream->data = data;
        stream->capacity = capacity;
    } else
        memmove(stream->data, stream->data + stream->begin, waiting);
    stream->begin = 0;
    stream->end = waiting;
    return true;
}

/* Once, and never after http_finish. */
static void tell_gone(struct http_stream *stream)
{
    bool must_tell = !stream->is_dropped && !stream->is_finished;
    stream->is_dropped = true;
    if (must_tell && stream->gone)
        stream->gone(stream->owner);
}

bool http_send(struct http_stream *stream, const char *data, size_t bytes)
{
    if (stream->is_dropped)
        return false;
    size_t waiting = stream->end - stream->begin;
    if (bytes > HTTP_QUEUE_MAX - waiting || !make_room(stream, bytes)) {
        struct http_conn *conn = stream->conn;
        tell_gone(stream);
        if (conn)
            http_conn_drop(conn);
        return false;
    }
    if (bytes)
        memcpy(stream->data + stream->end, data, bytes);
    stream->end += bytes;
    if (stream->conn && bytes)
        http_conn_resume(stream->conn);
    return true;
}

size_t http_queued(const struct http_stream *stream)
{
    return stream->end - stream->begin;
}

void http_finish(struct http_stream *stream)
{
    if (stream->is_dropped)
        return;
    stream->is_finished = true;
    if (stream->conn)
        http_conn_resume(stream->conn);
}

void http_stream_attach(struct http_stream *stream, struct http_conn *conn)
{
    stream->conn = conn;
    conn->stream = stream;
}

void http_stream_release(struct http_stream *stream)
{
    if (!stream)
        return;
    if (stream->conn)
        stream->conn->stream = NULL;
    stream->conn = NULL;
    tell_gone(stream);
    free(stream->data);
    free(stream);
}

bool http_stream_is_ready(const struct http_stream *stream)
{
    return stream->is_dropped || stream->is_finished ||
           stream->end > stream->begin;
}

size_t http_stream_take(struct http_stream *stream, char *out, size_t max)
{
    size_t bytes = stream->end - stream->begin;
    if (bytes > max)
        bytes = max;
    if (bytes)
        memcpy(out, stream->data + stream->begin, bytes);
    stream->begin += bytes;
    if (stream->begin == stream->end)
        stream->begin = stream->end = 0;
    return bytes;
}
