/* tcp.c - one path on HOST:PORT, for who scrapes metrics; all of
 * 127.0.0.1:PORT, for the page. */
#include "base/must.h"
#include "daemon/http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum zd_status fail_address(const char *address, const char *why)
{
    ZD_FAIL(ZD_ERR_CONFIG, "E1045", "control.metrics_listen = \"%.80s\": %s",
            address, why);
    zd_fail_help("like metrics_listen = \"127.0.0.1:9479\"");
    return ZD_ERR_CONFIG;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >>
                24) == 127;
    return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* "HOST:PORT" -> host without brackets, port. */
static bool split(const char *address, char host[256], char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t bytes = colon ? (size_t)(colon - address) : 0;
    if (!bytes || bytes > 255 || !colon[1] || strlen(colon + 1) > 5)
        return false;
    bool has_brackets = address[0] == '[' && address[bytes - 1] == ']';
    if (has_brackets) {
        address++;
        bytes -= 2;
    }
    memcpy(host, address, bytes);
    host[bytes] = '\0';
    strcpy(port, colon + 1);
    return has_brackets || !strchr(host, ':');
}

/* The one path, for requests that name this host. */
static void answer_path(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    const struct http_server *server = ctx;
    if (request->host && !http_host_is_ours(server, request->host))
        http_reply_error(
                reply, 403, "E_FORBIDDEN", "the Host header names another host",
                "use the address, or the name that hostname prints");
    else if (strcmp(request->path, server->tcp_path))
        http_reply_error(
                reply, 404, "E_NOT_FOUND", "no such path", "GET /metrics");
    else if (strcmp(request->method, "GET"))
        http_reply_error(
                reply, 405, "E_METHOD", "the method must be GET",
                "GET /metrics");
    else
        server->options.handler(server->options.ctx, request, reply);
}

/* A bound socket; -1 and errno. */
static int bound_socket(const struct sockaddr *address, socklen_t bytes)
{
    int one = 1;
    int fd = socket(
            address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, bytes) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum zd_status listen_at(
        struct http_server *server, const char *text,
        const struct addrinfo *address)
{
    int fd = bound_socket(address->ai_addr, address->ai_addrlen);
    if (fd >= 0)
        return http_listener_start(server, fd, true, answer_path, server);
    ZD_FAIL(ZD_ERR_CREATE, "E1046",
            "cannot listen at control.metrics_listen = \"%.80s\": %s", text,
            strerror(errno));
    zd_fail_help("choose another port, or \"\" for none");
    return ZD_ERR_CREATE;
}

enum zd_status http_listen_loopback(
        struct http_server *server, int port, int *port_out)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = bound_socket((struct sockaddr *)&address, bytes);
    if (fd < 0) {
        ZD_FAIL(ZD_ERR_CREATE, "E1102", "cannot listen on 127.0.0.1:%d: %s",
                port, strerror(errno));
        zd_fail_help("leave out --port: any free port will do");
        return ZD_ERR_CREATE;
    }
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    *port_out = ntohs(address.sin_port);
    return http_listener_start(server, fd, true, NULL, NULL);
}

/* As hostname prints it, and with its domain. */
static void find_names(struct http_server *server)
{
    struct addrinfo *found = NULL, hints = {.ai_flags = AI_CANONNAME};
    gethostname(server->names[0], sizeof server->names[0] - 1);
    if (getaddrinfo(server->names[0], NULL, &hints, &found))
        return;
    if (found->ai_canonname)
        snprintf(
                server->names[1], sizeof server->names[1], "%s",
                found->ai_canonname);
    freeaddrinfo(found);
}

enum zd_status http_listen_tcp(
        struct http_server *server, const char *address, const char *path)
{
    char host[256], port[8];
    struct addrinfo *found = NULL;
    struct addrinfo hints = {
            .ai_socktype = SOCK_STREAM,
            .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    if (!split(address, host, port))
        return fail_address(address, "it is not HOST:PORT");
    bool is_literal = !getaddrinfo(host, port, &hints, &found);
    hints.ai_flags = AI_NUMERICSERV;
    if (!is_literal && getaddrinfo(host, port, &hints, &found))
        return fail_address(address, "no such host");
    enum zd_status status;
    if (!is_literal && !is_loopback(found->ai_addr))
        status = fail_address(
                address, "a host that is not this machine's loopback must be "
                         "written as an address");
    else {
        free(server->tcp_path);
        server->tcp_path = zd_must(strdup(path));
        find_names(server);
        status = listen_at(server, address, found);
    }
    freeaddrinfo(found);
    return status;
}
