/* http_limits.c - who has to go: the limits of connections, deadlines, and
 * descriptors held back so that the owner gets in when there are none. */
#include "daemon/control/http_server.h"

#include <fcntl.h>
#include <unistd.h>

/* The order of going. Within a rank the longest goes first. */
enum { RANK_IDLE, RANK_STREAM, RANK_COMMAND, RANK_STAYS };

static int rank_of(const struct http_conn *conn)
{
    if (conn->is_evicted)
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

/* `peer` NULL: anybody's. `keep` stays. */
static struct http_conn *first_in_line(
        const struct http_server *server, const struct http_peer *peer,
        const struct http_conn *keep)
{
    struct http_conn *first = NULL;
    int best = RANK_STAYS;
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        int rank = rank_of(conn);
        if (conn == keep || (peer && !is_same_user(peer, &conn->peer)))
            continue;
        if (rank < best ||
            (first && rank == best && conn->since_ms < first->since_ms)) {
            best = rank;
            first = conn;
        }
    }
    return best == RANK_STAYS ? NULL : first;
}

static int count_user(
        const struct http_server *server, const struct http_peer *peer)
{
    int count = 0;
    for (const struct http_conn *conn = server->first; conn; conn = conn->next)
        count += !conn->is_evicted && is_same_user(peer, &conn->peer);
    return count;
}

bool http_evict(
        struct http_server *server, bool even_streams,
        const struct http_conn *keep)
{
    struct http_conn *conn = first_in_line(server, NULL, keep);
    if (!conn || (rank_of(conn) != RANK_IDLE && !even_streams))
        return false;
    http_conn_drop(conn);
    http_run(server);
    return true;
}

void http_make_room(struct http_server *server, const struct http_peer *peer)
{
    if (count_user(server, peer) >= HTTP_PER_USER_HARD)
        http_conn_drop(first_in_line(server, peer, NULL));
    else if (server->count >= HTTP_CONNECTIONS_HARD)
        http_conn_drop(first_in_line(server, NULL, NULL));
    else
        return;
    http_run(server);
}

/* Drop the first in line, of `peer` or of all, unless he is in his grace. */
static bool drop_one(struct http_server *server, const struct http_peer *peer)
{
    struct http_conn *conn = first_in_line(server, peer, NULL);
    if (!conn)
        return false;
    if (rank_of(conn) == RANK_IDLE &&
        http_now_ms() - conn->since_ms < HTTP_GRACE_MS) {
        http_trim_later(server);
        return false;
    }
    http_conn_drop(conn);
    return true;
}

void http_trim(struct http_server *server)
{
    bool has_dropped = false;
    if (server->count <= HTTP_PER_USER_MAX)
        return;
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        /* Each user once: at his oldest connection the count is for all. */
        int over = count_user(server, &conn->peer) - HTTP_PER_USER_MAX;
        while (over-- > 0 && drop_one(server, &conn->peer))
            has_dropped = true;
    }
    while (server->count > HTTP_CONNECTIONS_MAX && drop_one(server, NULL))
        has_dropped = true;
    if (has_dropped)
        http_run(server);
}

static bool is_overdue(const struct http_conn *conn, uint64_t now)
{
    uint64_t age = now - conn->since_ms;
    if (conn->is_evicted)
        return false;
    return (conn->state == CONN_FRESH &&
            age >= (uint64_t)conn->server->first_request_ms) ||
           (conn->state == CONN_IDLE && age >= (uint64_t)conn->server->idle_ms);
}

void http_sweep(struct http_server *server)
{
    uint64_t now = http_now_ms();
    bool has_dropped = false;
    for (struct http_conn *conn = server->first; conn; conn = conn->next)
        if (is_overdue(conn, now)) {
            http_conn_drop(conn);
            has_dropped = true;
        }
    if (has_dropped)
        http_run(server);
}

/* --- descriptors in reserve ----------------------------------------------- */

void http_reserve_fill(struct http_server *server)
{
    while (server->reserve_count < HTTP_RESERVE) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return;
        server->reserve[server->reserve_count++] = fd;
    }
}

bool http_reserve_spend(struct http_server *server)
{
    if (!server->reserve_count)
        return false;
    close(server->reserve[--server->reserve_count]);
    return true;
}

void http_reserve_close(struct http_server *server)
{
    while (http_reserve_spend(server))
        ;
}
