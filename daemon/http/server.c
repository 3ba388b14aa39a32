/* server.c - libmicrohttpd in the loop, timers, the end, and TCP. */
#include "daemon/http/server.h"

#include "base/must.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t http_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* --- libmicrohttpd in the loop -------------------------------------------- */

static void on_soon(uv_timer_t *timer)
{
    http_run(timer->data);
}

void http_run_soon(struct http_server *server)
{
    uv_timer_start(&server->soon, on_soon, 0, 0);
}

/* False: more is due at once. Its later deadlines come with a sweep. */
static bool turn(struct http_server *server)
{
    bool is_due = false;
    for (int rounds = 0; rounds < 4; rounds++) {
        server->must_run_again = is_due = false;
        for (int i = 0; i < 2; i++) {
            MHD_UNSIGNED_LONG_LONG ms = 1;
            struct MHD_Daemon *mhd = server->doors[i].mhd;
            if (mhd)
                MHD_run(mhd);
            is_due |= mhd && MHD_get_timeout(mhd, &ms) == MHD_YES && !ms;
        }
        if (!server->must_run_again && !is_due)
            break;
    }
    return !is_due;
}

void http_run(struct http_server *server)
{
    if (!turn(server))
        http_run_soon(server);
}

static void on_sweep(uv_timer_t *timer)
{
    http_sweep(timer->data);
    http_run(timer->data);
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

static void own_handle(struct http_server *server, void *handle)
{
    ((uv_handle_t *)handle)->data = server;
    server->open_handles++;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    http_run(poll->data);
}

static enum zd_status fail_door(const char *why)
{
    return ZD_FAIL(ZD_ERR_CREATE, "E1044", "control socket: %s", why);
}

/* Serve a socket that listens; it is taken over, also on failure. ZD_ERR_CREATE
 * (E1044). */
static enum zd_status door_open(struct http_server *server, int fd, bool is_tcp)
{
    struct http_door *door = &server->doors[is_tcp];
    *door = (struct http_door){.server = server, .fd = fd, .is_tcp = is_tcp};
    door->mhd = http_mhd_start(door);
    if (!door->mhd) {
        close(fd);
        return fail_door("libmicrohttpd cannot be started");
    }
    int error = uv_poll_init(
            server->loop, &door->poll,
            MHD_get_daemon_info(door->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    if (error)
        return fail_door(uv_strerror(error));
    own_handle(server, &door->poll);
    uv_poll_start(&door->poll, UV_READABLE, on_ready);
    http_run(server);
    return ZD_OK;
}

enum zd_status http_create(
        uv_loop_t *loop, const struct http_options *options,
        struct http_server **server_out)
{
    struct http_server *server = zd_array(1, sizeof *server);
    enum zd_status status = ZD_OK;
    int fd = -1;
    server->loop = loop;
    server->options = *options;
    server->owner = geteuid();
    server->first_request_ms = HTTP_FIRST_REQUEST_MS;
    uv_timer_init(loop, &server->soon);
    uv_timer_init(loop, &server->sweep);
    own_handle(server, &server->soon);
    own_handle(server, &server->sweep);
    uv_timer_start(&server->sweep, on_sweep, HTTP_SWEEP_MS, HTTP_SWEEP_MS);
    if (options->socket_path)
        status = http_socket_open(options->socket_path, &server->socket, &fd);
    if (fd >= 0)
        status = door_open(server, fd, false);
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
    turn(server);
    while (is_sending(server) && http_now_ms() < end) {
        poll(NULL, 0, 1);
        turn(server);
    }
}

void http_destroy(struct http_server *server, double seconds)
{
    if (!server)
        return;
    for (int i = 0; i < 2; i++)
        close_handle(&server->doors[i].poll);
    close_handle(&server->soon);
    close_handle(&server->sweep);
    http_socket_remove(&server->socket);
    drain(server, seconds);
    for (struct http_conn *conn = server->newest; conn; conn = conn->next)
        http_conn_drop(conn);
    turn(server);
    for (int i = 0; i < 2; i++)
        if (server->doors[i].mhd)
            MHD_stop_daemon(server->doors[i].mhd);
    free(server->tcp_path);
}

/* --- TCP: one path for who scrapes metrics, all of it for the page -------- */

/* "ADDRESS:PORT", "[ADDRESS]:PORT" or "localhost:PORT". */
static bool parse_address(const char *text, struct sockaddr_storage *out)
{
    char host[64], *end;
    const char *colon = strrchr(text, ':');
    size_t bytes = colon ? (size_t)(colon - text) : 0;
    if (!bytes || bytes >= sizeof host || !strchr("0123456789", colon[1]))
        return false;
    long port = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port > 65535)
        return false;
    ZD_PRINT(host, "%.*s", (int)bytes, text);
    if (host[0] == '[' && host[bytes - 1] == ']') {
        host[bytes - 1] = '\0';
        return !uv_ip6_addr(host + 1, (int)port, (struct sockaddr_in6 *)out);
    }
    return !uv_ip4_addr(
            strcmp(host, "localhost") ? host : "127.0.0.1", (int)port,
            (struct sockaddr_in *)out);
}

/* A socket that listens; -1 and errno. */
static int listening_socket(const char *text)
{
    struct sockaddr_storage address = {0};
    int one = 1;
    errno = EINVAL;
    if (!parse_address(text, &address))
        return -1;
    int fd = socket(
            address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(fd, HTTP_BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

enum zd_status http_listen_loopback(
        struct http_server *server, int port, int *port_out)
{
    struct sockaddr_in bound = {0};
    socklen_t bytes = sizeof bound;
    char address[32];
    ZD_PRINT(address, "127.0.0.1:%d", port);
    int fd = listening_socket(address);
    if (fd < 0) {
        ZD_FAIL(ZD_ERR_CREATE, "E1102", "cannot listen on %s: %s", address,
                strerror(errno));
        return zd_fail_help("leave out --port: any free port will do");
    }
    getsockname(fd, (struct sockaddr *)&bound, &bytes);
    *port_out = ntohs(bound.sin_port);
    return door_open(server, fd, true);
}

/* As hostname prints it, and with its domain. */
static void find_names(struct http_server *server)
{
    struct addrinfo *found = NULL, hints = {.ai_flags = AI_CANONNAME};
    gethostname(server->names[0], sizeof server->names[0] - 1);
    if (getaddrinfo(server->names[0], NULL, &hints, &found))
        return;
    if (found->ai_canonname)
        ZD_PRINT(server->names[1], "%s", found->ai_canonname);
    freeaddrinfo(found);
}

enum zd_status http_listen_tcp(
        struct http_server *server, const char *address, const char *path)
{
    int fd = listening_socket(address);
    if (fd < 0) {
        ZD_FAIL(ZD_ERR_CREATE, "E1046",
                "cannot listen at control.metrics_listen = \"%.80s\": %s",
                address, strerror(errno));
        return zd_fail_help("choose another port, or \"\" for none");
    }
    free(server->tcp_path);
    server->tcp_path = zd_must(strdup(path));
    find_names(server);
    return door_open(server, fd, true);
}
