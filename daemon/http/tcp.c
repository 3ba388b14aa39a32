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
    snprintf(host, sizeof host, "%.*s", (int)bytes, text);
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
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    int fd = listening_socket(address);
    if (fd < 0) {
        ZD_FAIL(ZD_ERR_CREATE, "E1102", "cannot listen on %s: %s", address,
                strerror(errno));
        return zd_fail_help("leave out --port: any free port will do");
    }
    getsockname(fd, (struct sockaddr *)&bound, &bytes);
    *port_out = ntohs(bound.sin_port);
    return http_door_open(server, fd, true);
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
    return http_door_open(server, fd, true);
}
