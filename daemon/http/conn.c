/* conn.c - a connection from accept to its end: its states, the limits that end
 * one for another, its deadlines. */
#include "daemon/http/server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void http_conn_enter(struct http_conn *conn, enum http_state state)
{
    conn->state = state;
    conn->since_ms = http_now_ms();
}

static void link_conn(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    conn->prev = server->last;
    if (server->last)
        server->last->next = conn;
    else
        server->first = conn;
    server->last = conn;
    server->count++;
}

static void unlink_conn(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        server->first = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    else
        server->last = conn->prev;
    if (!conn->is_dropped)
        server->count--;
}

void http_conn_forget_request(struct http_conn *conn)
{
    http_stream_release(conn->stream);
    free(conn->target);
    free(conn->body);
    conn->stream = NULL;
    conn->target = conn->body = NULL;
    conn->raw = NULL;
    conn->body_bytes = conn->body_expected = 0;
    conn->phase = PHASE_NONE;
}

void http_conn_destroy(struct http_conn *conn)
{
    unlink_conn(conn);
    http_conn_forget_request(conn);
    free(conn);
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
    conn->wants_resume = true;
    http_run_soon(conn->server);
}

void http_conn_drop(struct http_conn *conn)
{
    if (!conn->is_dropped)
        conn->server->count--;
    conn->is_dropped = true;
    shutdown(conn->fd, SHUT_RDWR);
    http_conn_resume(conn);
}

/* --- who has to go -------------------------------------------------------- */

/* The order of going. Within a rank the longest goes first. */
enum { RANK_IDLE, RANK_STREAM, RANK_COMMAND, RANK_STAYS };

static int rank_of(const struct http_conn *conn)
{
    if (conn->is_dropped)
        return RANK_STAYS;
    if (conn->state != CONN_DEFERRED)
        return RANK_IDLE;
    return conn->stream && conn->stream->is_head_sent ? RANK_STREAM
                                                      : RANK_COMMAND;
}

static bool is_same_user(const struct http_peer *a, const struct http_peer *b)
{
    return a->is_tcp == b->is_tcp && a->uid == b->uid;
}

static int count_user(
        const struct http_server *server, const struct http_peer *peer)
{
    int count = 0;
    for (const struct http_conn *conn = server->first; conn; conn = conn->next)
        count += !conn->is_dropped && is_same_user(peer, &conn->peer);
    return count;
}

/* `peer` NULL: of all users. The connection that was just accepted is not in
 * line where another one must go at once. */
static struct http_conn *first_in_line(
        const struct http_server *server, const struct http_peer *peer,
        bool but_the_new)
{
    struct http_conn *first = NULL;
    int best = RANK_STAYS;
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        int rank = rank_of(conn);
        if ((peer && !is_same_user(peer, &conn->peer)) ||
            (but_the_new && !conn->mhd))
            continue;
        if (rank < best ||
            (first && rank == best && conn->since_ms < first->since_ms)) {
            best = rank;
            first = conn;
        }
    }
    return first;
}

bool http_drop_one(struct http_server *server)
{
    struct http_conn *conn = first_in_line(server, NULL, true);
    if (!conn)
        return false;
    http_conn_drop(conn);
    http_run(server);
    return true;
}

/* Drop what is over the limits because of this user's connections. */
static void trim(struct http_server *server, const struct http_peer *peer)
{
    for (;;) {
        int of_user = count_user(server, peer);
        bool is_greedy = of_user > HTTP_PER_USER_MAX;
        if (!is_greedy && server->count <= HTTP_CONNECTIONS_MAX)
            return;
        bool is_hard = of_user > HTTP_PER_USER_HARD ||
                       server->count > HTTP_CONNECTIONS_HARD;
        struct http_conn *conn =
                first_in_line(server, is_greedy ? peer : NULL, is_hard);
        bool has_grace = !is_hard && conn && rank_of(conn) == RANK_IDLE &&
                         http_now_ms() - conn->since_ms < HTTP_GRACE_MS;
        if (!conn || has_grace)
            return;
        http_conn_drop(conn);
    }
}

static bool is_overdue(const struct http_conn *conn, uint64_t now)
{
    bool is_fresh = conn->state == CONN_FRESH;
    int most =
            is_fresh ? conn->server->first_request_ms : conn->server->idle_ms;
    return (is_fresh || conn->state == CONN_IDLE) &&
           now - conn->since_ms >= (uint64_t)most;
}

/* libmicrohttpd does not look at a connection that is suspended. On a unix
 * socket, who has sent all may close his half and wait. */
static bool has_left(const struct http_conn *conn)
{
    struct pollfd poll_fd = {
            .fd = conn->fd, .events = conn->peer.is_tcp ? POLLRDHUP : 0};
    return conn->is_suspended && poll(&poll_fd, 1, 0) == 1;
}

void http_sweep(struct http_server *server)
{
    uint64_t now = http_now_ms();
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        if (conn->is_dropped)
            continue;
        if (is_overdue(conn, now) || has_left(conn))
            http_conn_drop(conn);
        else
            trim(server, &conn->peer);
    }
}

void http_conn_create(
        const struct http_listener *listener, int fd,
        const struct http_peer *peer)
{
    struct http_conn *conn = calloc(1, sizeof *conn);
    if (!conn) {
        close(fd);
        return;
    }
    *conn = (struct http_conn){
            .server = listener->server,
            .listener = listener,
            .fd = fd,
            .peer = *peer};
    http_conn_enter(conn, CONN_FRESH);
    link_conn(conn);
    trim(listener->server, peer);
    http_mhd_add(conn);
}
