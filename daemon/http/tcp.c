/* tcp.c - one path on HOST:PORT, for who scrapes metrics. */
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
    zd_fail_help("metrics_listen = \"127.0.0.1:9479\"");
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

static enum zd_status listen_at(
        struct http_server *server, const char *text,
        const struct addrinfo *address)
{
    int one = 1;
    int fd = socket(
            address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return http_uv_fail(-errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address->ai_addr, address->ai_addrlen)) {
        ZD_FAIL(ZD_ERR_CREATE, "E1046",
                "cannot listen at control.metrics_listen = \"%.80s\": %s", text,
                strerror(errno));
        zd_fail_help("another port, or \"\" for none");
        close(fd);
        return ZD_ERR_CREATE;
    }
    enum zd_status status = http_listener_start(server, fd, true);
    if (status != ZD_OK && server->listeners[1].fd < 0)
        close(fd);
    return status;
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
        return fail_address(address, "no HOST:PORT");
    bool is_literal = !getaddrinfo(host, port, &hints, &found);
    hints.ai_flags = AI_NUMERICSERV;
    if (!is_literal && getaddrinfo(host, port, &hints, &found))
        return fail_address(address, "no such host");
    enum zd_status status;
    if (!is_literal && !is_loopback(found->ai_addr))
        status = fail_address(
                address, "a host that is not this machine's loopback must be "
                         "written as an address");
    else if (!(server->tcp_path = strdup(path)))
        status = ZD_FAIL(ZD_ERR_MEMORY, "E1044", "no memory for a path");
    else {
        find_names(server);
        status = listen_at(server, address, found);
    }
    freeaddrinfo(found);
    return status;
}
