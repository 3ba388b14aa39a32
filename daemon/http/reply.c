/* reply.c - from replies to libmicrohttpd's responses: whole bodies, and
 * streams, which are a queue of at most 1 MiB. */
#include "daemon/http/server.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

/* --- replies -------------------------------------------------------------- */

static void add_header(
        struct MHD_Response *response, const char *name, const char *value)
{
    if (value && value[0])
        MHD_add_response_header(response, name, value);
}

/* NULL members of `reply` are left out. */
static enum MHD_Result send_response(
        struct http_conn *conn, struct MHD_Response *response,
        const struct http_reply *reply)
{
    const char *const(*more)[2] = conn->server->options.headers;
    if (!response)
        return MHD_NO;
    add_header(response, "Content-Type", reply->content_type);
    add_header(response, "Cache-Control", "no-store");
    add_header(response, "Connection", "close");
    add_header(response, "Allow", reply->allow);
    for (; more && (*more)[0]; more++)
        add_header(response, (*more)[0], (*more)[1]);
    enum MHD_Result result =
            MHD_queue_response(conn->mhd, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_reply_send(
        struct http_conn *conn, struct http_reply *reply)
{
    bool is_owned = reply->body != NULL;
    http_conn_enter(conn, CONN_BUSY);
    return send_response(
            conn,
            MHD_create_response_from_buffer(
                    reply->body_bytes,
                    is_owned ? reply->body : (char *)reply->static_body,
                    is_owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT),
            reply);
}

void http_reply_json(struct http_reply *reply, int status, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    *reply = (struct http_reply){
            .status = status,
            .content_type = "application/json",
            .body = text,
            .body_bytes = strlen(text) + 1};
    text[reply->body_bytes - 1] = '\n'; /* where the NUL was */
}

json_t *http_error_json(const char *code, const char *message, const char *hint)
{
    return json_pack(
            "{s:{s:s, s:o, s:o}}", "error", "code", code, "message",
            json_string_or_null(message), "hint",
            json_string_or_null(hint && hint[0] ? hint : NULL));
}

void http_error(
        struct http_reply *reply, int status, const char *code,
        const char *hint, const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(message, format);
    http_reply_json(reply, status, http_error_json(code, message, hint));
}

/* --- streams -------------------------------------------------------------- */

struct http_stream *http_defer(
        struct http_reply *reply, void (*gone)(void *owner), void *owner)
{
    struct http_stream *stream = zd_array(1, sizeof *stream);
    stream->gone = gone;
    stream->owner = owner;
    http_set_status(stream, reply->status, reply->content_type);
    reply->stream = stream;
    return stream;
}

void http_set_status(struct http_stream *stream, int status, const char *type)
{
    stream->status = status;
    ZD_PRINT(stream->type, "%s", type);
}

static void make_room(struct http_stream *stream, size_t bytes)
{
    size_t waiting = http_queued(stream);
    if (stream->end + bytes <= stream->capacity)
        return;
    if (waiting)
        memmove(stream->data, stream->data + stream->begin, waiting);
    stream->begin = 0;
    stream->end = waiting;
    stream->data = zd_grow(stream->data, &stream->capacity, waiting + bytes, 1);
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
    if (bytes > HTTP_QUEUE_MAX - http_queued(stream)) {
        struct http_conn *conn = stream->conn;
        tell_gone(stream);
        if (conn)
            http_conn_drop(conn);
        return false;
    }
    make_room(stream, bytes);
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

void http_on_drained(struct http_stream *stream, void (*drained)(void *owner))
{
    stream->drained = drained;
}

void http_finish(struct http_stream *stream)
{
    if (stream->is_dropped)
        return;
    stream->is_finished = true;
    if (stream->conn)
        http_conn_resume(stream->conn);
}

void http_break_off(struct http_stream *stream)
{
    http_finish(stream);
    if (stream->conn)
        http_conn_drop(stream->conn);
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

size_t http_stream_take(struct http_stream *stream, char *out, size_t max)
{
    size_t bytes = http_queued(stream);
    if (bytes > max)
        bytes = max;
    if (bytes)
        memcpy(out, stream->data + stream->begin, bytes);
    stream->begin += bytes;
    if (stream->begin == stream->end) {
        stream->begin = stream->end = 0;
        if (bytes && stream->drained && !stream->is_finished)
            stream->drained(stream->owner);
    }
    return bytes;
}

/* --- answers that come later ---------------------------------------------- */

static ssize_t read_stream(void *ctx, uint64_t at, char *out, size_t max)
{
    struct http_conn *conn = ctx;
    struct http_stream *stream = conn->stream;
    if (conn->is_dropped || stream->is_dropped)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t bytes = http_stream_take(stream, out, max);
    if (bytes)
        return (ssize_t)bytes;
    if (stream->is_finished)
        return MHD_CONTENT_READER_END_OF_STREAM;
    http_conn_suspend(conn);
    return 0;
}

enum MHD_Result http_reply_later(struct http_conn *conn)
{
    struct http_stream *stream = conn->stream;
    if (stream->is_dropped)
        return MHD_NO;
    if (!stream->is_finished && !http_queued(stream)) {
        http_conn_suspend(conn);
        return MHD_YES;
    }
    stream->is_head_sent = true;
    if (stream->is_finished)
        http_conn_enter(conn, CONN_BUSY);
    return send_response(
            conn,
            MHD_create_response_from_callback(
                    stream->is_finished ? http_queued(stream)
                                        : MHD_SIZE_UNKNOWN,
                    4096, read_stream, conn, NULL),
            &(struct http_reply){
                    .status = stream->status, .content_type = stream->type});
}
