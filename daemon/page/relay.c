/* relay.c - see relay.h. */
#include "daemon/page/relay.h"

#include "base/must.h"
#include "daemon/http/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 32768, QUEUED_MAX = 8 * PIECE };

/* From the question to the end of its answer. */
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

void relay_ask(
        const struct relay *relay, const struct http_request *request,
        const char *target, struct http_reply *reply)
{
    struct exchange *exchange = zd_array(1, sizeof *exchange);
    uid_t stranger;
    int fd = http_ask(
            relay->socket,
            &(struct http_question){
                    .method = request->method,
                    .target = target,
                    .body = request->body,
                    .body_bytes = request->body_bytes,
                    .last_event_id = request->last_event_id},
            &stranger);
    if (fd < 0 || uv_poll_init(relay->loop, &exchange->poll, fd)) {
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
