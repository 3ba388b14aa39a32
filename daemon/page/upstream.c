/* upstream.c - see upstream.h. */
#include "daemon/page/upstream.h"

#include "daemon/http/owner.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int upstream_connect(const char *socket_path, uid_t owner, bool acts)
{
    uid_t found;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(socket_path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, socket_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        int cause = errno;
        if (cause == EINTR)
            continue;
        close(fd);
        errno = cause;
        return -1;
    }
    if (!http_owner_is_trusted(fd, socket_path, owner, acts, &found)) {
        close(fd);
        errno = ECONNREFUSED;
        return -1;
    }
    return fd;
}

static bool send_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* A header line into `out`; nothing for a value that is none. */
static void add_header(
        char *out, size_t out_bytes, const char *name, const char *value)
{
    size_t used = strlen(out);
    if (value && strlen(value) < 256 && !strpbrk(value, "\r\n"))
        snprintf(out + used, out_bytes - used, "%s: %s\r\n", name, value);
}

static bool send_request(int fd, const struct upstream_request *request)
{
    char headers[1024] = "", *head;
    add_header(headers, sizeof headers, "Accept", request->accept);
    add_header(
            headers, sizeof headers, "Last-Event-ID", request->last_event_id);
    if (request->body_bytes)
        add_header(headers, sizeof headers, "Content-Type", "application/json");
    int bytes = asprintf(
            &head,
            "%s %s HTTP/1.1\r\nHost: zerod\r\nConnection: close\r\n"
            "Content-Length: %zu\r\n%s\r\n",
            request->method, request->target, request->body_bytes, headers);
    if (bytes < 0)
        return false;
    bool sent = send_all(fd, head, (size_t)bytes) &&
                send_all(fd, request->body, request->body_bytes);
    free(head);
    return sent;
}

static bool keep(void *ctx, const char *data, size_t bytes)
{
    struct upstream *upstream = ctx;
    /* no more than was received comes out of the reader */
    memcpy(upstream->piece + upstream->end, data, bytes);
    upstream->end += bytes;
    return true;
}

/* Something to read from the job; false: stop, or the client is gone. */
static bool wait_readable(const struct upstream *upstream)
{
    struct pollfd fds[3] = {
            {.fd = upstream->fd, .events = POLLIN},
            {.fd = upstream->client_fd, .events = POLLRDHUP},
            {.fd = upstream->stop_fd, .events = POLLIN},
    };
    for (;;) {
        if (poll(fds, 3, -1) < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (fds[1].revents || fds[2].revents)
            return false;
        if (fds[0].revents)
            return true;
    }
}

/* Receive once; false: nothing more will come, or should. */
static bool receive(struct upstream *upstream)
{
    char data[UPSTREAM_PIECE];
    if (!wait_readable(upstream))
        return false;
    ssize_t got = recv(upstream->fd, data, sizeof data, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    upstream->begin = upstream->end = 0;
    if (got <= 0) {
        http_reader_end(&upstream->reader);
        return false;
    }
    return http_reader_take(&upstream->reader, data, (size_t)got);
}

struct upstream *upstream_open(const struct upstream_request *request)
{
    struct upstream *upstream = calloc(1, sizeof *upstream);
    if (!upstream)
        return NULL;
    upstream->reader.sink = keep;
    upstream->reader.ctx = upstream;
    upstream->client_fd = request->client_fd;
    upstream->stop_fd = request->stop_fd;
    upstream->fd = upstream_connect(
            request->socket, request->owner,
            strcmp(request->method, "GET") != 0);
    if (upstream->fd < 0 || !send_request(upstream->fd, request))
        goto err_close;
    while (upstream->reader.state == HTTP_HEAD && !upstream->is_over)
        upstream->is_over = !receive(upstream);
    if (upstream->reader.state == HTTP_HEAD ||
        upstream->reader.state == HTTP_BROKEN)
        goto err_close;
    return upstream;

err_close:
    upstream_close(upstream);
    return NULL;
}

ssize_t upstream_read(struct upstream *upstream, char *out, size_t bytes)
{
    while (upstream->begin == upstream->end && !upstream->is_over)
        upstream->is_over = !receive(upstream);
    size_t count = upstream->end - upstream->begin;
    if (!count)
        return upstream->reader.state == HTTP_DONE ? 0 : -1;
    if (count > bytes)
        count = bytes;
    memcpy(out, upstream->piece + upstream->begin, count);
    upstream->begin += count;
    return (ssize_t)count;
}

void upstream_close(struct upstream *upstream)
{
    if (!upstream)
        return;
    if (upstream->fd >= 0)
        close(upstream->fd);
    free(upstream);
}
