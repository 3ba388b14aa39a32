/* conn.c - a connection from accept to its end: who is on the other side, its
 * states, the limits that end one for another, its deadlines. */
#include "daemon/http/server.h"

#include "base/must.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void http_conn_enter(struct http_conn *conn, enum http_state state)
{
    conn->state = state;
    conn->since_ms = http_now_ms();
}

static bool is_same_user(const struct http_peer *a, const struct http_peer *b)
{
    return a->is_tcp == b->is_tcp && a->uid == b->uid;
}

static bool is_same_process(
        const struct http_peer *a, const struct http_peer *b)
{
    return is_same_user(a, b) && a->pid == b->pid;
}

/* After a connection of `peer` came or went. */
static void count_siblings(
        struct http_server *server, const struct http_peer *peer, int change)
{
    server->count += change;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        if (is_same_process(peer, &conn->peer))
            conn->siblings += change;
}

/* A connection that came, or whose peer has become another. */
static void count_in(struct http_conn *conn)
{
    const struct http_conn *other = conn->server->newest;
    while (other &&
           (other == conn || !is_same_process(&conn->peer, &other->peer)))
        other = other->next;
    conn->siblings = other ? other->siblings : 0;
    if (!conn->is_dropped)
        count_siblings(conn->server, &conn->peer, 1);
}

void http_conn_prove_owner(struct http_conn *conn)
{
    if (!conn->is_dropped)
        count_siblings(conn->server, &conn->peer, -1);
    conn->peer.uid = conn->server->owner;
    count_in(conn);
}

void http_conn_forget_request(struct http_conn *conn)
{
    http_stream_release(conn->stream);
    free(conn->target);
    free(conn->body);
    conn->stream = NULL;
    conn->target = conn->body = NULL;
    conn->body_bytes = conn->body_expected = 0;
    conn->phase = PHASE_NONE;
}

void http_conn_destroy(struct http_conn *conn)
{
    struct http_conn **at = &conn->server->newest;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    if (!conn->is_dropped)
        count_siblings(conn->server, &conn->peer, -1);
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
        count_siblings(conn->server, &conn->peer, -1);
    conn->is_dropped = true;
    shutdown(conn->fd, SHUT_RDWR);
    http_conn_resume(conn);
}

/* --- who is dropped ------------------------------------------------------- */

/* The lowest rank is dropped first. */
enum { RANK_IDLE, RANK_STREAM, RANK_COMMAND };

static int rank_of(const struct http_conn *conn)
{
    if (conn->state != CONN_DEFERRED)
        return RANK_IDLE;
    return conn->stream && conn->stream->is_head_sent ? RANK_STREAM
                                                      : RANK_COMMAND;
}

static int count_user(
        const struct http_server *server, const struct http_peer *peer)
{
    int count = 0;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        count += !conn->is_dropped && is_same_user(peer, &conn->peer);
    return count;
}

/* Dropped from the process with the most connections, so that it cannot cost
 * another process of the same user its only one. */
static bool goes_before(const struct http_conn *a, const struct http_conn *b)
{
    if (a->siblings != b->siblings)
        return a->siblings > b->siblings;
    if (rank_of(a) != rank_of(b))
        return rank_of(a) < rank_of(b);
    return a->since_ms <= b->since_ms; /* `a` came before `b` */
}

/* `peer` NULL: of all users. `but_the_new`: spare the connection that was just
 * accepted. */
static struct http_conn *first_in_line(
        const struct http_server *server, const struct http_peer *peer,
        bool but_the_new)
{
    struct http_conn *first = NULL;
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        if (!conn->is_dropped && (!peer || is_same_user(peer, &conn->peer)) &&
            !(but_the_new && !conn->mhd) &&
            (!first || goes_before(conn, first)))
            first = conn;
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
 * socket, a client that has sent its request may close its half and wait. */
static bool has_left(const struct http_conn *conn)
{
    struct pollfd poll_fd = {
            .fd = conn->fd, .events = conn->peer.is_tcp ? POLLRDHUP : 0};
    return conn->is_suspended && poll(&poll_fd, 1, 0) == 1;
}

void http_sweep(struct http_server *server)
{
    uint64_t now = http_now_ms();
    for (struct http_conn *conn = server->newest; conn; conn = conn->next) {
        if (conn->is_dropped)
            continue;
        if (is_overdue(conn, now) || has_left(conn))
            http_conn_drop(conn);
        else
            trim(server, &conn->peer);
    }
}

/* --- the beginning -------------------------------------------------------- */

void http_conn_create(
        struct http_server *server, int fd, const struct http_peer *peer)
{
    struct http_conn *conn = zd_array(1, sizeof *conn);
    *conn = (struct http_conn){
            .server = server, .next = server->newest, .fd = fd, .peer = *peer};
    server->newest = conn;
    count_in(conn);
    http_conn_enter(conn, CONN_FRESH);
    trim(server, peer);
    http_mhd_add(conn);
}

/* The peer's supplementary groups, as they were when it connected. */
static bool is_in_groups(int fd, gid_t gid)
{
    socklen_t bytes = 0;
    bool is_in = false;
    getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes); /* how many */
    gid_t *groups = zd_must(malloc(bytes + sizeof *groups));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
        for (size_t i = 0; i < bytes / sizeof *groups; i++)
            is_in |= groups[i] == gid;
    free(groups);
    return is_in;
}

static bool read_peer(
        const struct http_server *server, int fd, struct http_peer *peer_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    gid_t gid = (gid_t)server->options.status_gid;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes))
        return false;
    bool may_act = cred.uid == server->owner || cred.uid == 0;
    *peer_out = (struct http_peer){
            .uid = cred.uid, .pid = cred.pid, .may_act = may_act};
    return may_act || (server->options.status_gid >= 0 &&
                       (cred.gid == gid || is_in_groups(fd, gid)));
}

bool http_conn_accept(struct http_server *server, int fd, bool is_tcp)
{
    struct http_peer peer = {.uid = (uid_t)-1, .is_tcp = true};
    if (!is_tcp && !read_peer(server, fd, &peer)) {
        close(fd);
        return false;
    }
    http_conn_create(server, fd, &peer);
    return true;
}
