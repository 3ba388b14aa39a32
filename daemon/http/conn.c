/* conn.c - a connection from accept to its end: who is on the other side, the
 * limits that end one for another, its deadlines. */
#include "daemon/http/server.h"

#include "base/must.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

void http_conn_enter(struct http_conn *conn, enum http_state state)
{
    conn->state = state;
    conn->since_ms = http_now_ms();
}

void http_conn_suspend(struct http_conn *conn)
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
