/* limits.c - who has to go: the limits of connections, deadlines, and
 * descriptors held back so that the owner gets in when there are none. */
#include "daemon/http/server.h"

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

static int count_user(
        const struct http_server *server, const struct http_peer *peer)
{
    int count = 0;
    for (const struct http_conn *conn = server->first; conn; conn = conn->next)
        count += !conn->is_evicted && is_same_user(peer, &conn->peer);
    return count;
}

/* Of all; of one user; of those who have too many. */
enum { OF_ALL, OF_USER, OF_GREEDY };

static struct http_conn *first_in_line(
        const struct http_server *server, int of, const struct http_peer *peer,
        const struct http_conn *keep)
{
    struct http_conn *first = NULL;
    int best = RANK_STAYS;
    for (struct http_conn *conn = server->first; conn; conn = conn->next) {
        int rank = rank_of(conn);
        if (conn == keep || rank > best ||
            (of == OF_USER && !is_same_user(peer, &conn->peer)) ||
            (of == OF_GREEDY &&
             count_user(server, &conn->peer) <= HTTP_PER_USER_MAX))
            continue;
        if (rank < best || (first && conn->since_ms < first->since_ms)) {
            best = rank;
            first = conn;
        }
    }
    return best == RANK_STAYS ? NULL : first;
}

bool http_evict(
        struct http_server *server, bool even_streams,
        const struct http_conn *keep)
{
    struct http_conn *conn = first_in_line(server, OF_ALL, NULL, keep);
    if (!conn || (rank_of(conn) != RANK_IDLE && !even_streams))
        return false;
    http_conn_drop(conn);
    http_run(server);
    return true;
}

void http_make_room(struct http_server *server, const struct http_peer *peer)
{
    struct http_conn *conn;
    if (count_user(server, peer) >= HTTP_PER_USER_HARD)
        conn = first_in_line(server, OF_USER, peer, NULL);
    else if (server->count >= HTTP_CONNECTIONS_HARD)
        conn = first_in_line(server, OF_ALL, NULL, NULL);
    else
        return;
    http_conn_drop(conn);
    http_run(server);
}

static struct http_conn *first_over(const struct http_server *server)
{
    struct http_conn *conn = NULL;
    if (server->count > HTTP_PER_USER_MAX)
        conn = first_in_line(server, OF_GREEDY, NULL, NULL);
    if (!conn && server->count > HTTP_CONNECTIONS_MAX)
        conn = first_in_line(server, OF_ALL, NULL, NULL);
    return conn;
}

void http_trim(struct http_server *server)
{
    bool has_dropped = false;
    struct http_conn *conn;
    while ((conn = first_over(server))) {
        if (rank_of(conn) == RANK_IDLE &&
            http_now_ms() - conn->since_ms < HTTP_GRACE_MS) {
            http_trim_later(server);
            break;
        }
        http_conn_drop(conn);
        has_dropped = true;
    }
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
    for (struct http_conn *conn = server->first, *next; conn; conn = next) {
        next = conn->next;
        if (!is_overdue(conn, now))
            continue;
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
