/* mhd.c - libmicrohttpd: from bytes to requests.
 *
 * It owns neither a socket nor a thread: descriptors are handed to it, and
 * it runs when its epoll descriptor or its timeout says so. It calls
 *
 *   on_connection   a connection begins and ends
 *   on_target       the first line is there
 *   on_request      the headers, each piece of the body, then the end of it;
 *                   again when a request that was suspended goes on
 *   on_completed    the reply was sent, or never will be
 */
#include "daemon/http/server.h"

#include "base/must.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define BAD_REQUEST "E_BAD_REQUEST"
#define TOO_LARGE   "E_TOO_LARGE"

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* --- connections ---------------------------------------------------------- */

/* libmicrohttpd closes silently if the first line is not HTTP. A client that
 * left after an answer gets nothing. */
static void refuse_garbage(struct http_conn *conn)
{
    static const char body[] =
            "{\"error\": {\"code\": \"" BAD_REQUEST "\", "
            "\"message\": \"this is not HTTP/1.1\", \"hint\": null}}\n";
    char text[512];
    char byte;
    if (conn->is_dropped || conn->target || conn->is_last ||
        (conn->state != CONN_FRESH && conn->state != CONN_IDLE))
        return;
    if (conn->state == CONN_IDLE &&
        recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        return;
    int bytes = snprintf(
            text, sizeof text,
            "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            sizeof body - 1, body);
    send(conn->fd, text, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The end of a connection; its descriptor is still open. */
static void on_connection(
        void *ctx, struct MHD_Connection *mhd, void **slot,
        enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = ctx;
    struct http_conn *conn = *slot;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        *slot = NULL;
        refuse_garbage(conn);
        http_conn_destroy(conn);
        return;
    }
    conn = server->adding;
    server->adding = NULL;
    conn->mhd = mhd;
    *slot = conn;
    /* A timeout that is not the daemon's own: then it looks at the connection
     * whenever it runs. It forgets others that it closed itself, until the
     * timeout. */
    MHD_set_connection_option(
            mhd, MHD_CONNECTION_OPTION_TIMEOUT,
            (unsigned)(HTTP_STUCK_MS / 1000 + 1));
}

void http_mhd_add(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    server->adding = conn;
    MHD_add_connection(
            server->mhd, conn->fd, (struct sockaddr *)&address, sizeof address);
    if (server->adding) /* it was refused, and closed, before it began */
        http_conn_destroy(conn);
    server->adding = NULL;
}

/* --- requests ------------------------------------------------------------- */

static void *on_target(
        void *ctx, const char *target, struct MHD_Connection *mhd)
{
    struct http_conn *conn = conn_of(mhd);
    http_conn_forget_request(conn);
    conn->target = target ? zd_must(strdup(target)) : NULL;
    return NULL;
}

struct headers {
    int lengths;
    bool has_encoding, wants_close;
    unsigned long long length;
    const char *accept, *last_event_id, *origin, *host;
};

static enum MHD_Result take_header(
        void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct headers *headers = ctx;
    if (!value)
        value = "";
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        headers->lengths++;
        headers->length = strtoull(value, NULL, 10);
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        headers->has_encoding = true;
    else if (!strcasecmp(name, MHD_HTTP_HEADER_CONNECTION))
        headers->wants_close |= strcasecmp(value, "keep-alive") != 0;
    else if (!strcasecmp(name, MHD_HTTP_HEADER_ACCEPT))
        headers->accept = value;
    else if (!strcasecmp(name, "Last-Event-ID"))
        headers->last_event_id = value;
    else if (!strcasecmp(name, "Origin"))
        headers->origin = value;
    else if (!strcasecmp(name, MHD_HTTP_HEADER_HOST))
        headers->host = headers->host ? "" : value;
    return MHD_YES;
}

static struct headers read_headers(struct http_conn *conn)
{
    struct headers headers = {0};
    MHD_get_connection_values(
            conn->mhd, MHD_HEADER_KIND, take_header, &headers);
    return headers;
}

static size_t header_bytes(struct http_conn *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

static enum MHD_Result refuse_body(struct http_conn *conn)
{
    return http_refuse(
            conn, 413, TOO_LARGE, "a command is one small JSON object",
            "the body is larger than 64 KiB");
}

/* The headers are there, a body is not. */
static enum MHD_Result begin_request(
        struct http_conn *conn, const char *method, const char *version)
{
    struct headers headers = read_headers(conn);
    conn->is_last = headers.wants_close || strcmp(version, "HTTP/1.1");
    if (header_bytes(conn) > HTTP_HEADER_MAX)
        return http_refuse(
                conn, 431, TOO_LARGE, "parameters belong in the body",
                "the headers are larger than 8 KiB");
    if (!conn->target || conn->target[0] != '/')
        return http_refuse(
                conn, 400, BAD_REQUEST, "GET /v1/status HTTP/1.1",
                "the path does not begin with /");
    if (strcmp(method, "GET") && strcmp(method, "POST"))
        return http_refuse(
                conn, 405, "E_METHOD", "GET /v1 lists what can be asked",
                "the method must be GET or POST");
    if (headers.has_encoding || headers.lengths > 1)
        return http_refuse(
                conn, 400, BAD_REQUEST, "Transfer-Encoding is not supported",
                "a body needs one Content-Length");
    conn->body_expected = (size_t)headers.length;
    conn->phase = PHASE_BODY;
    if (headers.length > HTTP_BODY_SWALLOWED)
        return refuse_body(conn);
    if (headers.length > HTTP_BODY_MAX)
        conn->phase = PHASE_TOO_LARGE;
    else if (headers.length)
        conn->body = zd_array((size_t)headers.length + 1, 1);
    return MHD_YES;
}

static void take_body(struct http_conn *conn, const char *data, size_t *bytes)
{
    size_t room = conn->body_expected - conn->body_bytes;
    size_t taken = *bytes < room ? *bytes : room;
    if (conn->phase == PHASE_BODY && conn->body) {
        memcpy(conn->body + conn->body_bytes, data, taken);
        conn->body_bytes += taken;
    }
    *bytes = 0;
}

/* --- requests on TCP ------------------------------------------------------ */

/* A Host header with an address, a name without a dot, or this host's own name:
 * no name that someone else's DNS can point here (rebinding). */
static bool is_our_host(const struct http_server *server, const char *header)
{
    char name[256];
    unsigned char address[sizeof(struct in6_addr)];
    size_t bytes = strcspn(header, ":");
    if (header[0] == '[' || !bytes || bytes >= sizeof name)
        return header[0] == '['; /* an address of IPv6 */
    snprintf(name, sizeof name, "%.*s", (int)bytes, header);
    return !strchr(name, '.') || inet_pton(AF_INET, name, address) == 1 ||
           !strcasecmp(name, server->names[0]) ||
           !strcasecmp(name, server->names[1]);
}

/* Whether a request on TCP goes to the handler; if not, `reply` says why. */
static bool admits(
        const struct http_server *server, const struct http_request *request,
        struct http_reply *reply)
{
    const char *hint = "GET /metrics";
    if (!server->tcp_path)
        return true;
    if (request->host && !is_our_host(server, request->host))
        http_error(
                reply, 403, "E_FORBIDDEN",
                "use the address, or the name that hostname prints",
                "the Host header names another host");
    else if (strcmp(request->path, server->tcp_path))
        http_error(reply, 404, "E_NOT_FOUND", hint, "no such path");
    else if (strcmp(request->method, "GET"))
        http_error(reply, 405, "E_METHOD", hint, "the method must be GET");
    else
        return true;
    return false;
}

/* --- whole requests ------------------------------------------------------- */

static enum MHD_Result take_param(
        void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct http_request *request = ctx;
    if (request->param_count == HTTP_PARAMS_MAX)
        return MHD_NO;
    request->param_names[request->param_count] = name;
    request->param_values[request->param_count++] = value ? value : "";
    return MHD_YES;
}

static enum MHD_Result answer(
        struct http_conn *conn, const char *method, const char *path)
{
    struct http_server *server = conn->server;
    struct headers headers = read_headers(conn);
    struct http_request request = {
            .method = method,
            .target = conn->target,
            .path = path,
            .body = conn->body ? conn->body : "",
            .body_bytes = conn->body_bytes,
            .accept = headers.accept,
            .last_event_id = headers.last_event_id,
            .origin = headers.origin,
            .host = headers.host,
            .uid = conn->peer.uid,
            .pid = conn->peer.pid,
            .may_act = conn->peer.may_act};
    struct http_reply reply = {0};
    int params = MHD_get_connection_values(
            conn->mhd, MHD_GET_ARGUMENT_KIND, take_param, &request);
    if (params > HTTP_PARAMS_MAX)
        return http_refuse(
                conn, 400, BAD_REQUEST, "larger values belong in the body",
                "the query has more than 16 parameters");
    http_conn_enter(conn, CONN_BUSY);
    if (!conn->peer.is_tcp || admits(server, &request, &reply))
        server->options.handler(server->options.ctx, &request, &reply);
    if (reply.is_owner)
        http_conn_prove_owner(conn);
    if (!reply.stream)
        return http_reply_send(conn, &reply, false);
    http_stream_attach(reply.stream, conn);
    conn->phase = PHASE_LATER;
    http_conn_enter(
            conn, reply.stream->is_finished ? CONN_BUSY : CONN_DEFERRED);
    return http_reply_later(conn);
}

static enum MHD_Result on_request(
        void *ctx, struct MHD_Connection *mhd, const char *url,
        const char *method, const char *version, const char *data,
        size_t *bytes, void **slot)
{
    struct http_conn *conn = conn_of(mhd);
    switch (conn->phase) {
    case PHASE_NONE:
        return begin_request(conn, method, version);
    case PHASE_BODY:
    case PHASE_TOO_LARGE:
        if (*bytes) {
            take_body(conn, data, bytes);
            return MHD_YES;
        }
        return conn->phase == PHASE_TOO_LARGE ? refuse_body(conn)
                                              : answer(conn, method, url);
    case PHASE_LATER:
        return http_reply_later(conn);
    case PHASE_ANSWERED:
        *bytes = 0;
        return MHD_YES;
    }
    return MHD_NO;
}

static void on_completed(
        void *ctx, struct MHD_Connection *mhd, void **slot,
        enum MHD_RequestTerminationCode code)
{
    struct http_conn *conn = conn_of(mhd);
    if (!conn)
        return;
    bool was_whole = conn->phase == PHASE_ANSWERED;
    conn->server->must_run_again |= !was_whole || conn->is_last ||
                                    code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    http_conn_forget_request(conn);
    if (was_whole)
        http_conn_enter(conn, CONN_IDLE);
}

/* Since 1.0 a connection that is added begins only at the next run, unless
 * libmicrohttpd is told that there is one thread. */
#if MHD_VERSION >= 0x00097707
enum { ONE_THREAD = MHD_USE_NO_THREAD_SAFETY };
#else
enum { ONE_THREAD = 0 };
#endif

enum zd_status http_mhd_start(struct http_server *server)
{
    server->mhd = MHD_start_daemon(
            MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | ONE_THREAD |
                    MHD_ALLOW_SUSPEND_RESUME |
                    MHD_USE_TURBO, /* reads at once; on_connection can still
                                      send */
            0, NULL, NULL, on_request, server, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)HTTP_CONNECTIONS_HARD + 16, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)(HTTP_STUCK_MS / 1000),
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL_BYTES,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
            on_connection, server, MHD_OPTION_URI_LOG_CALLBACK, on_target,
            server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
            MHD_OPTION_END);
    if (!server->mhd)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E1044", "libmicrohttpd cannot be started");
    return ZD_OK;
}
