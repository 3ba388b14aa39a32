/* http_case.h - a transport with a small handler in a thread of its own, and a
 * client that speaks bytes.
 *
 *   GET  /echo?..        {"method", "path", "body", params..}
 *   GET  /big?bytes=N    N times x
 *   GET  /stream         "hello\n", then nothing until /tell or /finish
 *   POST /tell           "more\n" to every stream; /finish: ends them
 *   GET  /later          waits for POST /finish, then {"done": true}
 *   GET  /pour           a stream that is sent 64 KiB every millisecond
 *   GET  /count          {"gone", "streams", "failed"}
 */
#ifndef ZD_TESTS_HTTP_CASE_H
#define ZD_TESTS_HTTP_CASE_H

#include "daemon/http/server.h"

#include <pthread.h>

enum { CASE_STREAMS_MAX = 512, REPLY_MAX = 1 << 16 };

struct http_case {
    char folder[64], path[96];
    struct http_server *server;
    uv_loop_t loop;
    uv_async_t stop;
    uv_timer_t pour_timer;
    pthread_t thread;
    double drain_seconds;
    int tcp_port; /* of case_start_tcp: GET /metrics alone */
    /* of the loop's thread */
    struct case_stream {
        struct http_case *owner;
        struct http_stream *stream; /* NULL: over */
        bool is_later, is_pouring;
    } streams[CASE_STREAMS_MAX];
    int stream_count, gone_count, failed_count;
};

/* A folder of its own below /tmp; the socket in it. `status_gid` -1: none. */
void case_start(struct http_case *c, int status_gid);
void case_start_tcp(struct http_case *c);
/* With less patience than docs/control.md says; 0: as there. */
void case_start_hurried(
        struct http_case *c, int status_gid, int first_request_ms, int idle_ms);
void case_stop(struct http_case *c);
/* An http_handler; ctx is the case. */
void case_handle(
        void *ctx, const struct http_request *request,
        struct http_reply *reply);

/* --- a client --- */
int case_connect(const struct http_case *c); /* -1: refused */
bool case_write(int fd, const char *text);
/* Reads until the end of the connection, `until` came, or `ms` without a byte;
 * NUL-terminated. */
size_t case_read(int fd, char *out, size_t max, const char *until, int ms);
/* One request on a connection of its own; the whole answer. */
void case_ask(const struct http_case *c, const char *request, char *reply);
/* The other side has closed: true as soon as it is seen, within `ms`. */
bool case_is_closed(int fd, int ms);
int case_count(const struct http_case *c, const char *name);

#endif
