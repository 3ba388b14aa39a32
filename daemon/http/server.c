/* server.c - listeners, accept, timers, the end. */
#include "daemon/http/server.h"

#include "base/must.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t http_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

static enum zd_status uv_fail(int error, const char *what)
{
    return ZD_FAIL(
            ZD_ERR_CREATE, "E1044", "control socket: %s: %s", what,
            uv_strerror(error));
}

/* --- libmicrohttpd in the loop -------------------------------------------- */

static void on_mhd_timer(uv_timer_t *timer)
{
    http_run(timer->data);
}

static void on_mhd_ready(uv_poll_t *poll, int status, int events)
{
    http_run(poll->data);
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
    MHD_UNSIGNED_LONG_LONG ms;
    turn(server);
    if (server->spare_fd < 0) /* as soon as one is free */
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (MHD_get_timeout(server->mhd, &ms) == MHD_YES)
        uv_timer_start(&server->mhd_timer, on_mhd_timer, ms, 0);
    else
        uv_timer_stop(&server->mhd_timer);
}

/* --- accept --------------------------------------------------------------- */

/* The spare descriptor first, then that of the connection first in line. */
static bool free_a_descriptor(struct http_server *server)
{
    if (server->spare_fd < 0)
        return http_drop_one(server);
    close(server->spare_fd);
    server->spare_fd = -1;
    return true;
}

/* -1: none waits, or the next sweep tries again. Without a free descriptor only
 * the first of a batch is accepted, so that its request is answered. */
static int accept_one(struct http_listener *listener, bool is_first)
{
    for (;;) {
        int fd =
                accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            return fd;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return -1;
        bool is_full = errno == EMFILE || errno == ENFILE;
        if (is_full && is_first && free_a_descriptor(listener->server))
            continue;
        if (is_first)
            uv_poll_stop(&listener->poll);
        return -1;
    }
}

static void on_client(uv_poll_t *poll, int status, int events)
{
    struct http_server *server = poll->data;
    struct http_listener *listener =
            &server->listeners[poll == &server->listeners[1].poll];
    for (int i = 0; i < HTTP_ACCEPT_BATCH; i++) {
        int fd = accept_one(listener, i == 0);
        if (fd < 0)
            break;
        http_conn_accept(server, fd, listener->is_tcp);
    }
    http_run(server);
}

static void on_sweep(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    http_sweep(server);
    http_run(server);
    for (int i = 0; i < 2; i++)
        if (server->listeners[i].fd >= 0)
            uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_client);
}

/* --- begin and end -------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;
    if (--server->open_handles == 0)
        free(server);
}

static void close_handle(void *handle)
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
        return uv_fail(error, "watch");
    poll->data = server;
    server->open_handles++;
    error = uv_poll_start(poll, UV_READABLE, callback);
    return error ? uv_fail(error, "watch") : ZD_OK;
}

enum zd_status http_listener_start(
        struct http_server *server, int fd, bool is_tcp)
{
    struct http_listener *listener = &server->listeners[is_tcp];
    *listener = (struct http_listener){
            .server = server, .fd = -1, .is_tcp = is_tcp};
    enum zd_status status =
            listen(fd, HTTP_BACKLOG)
                    ? uv_fail(-errno, "listen")
                    : watch(server, &listener->poll, fd, on_client);
    if (status == ZD_OK)
        listener->fd = fd;
    else if (is_tcp)
        close(fd);
    return status;
}

static void make_timer(struct http_server *server, uv_timer_t *timer)
{
    uv_timer_init(server->loop, timer);
    timer->data = server;
    server->open_handles++;
}

static enum zd_status start(
        struct http_server *server, const struct http_options *options)
{
    if (options->socket_path)
        ZD_TRY(http_socket_open(options, &server->socket));
    make_timer(server, &server->mhd_timer);
    make_timer(server, &server->sweep_timer);
    uv_timer_start(
            &server->sweep_timer, on_sweep, HTTP_SWEEP_MS, HTTP_SWEEP_MS);
    ZD_TRY(http_mhd_start(server));
    int fd = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD)
                     ->epoll_fd;
    ZD_TRY(watch(server, &server->mhd_poll, fd, on_mhd_ready));
    http_run(server);
    return options->socket_path
                   ? http_listener_start(server, server->socket.fd, false)
                   : ZD_OK;
}

enum zd_status http_create(
        uv_loop_t *loop, const struct http_options *options,
        struct http_server **server_out)
{
    struct http_server *server = zd_array(1, sizeof *server);
    server->loop = loop;
    server->options = *options;
    server->owner = geteuid();
    server->first_request_ms = HTTP_FIRST_REQUEST_MS;
    server->idle_ms = HTTP_IDLE_MS;
    server->socket.fd = server->socket.lock_fd = server->spare_fd = -1;
    server->listeners[0].fd = server->listeners[1].fd = -1;
    enum zd_status status = start(server, options);
    if (status == ZD_OK)
        *server_out = server;
    else
        http_destroy(server, 0);
    return status;
}

static bool is_sending(const struct http_server *server)
{
    for (const struct http_conn *conn = server->newest; conn; conn = conn->next)
        if (conn->state == CONN_BUSY && !conn->is_dropped)
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
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        http_conn_drop(conn);
    turn(server);
    MHD_stop_daemon(server->mhd);
    server->mhd = NULL;
}

void http_destroy(struct http_server *server, double seconds)
{
    if (!server)
        return;
    for (int i = 0; i < 2; i++)
        close_handle(&server->listeners[i].poll);
    close_handle(&server->mhd_poll);
    close_handle(&server->mhd_timer);
    close_handle(&server->sweep_timer);
    http_socket_close(&server->socket);
    if (server->listeners[1].fd >= 0)
        close(server->listeners[1].fd);
    if (server->mhd)
        stop_mhd(server, seconds);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    free(server->tcp_path);
    server->tcp_path = NULL;
    if (!server->open_handles)
        free(server);
}
