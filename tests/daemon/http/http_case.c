#include "tests/daemon/http/http_case.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the handler ---------------------------------------------------------- */

static void reply_text(struct http_reply *reply, int status, char *text)
{
    reply->status = status;
    reply->content_type = "application/json";
    reply->body = text;
    reply->body_bytes = strlen(text);
}

static void on_gone(void *ctx)
{
    struct case_stream *slot = ctx;
    slot->stream = NULL;
    slot->owner->gone_count++;
}

static struct case_stream *defer(struct http_case *c, struct http_reply *reply)
{
    struct case_stream *slot = &c->streams[c->stream_count++];
    slot->owner = c;
    slot->stream = http_defer(reply, on_gone, slot);
    http_set_status(slot->stream, 200, "text/plain");
    return slot;
}

static void tell_all(struct http_case *c, bool is_end)
{
    for (int i = 0; i < c->stream_count; i++) {
        struct case_stream *slot = &c->streams[i];
        const char *text = slot->is_later ? "{\"done\": true}" : "more\n";
        if (!slot->stream || (slot->is_later && !is_end))
            continue;
        if (!is_end || slot->is_later)
            http_send(slot->stream, text, strlen(text));
        if (is_end) {
            http_finish(slot->stream);
            slot->stream = NULL;
        }
    }
}

static void pour(uv_timer_t *timer)
{
    static const char much[64 << 10];
    struct http_case *c = timer->data;
    for (int i = 0; i < c->stream_count; i++) {
        struct case_stream *slot = &c->streams[i];
        if (slot->stream && slot->is_pouring &&
            !http_send(slot->stream, much, sizeof much))
            c->failed_count++;
    }
}

static void echo(const struct http_request *request, struct http_reply *reply)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out, "method=%s path=%s body=%zu:%.64s", request->method,
            request->path, request->body_bytes, request->body);
    for (int i = 0; i < request->param_count; i++)
        fprintf(out, " [%s]=[%s]", request->param_names[i],
                request->param_values[i]);
    fprintf(out, " accept=%s last=%s act=%d\n",
            request->accept ? request->accept : "-",
            request->last_event_id ? request->last_event_id : "-",
            request->may_act);
    fclose(out);
    reply_text(reply, 200, text);
}

static void big(const struct http_request *request, struct http_reply *reply)
{
    size_t bytes = request->param_count
                           ? strtoul(request->param_values[0], NULL, 10)
                           : 0;
    reply->body = malloc(bytes + 1);
    memset(reply->body, 'x', bytes);
    reply->body_bytes = bytes;
}

void case_handle(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    struct http_case *c = ctx;
    const char *path = request->path;
    char *text;
    if (!strcmp(path, "/big"))
        big(request, reply);
    else if (!strcmp(path, "/stream"))
        http_send(defer(c, reply)->stream, "hello\n", 6);
    else if (!strcmp(path, "/later"))
        defer(c, reply)->is_later = true;
    else if (!strcmp(path, "/pour"))
        defer(c, reply)->is_pouring = true;
    else if (!strcmp(path, "/count")) {
        if (asprintf(
                    &text, "gone=%d streams=%d failed=%d\n", c->gone_count,
                    c->stream_count, c->failed_count) > 0)
            reply_text(reply, 200, text);
    } else {
        if (!strcmp(path, "/tell") || !strcmp(path, "/finish"))
            tell_all(c, path[1] == 'f');
        echo(request, reply);
    }
}

/* --- the server ----------------------------------------------------------- */

static void on_stop(uv_async_t *async)
{
    struct http_case *c = async->data;
    http_destroy(c->server, c->drain_seconds);
    uv_close((uv_handle_t *)&c->stop, NULL);
    uv_close((uv_handle_t *)&c->pour_timer, NULL);
}

static void *run_loop(void *ctx)
{
    struct http_case *c = ctx;
    uv_run(&c->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void make(struct http_case *c, int status_gid)
{
    *c = (struct http_case){.folder = "/tmp/zerod-http-XXXXXX"};
    if (!mkdtemp(c->folder))
        abort();
    snprintf(c->path, sizeof c->path, "%s/s/job.sock", c->folder);
    struct http_options options = {
            .socket_path = c->path,
            .is_default_path = true,
            .status_gid = status_gid,
            .handler = case_handle,
            .ctx = c};
    uv_loop_init(&c->loop);
    if (http_create(&c->loop, &options, &c->server) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        abort();
    }
}

static void run(struct http_case *c)
{
    uv_async_init(&c->loop, &c->stop, on_stop);
    uv_timer_init(&c->loop, &c->pour_timer);
    c->stop.data = c->pour_timer.data = c;
    uv_timer_start(&c->pour_timer, pour, 1, 1);
    pthread_create(&c->thread, NULL, run_loop, c);
}

void case_start(struct http_case *c, int status_gid)
{
    make(c, status_gid);
    run(c);
}

void case_start_hurried(
        struct http_case *c, int status_gid, int first_request_ms, int idle_ms)
{
    make(c, status_gid);
    if (first_request_ms)
        c->server->first_request_ms = first_request_ms;
    if (idle_ms)
        c->server->idle_ms = idle_ms;
    run(c);
}

void case_start_tcp(struct http_case *c)
{
    struct sockaddr_in bound = {0};
    socklen_t bytes = sizeof bound;
    make(c, -1);
    if (http_listen_tcp(c->server, "localhost:0", "/metrics") != ZD_OK)
        abort();
    getsockname(c->server->listeners[1].fd, (struct sockaddr *)&bound, &bytes);
    c->tcp_port = ntohs(bound.sin_port);
    run(c);
}

void case_stop(struct http_case *c)
{
    char folder[80];
    uv_async_send(&c->stop);
    pthread_join(c->thread, NULL);
    if (uv_loop_close(&c->loop))
        abort(); /* a handle was left */
    snprintf(folder, sizeof folder, "%s/s", c->folder);
    rmdir(folder);
    rmdir(c->folder);
}

/* --- the client ----------------------------------------------------------- */

int case_connect(const struct http_case *c)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, c->path);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

bool case_write(int fd, const char *text)
{
    size_t bytes = strlen(text);
    return send(fd, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

size_t case_read(int fd, char *out, size_t max, const char *until, int ms)
{
    size_t bytes = 0;
    out[0] = '\0';
    while (bytes + 1 < max && !(until && strstr(out, until))) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, ms) <= 0)
            break;
        ssize_t result = recv(fd, out + bytes, max - 1 - bytes, 0);
        if (result <= 0)
            break;
        bytes += (size_t)result;
        out[bytes] = '\0';
    }
    return bytes;
}

void case_ask(const struct http_case *c, const char *request, char *reply)
{
    int fd = case_connect(c);
    reply[0] = '\0';
    if (fd < 0)
        return;
    case_write(fd, request);
    shutdown(fd, SHUT_WR);
    case_read(fd, reply, REPLY_MAX, NULL, 30000);
    close(fd);
}

bool case_is_closed(int fd, int ms)
{
    char byte[4096];
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, ms) <= 0)
            return false;
        ssize_t result = recv(fd, byte, sizeof byte, 0);
        if (result == 0 || (result < 0 && errno != EINTR))
            return true;
    }
}

int case_count(const struct http_case *c, const char *name)
{
    char reply[REPLY_MAX];
    case_ask(c, "GET /count HTTP/1.1\r\nHost: z\r\n\r\n", reply);
    const char *at = strstr(reply, name);
    return at ? atoi(at + strlen(name) + 1) : -1;
}
