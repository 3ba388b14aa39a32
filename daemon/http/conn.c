/* conn.c - a connection from accept to its end.
 *
 * Until its first byte it waits in the lobby: a descriptor and this struct, no
 * more. Whoever only connects, and be it ten thousand times, costs little and
 * is thrown out by a close. One epoll descriptor watches for that first byte
 * and, all along, for a client that closes: nobody else looks while a request
 * waits. */
#include "daemon/http/server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS_MAX = 64 };

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
    if (!conn->is_evicted)
        server->count--;
}

void http_conn_create(
        struct http_server *server, int fd, const struct http_peer *peer)
{
    struct http_conn *conn = calloc(1, sizeof *conn);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = conn};
    if (!conn || epoll_ctl(server->watch_fd, EPOLL_CTL_ADD, fd, &event)) {
        close(fd);
        free(conn);
        return;
    }
    *conn = (struct http_conn){.server = server, .fd = fd, .peer = *peer};
    http_conn_enter(conn, CONN_FRESH);
    link_conn(conn);
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
    /* A child of fork may hold the descriptor a little longer than we do. */
    epoll_ctl(conn->server->watch_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->server->queued -= conn->is_queued;
    unlink_conn(conn);
    http_conn_forget_request(conn);
    free(conn);
}

static void close_in_lobby(struct http_conn *conn)
{
    int fd = conn->fd;
    http_conn_destroy(conn);
    close(fd);
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
    if (!conn->mhd) {
        close_in_lobby(conn);
        return;
    }
    if (!conn->is_evicted)
        conn->server->count--;
    conn->is_evicted = true;
    shutdown(conn->fd, SHUT_RDWR);
    http_conn_resume(conn);
}

static void leave_lobby(struct http_conn *conn)
{
    struct epoll_event event = {.events = EPOLLET, .data.ptr = conn};
    epoll_ctl(conn->server->watch_fd, EPOLL_CTL_MOD, conn->fd, &event);
    conn->server->queued -= conn->is_queued;
    conn->is_queued = false;
    http_mhd_add(conn);
}

/* Any GET but those that are asked often and cost nothing. */
static bool may_be_long(const struct http_conn *conn)
{
    static const char *const quick[] = {"/v1/status", "/healthz", "/readyz"};
    char head[32] = {0};
    recv(conn->fd, head, sizeof head - 1, MSG_PEEK | MSG_DONTWAIT);
    if (strncmp(head, "GET ", 4))
        return false;
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (!strncmp(head + 4, quick[i], strlen(quick[i])))
            return false;
    return true;
}

static void on_first_byte(struct http_conn *conn)
{
    if (conn->is_queued)
        return; /* more of the same */
    if (!may_be_long(conn)) {
        leave_lobby(conn);
        return;
    }
    conn->is_queued = true;
    conn->server->queued++;
}

static void serve_queue(struct http_server *server)
{
    struct http_conn *conn = server->queued ? server->first : NULL;
    while (conn && !conn->is_queued)
        conn = conn->next;
    if (conn)
        leave_lobby(conn);
}

/* Only a full close is a hangup; who has sent all may close his half and
 * wait. */
void http_watch(struct http_server *server)
{
    struct epoll_event ready[EVENTS_MAX];
    int count = epoll_wait(server->watch_fd, ready, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct http_conn *conn = ready[i].data.ptr;
        bool has_gone = ready[i].events & (EPOLLHUP | EPOLLERR);
        if (!conn->mhd) {
            if (has_gone) /* also who has sent something: nobody can reply */
                close_in_lobby(conn);
            else
                on_first_byte(conn);
        } else if (has_gone) {
            conn->has_hung_up = true;
            if (conn->is_suspended)
                http_conn_drop(conn);
        }
    }
    serve_queue(server);
}
