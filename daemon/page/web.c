/* web.c - zerodctl web, and who may speak to it.
 *
 * A port on loopback is open to every user and every web page of this machine,
 * so each request is judged by what a stranger cannot have or cannot choose:
 *
 *   Host      127.0.0.1 or localhost with our port: a name that an attacker's
 *             DNS moves to 127.0.0.1 (rebinding) is not among them
 *   Origin    ours, where there is one: no other page's requests
 *   secret    256 random bits in the printed address, the folder that holds the
 *             page and all it asks for: "/SECRET/v1/status". Not a cookie: a
 *             browser sends those to every port of the host, so to any user's
 *             server. What follows it goes to the job as it was sent: nothing
 *             is decoded */
#include "daemon/page/web.h"

#include "base/must.h"
#include "daemon/http/ask.h"
#include "daemon/http/http.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SECRET_BYTES = 32,
    LOOK_MS = 1000, /* how often the job is looked for */
    MISSES_MAX = 3, /* that often not there: it is gone */
    SIGNALS = 3
};

struct web {
    uv_loop_t loop;
    struct http_server *http;
    int port;
    char secret[2 * SECRET_BYTES + 1]; /* hexadecimal */
    const char *socket;                /* of the job */
    uv_timer_t look;
    uv_signal_t signals[SIGNALS];
    int misses;
    bool is_over, was_signalled;
    char address[2 * SECRET_BYTES + 48];
};

/* --- who may speak to it --- */

static enum zd_status make_secret(char *out)
{
    unsigned char raw[SECRET_BYTES];
    ssize_t got;
    do
        got = getrandom(raw, sizeof raw, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof raw)
        return ZD_FAIL(
                ZD_ERR_DEVICE, "E1101", "the system has no random numbers: %s",
                strerror(errno));
    for (size_t i = 0; i < sizeof raw; i++)
        sprintf(out + 2 * i, "%02x", raw[i]);
    return ZD_OK;
}

/* In a time that tells nothing of where they differ. */
static bool is_secret(const char *secret, const char *text, size_t bytes)
{
    unsigned char differs = 0;
    if (bytes != strlen(secret))
        return false;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(secret[i] ^ text[i]);
    return differs == 0;
}

static bool is_host(const struct web *web, const char *text)
{
    char name[32], address[32];
    ZD_PRINT(name, "localhost:%d", web->port);
    ZD_PRINT(address, "127.0.0.1:%d", web->port);
    return strcasecmp(text, name) == 0 || strcmp(text, address) == 0;
}

static bool is_origin(const struct web *web, const char *text)
{
    static const char scheme[] = "http://";
    return strncmp(text, scheme, strlen(scheme)) == 0 &&
           is_host(web, text + strlen(scheme));
}

/* The job's path of a target: "/v1/status" of "/SECRET/v1/status"; NULL without
 * the secret. */
static const char *inside_of(const struct web *web, const char *target)
{
    size_t bytes = strcspn(target + (*target == '/'), "/?");
    return *target == '/' && target[1 + bytes] == '/' &&
                           is_secret(web->secret, target + 1, bytes)
                   ? target + 1 + bytes
                   : NULL;
}

/* --- passed on to the job --- */

enum { PIECE = 32768, QUEUED_MAX = 8 * PIECE };

/* From the question to the end of its answer, which goes to the browser in
 * pieces, as they come. */
struct exchange {
    uv_poll_t poll;
    int fd;
    struct http_stream *stream; /* to the browser; NULL: over, or it left */
    struct http_reader reader;
    bool has_begun; /* the browser has a part of the answer */
};

static void on_closed(uv_handle_t *handle)
{
    struct exchange *exchange = handle->data;
    close(exchange->fd);
    free(exchange);
}

static void end(struct exchange *exchange)
{
    exchange->stream = NULL;
    uv_close((uv_handle_t *)&exchange->poll, on_closed);
}

static void on_browser_left(void *owner)
{
    end(owner);
}

static bool pass_on(void *ctx, const char *data, size_t bytes)
{
    struct exchange *exchange = ctx;
    const struct http_reader *reader = &exchange->reader;
    if (!exchange->has_begun)
        http_set_status(exchange->stream, reader->status, reader->type);
    exchange->has_begun = true;
    return http_send(exchange->stream, data, bytes);
}

static void reply_gone(struct http_reply *reply)
{
    http_error(
            reply, 503, "E_ENDING", "zerodctl ls lists the running jobs",
            "the job no longer answers");
}

/* Nothing more comes from the job. */
static void finish(struct exchange *exchange)
{
    struct http_stream *stream = exchange->stream;
    struct http_reply reply = {0};
    bool is_whole = exchange->reader.state == HTTP_DONE;
    if (is_whole && !exchange->has_begun)
        http_set_status(stream, exchange->reader.status, exchange->reader.type);
    if (!is_whole && !exchange->has_begun) {
        reply_gone(&reply);
        http_set_status(stream, reply.status, reply.content_type);
        is_whole = http_send(stream, reply.body, reply.body_bytes);
        free(reply.body);
    }
    if (!exchange->stream)
        return; /* the browser left meanwhile */
    end(exchange);
    if (is_whole)
        http_finish(stream);
    else
        http_break_off(stream);
}

static void on_answer(uv_poll_t *poll, int status, int events)
{
    struct exchange *exchange = poll->data;
    struct http_reader *reader = &exchange->reader;
    char data[PIECE];
    ssize_t got = recv(exchange->fd, data, sizeof data, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN) && status == 0)
        return;
    if (got <= 0)
        http_reader_end(reader);
    bool goes_on = got > 0 && http_reader_take(reader, data, (size_t)got);
    if (!exchange->stream)
        return; /* the browser left */
    if (!goes_on)
        finish(exchange);
    else if (http_queued(exchange->stream) > QUEUED_MAX)
        uv_poll_stop(poll); /* until it was read */
}

static void on_drained(void *owner)
{
    struct exchange *exchange = owner;
    if (!uv_is_active((uv_handle_t *)&exchange->poll))
        uv_poll_start(&exchange->poll, UV_READABLE, on_answer);
}

/* Ask for `target`, with the request's method, body and Last-Event-ID. A job
 * that does not answer is a 503. When the browser leaves, so does the question.
 */
static void relay(
        struct web *web, const struct http_request *request, const char *target,
        struct http_reply *reply)
{
    struct exchange *exchange = zd_array(1, sizeof *exchange);
    uid_t stranger;
    int fd = http_ask(
            web->socket,
            &(struct http_question){
                    .method = request->method,
                    .target = target,
                    .body = request->body,
                    .last_event_id = request->last_event_id},
            &stranger);
    if (fd < 0 || uv_poll_init(&web->loop, &exchange->poll, fd)) {
        if (fd >= 0)
            close(fd);
        free(exchange);
        reply_gone(reply);
        return;
    }
    exchange->fd = fd;
    exchange->poll.data = exchange;
    exchange->reader.sink = pass_on;
    exchange->reader.ctx = exchange;
    exchange->stream = http_defer(reply, on_browser_left, exchange);
    http_on_drained(exchange->stream, on_drained);
    uv_poll_start(&exchange->poll, UV_READABLE, on_answer);
}

/* --- answers --- */

static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src "
         "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
         "form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {NULL}};

static void answer(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    struct web *web = ctx;
    const char *inside = inside_of(web, request->target);
    if (!request->host || !is_host(web, request->host)) {
        http_error(
                reply, 403, "E_FORBIDDEN",
                "open the page as 127.0.0.1 or localhost, with its own port",
                "the Host header names another host or port");
    } else if (request->origin && !is_origin(web, request->origin)) {
        http_error(
                reply, 403, "E_FORBIDDEN", "only the page itself may ask",
                "the request comes from another site's page");
    } else if (inside) {
        relay(web, request, inside, reply);
        reply->is_owner = true;
    } else {
        http_error(
                reply, 401, "E_UNKNOWN",
                "open the whole address that zerodctl web printed",
                "this relay has no such path");
    }
}

/* --- life --- */

static void on_signal(uv_signal_t *handle, int number)
{
    struct web *web = handle->data;
    web->is_over = web->was_signalled = true;
}

static void on_look(uv_timer_t *timer)
{
    struct web *web = timer->data;
    uid_t stranger;
    int fd = http_connect(web->socket, &stranger);
    bool is_gone = fd < 0 && (errno == ENOENT || errno == ECONNREFUSED ||
                              errno == EKEYREJECTED);
    if (fd >= 0)
        close(fd);
    web->misses = is_gone ? web->misses + 1 : 0;
    web->is_over = web->is_over || web->misses == MISSES_MAX;
}

static void start_handles(struct web *web)
{
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&web->loop, &web->signals[i]);
        uv_signal_start(&web->signals[i], on_signal, numbers[i]);
        web->signals[i].data = web;
    }
    uv_timer_init(&web->loop, &web->look);
    uv_timer_start(&web->look, on_look, LOOK_MS, LOOK_MS);
    web->look.data = web;
}

enum zd_status web_create(const char *socket, int port, struct web **web_out)
{
    struct web *web = zd_array(1, sizeof *web);
    int error = uv_loop_init(&web->loop);
    if (error) {
        free(web);
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E1103", "the relay cannot start: %s",
                uv_strerror(error));
    }
    web->socket = socket;
    start_handles(web);
    enum zd_status status = http_create(
            &web->loop,
            &(struct http_options){
                    .headers = headers, .handler = answer, .ctx = web},
            &web->http);
    ZD_THEN(status, http_listen_loopback(web->http, port, &web->port));
    ZD_THEN(status, make_secret(web->secret));
    if (status != ZD_OK) {
        web_destroy(web);
        return status;
    }
    ZD_PRINT(web->address, "http://127.0.0.1:%d/%s/", web->port, web->secret);
    *web_out = web;
    return ZD_OK;
}

const char *web_address(const struct web *web)
{
    return web->address;
}

bool web_serve(struct web *web)
{
    while (!web->is_over)
        uv_run(&web->loop, UV_RUN_ONCE);
    return web->was_signalled;
}

void web_destroy(struct web *web)
{
    http_destroy(web->http, 0);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&web->signals[i], NULL);
    uv_close((uv_handle_t *)&web->look, NULL);
    uv_run(&web->loop, UV_RUN_DEFAULT);
    uv_loop_close(&web->loop);
    free(web);
}
