/* http_server.c - the server with a small handler, for test_http.py.
 *
 *   http_server SOCKET [own=1] [first=MS] [drain=SECONDS] [tcp=ADDRESS]
 *   http_server name=JOB              prints the path of its socket
 *
 * Prints "ready PORT" (of tcp, else 0), serves until its input ends, then
 * prints how many streams have been told that their client left.
 *
 *   GET  /echo?..        method, path, body, parameters, headers
 *   GET  /big?bytes=N    N times x
 *   GET  /stream         "hello\n", then nothing until /tell or /finish
 *   POST /tell           "more\n" to every stream; /finish: ends them
 *   GET  /later          waits for POST /finish, then {"done": true}
 *   GET  /pour           a stream that is sent 64 KiB every millisecond
 *   GET  /fill           the same while less than half a MiB waits
 *   GET  /count          gone=N streams=N failed=N */
#include "base/text_stream.h"
#include "daemon/http/server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MAX = 512 };

static struct {
    struct http_server *server;
    uv_loop_t loop;
    uv_poll_t input;
    uv_timer_t pour_timer;
    double drain_seconds;
    struct case_stream {
        struct http_stream *stream; /* NULL: over */
        bool is_later;
        size_t pours_up_to; /* bytes that wait; 0: does not pour */
    } streams[STREAMS_MAX];
    int stream_count, gone_count, failed_count;
} c;

static void on_gone(void *ctx)
{
    struct case_stream *slot = ctx;
    slot->stream = NULL;
    c.gone_count++;
}

static struct case_stream *defer(struct http_reply *reply)
{
    struct case_stream *slot = &c.streams[c.stream_count++];
    slot->stream = http_defer(reply, on_gone, slot);
    http_set_status(slot->stream, 200, "text/plain");
    return slot;
}

static void tell_all(bool is_end)
{
    ZD_EACH(slot, c.streams, c.stream_count) {
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
    ZD_EACH(slot, c.streams, c.stream_count)
        if (slot->stream && http_queued(slot->stream) < slot->pours_up_to &&
            !http_send(slot->stream, much, sizeof much))
            c.failed_count++;
}

static void echo(const struct http_request *request, FILE *out)
{
    fprintf(out, "method=%s path=%s body=%zu:%.64s", request->method,
            request->path, request->body_bytes, request->body);
    for (int i = 0; i < request->param_count; i++)
        fprintf(out, " [%s]=[%s]", request->param_names[i],
                request->param_values[i]);
    fprintf(out, " last=%s\n",
            request->last_event_id ? request->last_event_id : "-");
}

static void handle(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    const char *path = request->path;
    if (!strcmp(path, "/stream")) {
        http_send(defer(reply)->stream, "hello\n", 6);
        return;
    }
    if (!strcmp(path, "/later")) {
        defer(reply)->is_later = true;
        return;
    }
    if (!strcmp(path, "/pour") || !strcmp(path, "/fill")) {
        defer(reply)->pours_up_to =
                path[1] == 'p' ? SIZE_MAX : HTTP_QUEUE_MAX / 2;
        return;
    }
    FILE *out = text_stream_open(&reply->body, &reply->body_bytes);
    if (!strcmp(path, "/tell") || !strcmp(path, "/finish"))
        tell_all(path[1] == 'f');
    if (!strcmp(path, "/big"))
        for (long i = atol(request->param_values[0]); i > 0; i--)
            putc_unlocked('x', out);
    else if (!strcmp(path, "/count"))
        fprintf(out, "gone=%d streams=%d failed=%d\n", c.gone_count,
                c.stream_count, c.failed_count);
    else
        echo(request, out);
    fclose(out);
}

static void on_input(uv_poll_t *input, int status, int events)
{
    http_destroy(c.server, c.drain_seconds);
    uv_close((uv_handle_t *)input, NULL);
    uv_close((uv_handle_t *)&c.pour_timer, NULL);
}

static int fail(void)
{
    zd_error_print(stderr, zd_error_get());
    return zd_exit_code(zd_error_get()->status);
}

static const char *option(char **args, const char *name)
{
    size_t length = strlen(name);
    for (args++; *args; args++)
        if (!strncmp(*args, name, length) && (*args)[length] == '=')
            return *args + length + 1;
    return NULL;
}

static int tcp_port(void)
{
    struct sockaddr_in bound = {0};
    socklen_t bytes = sizeof bound;
    getsockname(c.server->doors[1].fd, (struct sockaddr *)&bound, &bytes);
    return ntohs(bound.sin_port);
}

static enum zd_status start(char **args)
{
    const char *tcp = option(args, "tcp");
    const char *first = option(args, "first"), *drain = option(args, "drain");
    struct http_options options = {.socket_path = args[1], .handler = handle};
    uv_loop_init(&c.loop);
    if (!option(args, "own"))
        ZD_TRY(http_socket_make_folder(args[1]));
    ZD_TRY(http_create(&c.loop, &options, &c.server));
    if (tcp)
        ZD_TRY(http_listen_tcp(c.server, tcp, "/metrics"));
    if (first)
        c.server->first_request_ms = atoi(first);
    c.drain_seconds = drain ? atof(drain) : 0;
    return ZD_OK;
}

int main(int count, char **args)
{
    char path[256];
    const char *name = option(args, "name");
    if (name) {
        if (http_socket_path(name, path, sizeof path) != ZD_OK)
            return fail();
        puts(path);
        return 0;
    }
    if (start(args) != ZD_OK) {
        int code = fail();
        http_destroy(c.server, 0);
        return code;
    }
    uv_poll_init(&c.loop, &c.input, 0);
    uv_poll_start(&c.input, UV_READABLE | UV_DISCONNECT, on_input);
    uv_timer_init(&c.loop, &c.pour_timer);
    uv_timer_start(&c.pour_timer, pour, 1, 1);
    printf("ready %d\n", c.server->doors[1].fd >= 0 ? tcp_port() : 0);
    fflush(stdout);
    uv_run(&c.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&c.loop))
        return 1; /* a handle was left */
    printf("gone=%d\n", c.gone_count);
    return 0;
}
