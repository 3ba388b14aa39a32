/* conn.c - a connection from accept to its end: who is on the other side, the
 * limits that end one for another, its deadlines. */
#include "daemon/http/server.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void http_conn_enter(struct http_conn *conn, enum http_state state)
{
    conn->state = state;
    conn->since_ms = http_now_ms();
}

/* From a callback of libmicrohttpd alone. */
static void suspend(struct http_conn *conn)
{
    MHD_suspend_connection(conn->mhd);
    conn->is_suspended = true;
}

void http_conn_resume(struct http_conn *conn)
{
    if (!conn->is_suspended)
        return;
    MHD_resume_connection(conn->mhd);
    conn->is_suspended = false;
    http_run_soon(conn->server);
}

void http_conn_drop(struct http_conn *conn)
{
    conn->server->count -= !conn->is_dropped;
    conn->is_dropped = true;
    shutdown(conn->fd, SHUT_RDWR);
    http_conn_resume(conn);
}

/* --- who is dropped ------------------------------------------------------- */

/* Connections of the same process; strangers on TCP are one. */
static int count_peer(
        const struct http_server *server, const struct http_conn *of)
{
    int count = 0;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        count += !conn->is_dropped && of->is_tcp == conn->is_tcp &&
                 of->uid == conn->uid && of->pid == conn->pid;
    return count;
}

/* The lowest rank is dropped first. */
enum { RANK_IDLE, RANK_STREAM, RANK_COMMAND };

static int rank_of(const struct http_conn *conn)
{
    if (conn->state != CONN_DEFERRED)
        return RANK_IDLE;
    return conn->stream && conn->stream->is_head_sent ? RANK_STREAM
                                                      : RANK_COMMAND;
}

/* Dropped from the process with the most connections, so that it cannot cost
 * another process its only one; then by rank, then the oldest. `spared`: not
 * that one. */
static struct http_conn *first_in_line(
        const struct http_server *server, const struct http_conn *spared)
{
    struct http_conn *first = NULL;
    int most = 0;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next) {
        if (conn->is_dropped || conn == spared)
            continue;
        int siblings = count_peer(server, conn);
        bool is_before = !first || siblings > most;
        if (first && siblings == most)
            is_before = rank_of(conn) != rank_of(first)
                                ? rank_of(conn) < rank_of(first)
                                : conn->since_ms <= first->since_ms;
        if (is_before) {
            first = conn;
            most = siblings;
        }
    }
    return first;
}

/* Drop what is over the limits. */
static void trim(struct http_server *server)
{
    while (server->count > HTTP_CONNECTIONS_MAX) {
        bool is_hard = server->count > HTTP_CONNECTIONS_HARD;
        struct http_conn *conn =
                first_in_line(server, is_hard ? server->newest : NULL);
        bool has_grace = !is_hard && conn && rank_of(conn) == RANK_IDLE &&
                         http_now_ms() - conn->since_ms < HTTP_GRACE_MS;
        if (!conn || has_grace)
            return;
        http_conn_drop(conn);
    }
}

void http_sweep(struct http_server *server)
{
    uint64_t patience_ms = (uint64_t)server->first_request_ms;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next) {
        /* libmicrohttpd does not look at a connection that is suspended. On a
         * unix socket, a client that has sent its request may close its half
         * and wait. */
        struct pollfd poll_fd = {
                .fd = conn->fd, .events = conn->is_tcp ? POLLRDHUP : 0};
        bool is_overdue = conn->state <= CONN_TOO_LARGE &&
                          http_now_ms() - conn->since_ms >= patience_ms;
        if (!conn->is_dropped &&
            (is_overdue || (conn->is_suspended && poll(&poll_fd, 1, 0) == 1)))
            http_conn_drop(conn);
    }
    trim(server);
}

/* --- begin and end -------------------------------------------------------- */

struct http_conn *http_conn_create(
        struct http_door *door, struct MHD_Connection *mhd)
{
    struct http_server *server = door->server;
    struct ucred cred = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof cred;
    struct http_conn *conn = zd_array(1, sizeof *conn);
    *conn = (struct http_conn){
            .server = server,
            .next = server->newest,
            .mhd = mhd,
            .fd = MHD_get_connection_info(
                          mhd, MHD_CONNECTION_INFO_CONNECTION_FD)
                          ->connect_fd,
            .is_tcp = door->is_tcp};
    server->newest = conn;
    server->count++;
    http_conn_enter(conn, CONN_FRESH);
    if (!door->is_tcp)
        getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes);
    conn->uid = cred.uid;
    conn->pid = cred.pid;
    if (!door->is_tcp && cred.uid != server->owner && cred.uid != 0)
        http_conn_drop(conn);
    trim(server);
    return conn;
}

void http_conn_destroy(struct http_conn *conn)
{
    struct http_conn **at = &conn->server->newest;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    conn->server->count -= !conn->is_dropped;
    http_stream_release(conn->stream);
    free(conn->target);
    free(conn->body);
    free(conn);
}

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
    suspend(conn);
    return 0;
}

enum MHD_Result http_reply_later(struct http_conn *conn)
{
    struct http_stream *stream = conn->stream;
    if (stream->is_dropped)
        return MHD_NO;
    if (!stream->is_finished && !http_queued(stream)) {
        suspend(conn);
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
