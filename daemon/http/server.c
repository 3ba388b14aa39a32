/* server.c - listeners, accept, timers, the end. */
#include "daemon/http/server.h"

#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 50 }; /* no descriptor at all: try again after it */

uint64_t http_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

enum zd_status http_uv_fail(int error, const char *what)
{
    return ZD_FAIL(
            ZD_ERR_CREATE, "E1044", "control socket: %s: %s", what,
            uv_strerror(error));
}

/* --- libmicrohttpd in the loop -------------------------------------------- */

static void on_mhd_timer(uv_timer_t *timer);
static void on_sweep(uv_timer_t *timer);
static void on_trim(uv_timer_t *timer);
static void on_client(uv_poll_t *poll, int status, int events);

static void schedule(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (server->queued)
        uv_timer_start(&server->mhd_timer, on_mhd_timer, 0, 0);
    else if (MHD_get_timeout(server->mhd, &ms) == MHD_YES)
        uv_timer_start(&server->mhd_timer, on_mhd_timer, ms, 0);
    else
        uv_timer_stop(&server->mhd_timer);
    bool is_sweeping = uv_is_active((uv_handle_t *)&server->sweep_timer);
    if (server->first && !is_sweeping)
        uv_timer_start(
                &server->sweep_timer, on_sweep, HTTP_SWEEP_MS, HTTP_SWEEP_MS);
    else if (!server->first && is_sweeping)
        uv_timer_stop(&server->sweep_timer);
}

void http_run_soon(struct http_server *server)
{
    uv_timer_start(&server->mhd_timer, on_mhd_timer, 0, 0);
}

static void turn(struct http_server *server)
{
    int most = 4;
    do {
        http_resume_due(server);
        server->must_run_again = false;
        MHD_run(server->mhd);
    } while (server->must_run_again && --most);
}

void http_run(struct http_server *server)
{
    turn(server);
    http_reserve_fill(server);
    schedule(server);
}

static void on_mhd_ready(uv_poll_t *poll, int status, int events)
{
    http_run(poll->data);
}

static void on_mhd_timer(uv_timer_t *timer)
{
    http_watch(timer->data);
    http_run(timer->data);
}

static void on_sweep(uv_timer_t *timer)
{
    http_sweep(timer->data);
}

static void on_watch(uv_poll_t *poll, int status, int events)
{
    http_watch(poll->data);
    http_run(poll->data);
}

/* --- accept --------------------------------------------------------------- */

static void pause_listeners(struct http_server *server)
{
    for (int i = 0; i < 2; i++)
        if (server->listeners[i].fd >= 0)
            uv_poll_stop(&server->listeners[i].poll);
    uv_timer_start(&server->trim_timer, on_trim, PAUSE_MS, 0);
}

static void resume_listeners(struct http_server *server)
{
    for (int i = 0; i < 2; i++)
        if (server->listeners[i].fd >= 0)
            uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_client);
}

void http_trim_later(struct http_server *server)
{
    uv_timer_start(&server->trim_timer, on_trim, HTTP_GRACE_MS / 2, 0);
}

static void on_trim(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    resume_listeners(server);
    http_trim(server);
}

/* -1: nobody is there (or, having paused, nothing can be done now). At the
 * limit of descriptors one of the reserve is given for him; whether he may come
 * in is seen after it. */
static int accept_one(struct http_server *server, int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            return fd;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return -1;
        bool is_full = errno == EMFILE || errno == ENFILE;
        if (is_full &&
            (http_reserve_spend(server) || http_evict(server, true, NULL)))
            continue;
        pause_listeners(server);
        return -1;
    }
}

static void admit(struct http_server *server, int fd, bool is_tcp)
{
    struct http_peer peer = {.uid = (uid_t)-1, .is_tcp = true};
    if (!is_tcp && !http_peer_read(server, fd, &peer)) {
        close(fd);
        return;
    }
    http_make_room(server, &peer);
    http_conn_create(server, fd, &peer);
}

static void on_client(uv_poll_t *poll, int status, int events)
{
    struct http_listener *listener =
            (struct http_listener
                     *)((char *)poll - offsetof(struct http_listener, poll));
    struct http_server *server = poll->data;
    for (int i = 0; i < HTTP_ACCEPT_BATCH; i++) {
        int fd = accept_one(server, listener->fd);
        if (fd < 0)
            break;
        admit(server, fd, listener->is_tcp);
    }
    http_watch(server);
    http_run(server);
    http_trim(server);
    /* Whoever came in on a descriptor of the reserve stays, another goes. */
    while (server->reserve_count < HTTP_RESERVE &&
           http_evict(server, false, server->last))
        ;
}

enum zd_status http_listener_start(
        struct http_server *server, int fd, bool is_tcp)
{
    struct http_listener *listener = &server->listeners[is_tcp];
    if (listen(fd, HTTP_BACKLOG))
        return http_uv_fail(-errno, "listen");
    int error = uv_poll_init(server->loop, &listener->poll, fd);
    if (error)
        return http_uv_fail(error, "watch");
    server->open_handles++;
    listener->poll.data = server;
    listener->fd = fd;
    listener->is_tcp = is_tcp;
    error = uv_poll_start(&listener->poll, UV_READABLE, on_client);
    return error ? http_uv_fail(error, "watch") : ZD_OK;
}

/* --- begin and end -------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;
    if (--server->open_handles == 0)
        free(server);
}

static void close_handle(struct http_server *server, void *handle)
{
    uv_handle_t *h = handle;
    if (h->data && !uv_is_closing(h))
        uv_close(h, on_closed);
}

static enum zd_status watch(
        struct http_server *server, uv_poll_t *poll, int fd,
        uv_poll_cb callback)
{
    int error = uv_poll_init(server->loop, poll, fd);
    if (error)
        return http_uv_fail(error, "watch");
    poll->data = server;
    server->open_handles++;
    error = uv_poll_start(poll, UV_READABLE, callback);
    return error ? http_uv_fail(error, "watch") : ZD_OK;
}

static void make_timer(struct http_server *server, uv_timer_t *timer)
{
    uv_timer_init(server->loop, timer);
    timer->data = server;
    server->open_handles++;
}

static enum zd_status start_loop_side(struct http_server *server)
{
    make_timer(server, &server->mhd_timer);
    make_timer(server, &server->sweep_timer);
    make_timer(server, &server->trim_timer);
    server->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->watch_fd < 0)
        return http_uv_fail(-errno, "epoll");
    ZD_TRY(watch(server, &server->watch_poll, server->watch_fd, on_watch));
    ZD_TRY(http_mhd_start(server));
    const union MHD_DaemonInfo *info =
            MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    return watch(server, &server->mhd_poll, info->epoll_fd, on_mhd_ready);
}

enum zd_status http_create(
        uv_loop_t *loop, const struct http_options *options,
        struct http_server **server_out)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (!server)
        return ZD_FAIL(ZD_ERR_MEMORY, "E1044", "no memory for the socket");
    server->loop = loop;
    server->handler = options->handler;
    server->ctx = options->ctx;
    server->owner = geteuid();
    server->status_gid = options->status_gid;
    server->first_request_ms = HTTP_FIRST_REQUEST_MS;
    server->idle_ms = HTTP_IDLE_MS;
    server->watch_fd = -1;
    server->socket.fd = server->socket.lock_fd = -1;
    server->listeners[0].fd = server->listeners[1].fd = -1;
    enum zd_status status = http_socket_open(options, &server->socket);
    if (status == ZD_OK)
        status = start_loop_side(server);
    if (status == ZD_OK)
        status = http_listener_start(server, server->socket.fd, false);
    if (status == ZD_OK) {
        http_reserve_fill(server);
        *server_out = server;
        return ZD_OK;
    }
    http_destroy(server, 0);
    return status;
}

static bool is_sending(const struct http_server *server)
{
    for (const struct http_conn *conn = server->first; conn; conn = conn->next)
        if (conn->state == CONN_BUSY && !conn->is_evicted)
            return true;
    return false;
}

/* What was answered goes out; the loop does not turn meanwhile. */
static void drain(struct http_server *server, double seconds)
{
    uint64_t end = http_now_ms() + (uint64_t)(seconds * 1000);
    int fd = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD)
                     ->epoll_fd;
    turn(server);
    while (is_sending(server) && http_now_ms() < end) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        MHD_UNSIGNED_LONG_LONG ms = 50;
        if (MHD_get_timeout(server->mhd, &ms) == MHD_NO || ms > 50)
            ms = 50;
        poll(&poll_fd, 1, (int)ms);
        turn(server);
    }
}

static void stop_mhd(struct http_server *server, double seconds)
{
    drain(server, seconds);
    for (struct http_conn *conn = server->first, *next; conn; conn = next) {
        next = conn->next;
        http_conn_drop(conn);
    }
    turn(server);
    MHD_stop_daemon(server->mhd);
    server->mhd = NULL;
}

void http_destroy(struct http_server *server, double seconds)
{
    if (!server)
        return;
    for (int i = 0; i < 2; i++)
        close_handle(server, &server->listeners[i].poll);
    close_handle(server, &server->mhd_poll);
    close_handle(server, &server->watch_poll);
    close_handle(server, &server->mhd_timer);
    close_handle(server, &server->sweep_timer);
    close_handle(server, &server->trim_timer);
    http_socket_close(&server->socket);
    if (server->listeners[1].fd >= 0)
        close(server->listeners[1].fd);
    if (server->mhd)
        stop_mhd(server, seconds);
    if (server->watch_fd >= 0)
        close(server->watch_fd);
    http_reserve_close(server);
    free(server->tcp_path);
    server->tcp_path = NULL;
    if (!server->open_handles)
        free(server);
}
