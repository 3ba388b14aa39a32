/* mhd.c - libmicrohttpd: from bytes to requests.
 *
 * It has no thread: it runs when its epoll descriptor or its timeout says so.
 * It calls
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

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
            ->socket_context;
}

static void on_connection(
        void *ctx, struct MHD_Connection *mhd, void **slot,
        enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        http_conn_destroy(*slot);
        *slot = NULL;
        return;
    }
    *slot = http_conn_create(ctx, mhd);
    /* A timeout that is not the daemon's own: then it looks at the connection
     * whenever it runs. It forgets others that it closed itself, until the
     * timeout. */
    MHD_set_connection_option(
            mhd, MHD_CONNECTION_OPTION_TIMEOUT, HTTP_STUCK_SECONDS + 1u);
}

/* --- requests ------------------------------------------------------------- */

static void *on_target(
        void *ctx, const char *target, struct MHD_Connection *mhd)
{
    struct http_conn *conn = conn_of(mhd);
    free(conn->target);
    conn->target = zd_must(strdup(target ? target : ""));
    return NULL;
}

static enum MHD_Result refuse(
        struct http_conn *conn, int status, const char *code, const char *hint,
        const char *message)
{
    struct http_reply reply;
    http_error(&reply, status, code, hint, "%s", message);
    return http_reply_send(conn, &reply);
}

/* The headers are there, a body is not. */
static enum MHD_Result begin_request(struct http_conn *conn)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info && info->header_size > HTTP_HEADER_MAX)
        return refuse(
                conn, 431, "E_TOO_LARGE", "parameters belong in the body",
                "the headers are larger than 8 KiB");
    conn->state = CONN_BODY;
    return MHD_YES;
}

static void take_body(struct http_conn *conn, const char *data, size_t bytes)
{
    size_t whole = conn->body_bytes + bytes;
    if (whole > HTTP_BODY_MAX)
        conn->state = CONN_TOO_LARGE;
    if (conn->state == CONN_TOO_LARGE)
        return;
    conn->body = zd_grow(conn->body, &conn->body_room, whole + 1, 1);
    memcpy(conn->body + conn->body_bytes, data, bytes);
    conn->body[whole] = '\0';
    conn->body_bytes = whole;
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
    ZD_PRINT(name, "%.*s", (int)bytes, header);
    return !strchr(name, '.') || inet_pton(AF_INET, name, address) == 1 ||
           !strcasecmp(name, server->names[0]) ||
           !strcasecmp(name, server->names[1]);
}

/* Whether a request on TCP goes to the handler; if not, `reply` says why. */
static bool admits(
        const struct http_server *server, const struct http_request *request,
        struct http_reply *reply)
{
    if (!server->tcp_path)
        return true;
    if (request->host && !is_our_host(server, request->host))
        http_error(
                reply, 403, "E_FORBIDDEN",
                "use the address, or the name that hostname prints",
                "the Host header names another host");
    else if (strcmp(request->path, server->tcp_path))
        http_error(reply, 404, "E_NOT_FOUND", "GET /metrics", "no such path");
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

static const char *header(const struct http_conn *conn, const char *name)
{
    return MHD_lookup_connection_value(conn->mhd, MHD_HEADER_KIND, name);
}

static enum MHD_Result answer(
        struct http_conn *conn, const char *method, const char *path)
{
    struct http_server *server = conn->server;
    struct http_request request = {
            .method = method,
            .target = conn->target,
            .path = path,
            .body = conn->body ? conn->body : "",
            .body_bytes = conn->body_bytes,
            .last_event_id = header(conn, "Last-Event-ID"),
            .origin = header(conn, "Origin"),
            .host = header(conn, "Host"),
            .uid = conn->uid,
            .pid = conn->pid};
    struct http_reply reply = {
            .status = 200, .content_type = "application/json"};
    int params = MHD_get_connection_values(
            conn->mhd, MHD_GET_ARGUMENT_KIND, take_param, &request);
    if (params > HTTP_PARAMS_MAX)
        return refuse(
                conn, 400, "E_BAD_REQUEST", "larger values belong in the body",
                "the query has more than 16 parameters");
    if (!conn->is_tcp || admits(server, &request, &reply))
        server->options.handler(server->options.ctx, &request, &reply);
    if (reply.is_owner) /* from now on it counts as one of his */
        conn->uid = server->owner;
    if (!reply.stream)
        return http_reply_send(conn, &reply);
    conn->stream = reply.stream;
    conn->stream->conn = conn;
    http_conn_enter(conn, CONN_DEFERRED);
    return http_reply_later(conn);
}

static enum MHD_Result on_request(
        void *ctx, struct MHD_Connection *mhd, const char *url,
        const char *method, const char *version, const char *data,
        size_t *bytes, void **slot)
{
    struct http_conn *conn = conn_of(mhd);
    if (conn->is_dropped)
        return MHD_NO;
    if (conn->state == CONN_FRESH)
        return begin_request(conn);
    if (conn->state == CONN_DEFERRED)
        return http_reply_later(conn);
    if (*bytes) {
        take_body(conn, data, *bytes);
        *bytes = 0;
        return MHD_YES;
    }
    if (conn->state == CONN_TOO_LARGE)
        return refuse(
                conn, 413, "E_TOO_LARGE", "a command is one small JSON object",
                "the body is larger than 64 KiB");
    return conn->state == CONN_BODY ? answer(conn, method, url) : MHD_YES;
}

static void on_completed(
        void *ctx, struct MHD_Connection *mhd, void **slot,
        enum MHD_RequestTerminationCode code)
{
    struct http_conn *conn = conn_of(mhd);
    if (!conn)
        return;
    conn->server->must_run_again = true;
    http_stream_release(conn->stream);
    conn->stream = NULL;
}

struct MHD_Daemon *http_mhd_start(struct http_door *door)
{
    return MHD_start_daemon(
            MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO, 0, NULL,
            NULL, on_request, door, MHD_OPTION_LISTEN_SOCKET, door->fd,
            MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_HARD + 16u,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_STUCK_SECONDS,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL_BYTES,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
            on_connection, door, MHD_OPTION_URI_LOG_CALLBACK, on_target, door,
            MHD_OPTION_NOTIFY_COMPLETED, on_completed, door, MHD_OPTION_END);
}
