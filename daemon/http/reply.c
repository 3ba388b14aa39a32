/* reply.c - from replies to libmicrohttpd's responses: whole bodies,
 * errors of the transport itself, and answers that come later. */
#include "daemon/http/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* --- replies -------------------------------------------------------------- */

static enum MHD_Result send_response(
        struct http_conn *conn, struct MHD_Response *response, int status,
        const char *type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(
            response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result =
            MHD_queue_response(conn->mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *body_response(struct http_reply *reply)
{
    struct MHD_Response *response;
    if (!reply->body)
        return MHD_create_response_from_buffer(
                reply->body_bytes    ? reply->body_bytes
                : reply->static_body ? strlen(reply->static_body)
                                     : 0,
                (void *)reply->static_body, MHD_RESPMEM_PERSISTENT);
    response = MHD_create_response_from_buffer(
            reply->body_bytes, reply->body, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(reply->body);
    return response;
}

enum MHD_Result http_reply_send(
        struct http_conn *conn, struct http_reply *reply, bool must_close)
{
    struct MHD_Response *response = body_response(reply);
    conn->phase = PHASE_ANSWERED;
    conn->is_last |= must_close;
    http_conn_enter(conn, CONN_BUSY);
    if (response && reply->allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
    if (response && must_close)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    return send_response(
            conn, response, reply->status ? reply->status : 200,
            reply->content_type ? reply->content_type : "application/json");
}

enum MHD_Result http_refuse(
        struct http_conn *conn, int status, const char *code,
        const char *message, const char *hint)
{
    struct http_reply reply;
    http_reply_error(&reply, status, code, message, hint);
    if (status == 405)
        reply.allow = "GET, POST";
    return http_reply_send(conn, &reply, status != 404);
}

/* --- answers that come later ---------------------------------------------- */

static ssize_t read_stream(void *ctx, uint64_t at, char *out, size_t max)
{
    struct http_conn *conn = ctx;
    struct http_stream *stream = conn->stream;
    if (conn->is_evicted || conn->has_hung_up || stream->is_dropped)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t bytes = http_stream_take(stream, out, max);
    if (bytes)
        return (ssize_t)bytes;
    if (stream->is_finished)
        return MHD_CONTENT_READER_END_OF_STREAM;
    http_conn_suspend(conn);
    return 0;
}

/* The whole answer came in one piece: then the connection can be kept. */
static enum MHD_Result send_whole(struct http_conn *conn)
{
    struct http_stream *stream = conn->stream;
    struct http_reply reply = {
            .status = stream->status,
            .content_type = stream->type,
            .static_body = ""};
    size_t bytes = stream->end - stream->begin;
    if (bytes) {
        reply.body = malloc(bytes);
        if (!reply.body)
            return MHD_NO;
        reply.body_bytes = http_stream_take(stream, reply.body, bytes);
    }
    return http_reply_send(conn, &reply, false);
}

enum MHD_Result http_reply_later(struct http_conn *conn)
{
    struct http_stream *stream = conn->stream;
    if (conn->is_evicted || conn->has_hung_up || stream->is_dropped)
        return MHD_NO;
    if (!http_stream_is_ready(stream)) {
        http_conn_suspend(conn);
        return MHD_YES;
    }
    stream->is_head_sent = true;
    if (stream->is_finished)
        return send_whole(conn);
    conn->phase = PHASE_ANSWERED;
    conn->is_last = true; /* as far as we know: HTTP/1.0 ends it by the close */
    return send_response(
            conn,
            MHD_create_response_from_callback(
                    MHD_SIZE_UNKNOWN, 4096, read_stream, conn, NULL),
            stream->status, stream->type);
}

/* libmicrohttpd gives a connection up when it is resumed before its head was
 * sent and the client has closed its half: it reads first. Nothing can follow
 * on such a connection, so the answer is written here, as far as the system
 * takes it, and the connection ends. */
static bool has_half_closed(const struct http_conn *conn)
{
    char byte;
    return conn->phase == PHASE_LATER && conn->stream->is_finished &&
           recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void write_last(struct http_conn *conn)
{
    struct http_stream *stream = conn->stream;
    char head[256];
    size_t body = stream->end - stream->begin;
    int bytes = snprintf(
            head, sizeof head,
            "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n"
            "Content-Length: %zu\r\n\r\n",
            stream->status, MHD_get_reason_phrase_for((unsigned)stream->status),
            stream->type, body);
    struct iovec parts[2] = {
            {head, (size_t)bytes},
            {body ? stream->data + stream->begin : NULL, body}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (bytes < (int)sizeof head)
        sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    http_conn_drop(conn);
}

void http_resume_due(struct http_server *server)
{
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        if (!conn->wants_resume)
            continue;
        if (!conn->is_evicted && !conn->has_hung_up && has_half_closed(conn))
            write_last(conn);
        conn->wants_resume = conn->is_suspended = false;
        MHD_resume_connection(conn->mhd);
    }
}
