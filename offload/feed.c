#include "offload/feed.h"

#include "base/threads.h"

#include <assert.h>
#include <string.h>

static enum zd_status copy_pieces(
        const struct feed *feed, const struct feed_operation *op)
{
    size_t piece = feed->teller ? FEED_PIECE : op->bytes;
    for (size_t at = 0; at < op->bytes; at += piece) {
        size_t left = op->bytes - at;
        ZD_TRY(stream_copy(
                feed->stream, (char *)op->to + at, (const char *)op->from + at,
                left < piece ? left : piece));
    }
    return ZD_OK;
}

static enum zd_status call(
        const struct feed *feed, const struct feed_operation *op)
{
    if (!feed->teller)
        return stream_call(feed->stream, op->fn, op->ctx, op->arg);
    ZD_TRY(stream_record(feed->stream, feed->passed));
    ZD_TRY(stream_wait(feed->teller, feed->passed));
    return stream_call(feed->teller, op->fn, op->ctx, op->arg);
}

/* On the stream, in the thread that feeds it. */
static enum zd_status issue(
        const struct feed *feed, const struct feed_operation *op)
{
    switch (op->kind) {
    case FEED_HOLD:
        if (!feed->has_thread)
            return stream_call(feed->stream, op->fn, op->ctx, op->arg);
        op->fn(op->ctx, op->arg);
        return ZD_OK;
    case FEED_WORK:
        return op->work(op->ctx, op->arg);
    case FEED_COPY:
        return copy_pieces(feed, op);
    case FEED_CALL:
        return call(feed, op);
    case FEED_WAIT:
        return token_wait(feed->stream, op->token);
    case FEED_RECORD:
        return stream_record(feed->stream, op->token.of->event);
    }
    return ZD_OK;
}

/* After a failure nothing is issued, but the ring is emptied so that nothing
 * waits for room. */
static void *work(void *ctx)
{
    struct feed *feed = ctx;
    device_use(feed->device);
    ZD_LOCKED(&feed->lock);
    for (;;) {
        while (!feed->count && !feed->is_stopping)
            pthread_cond_wait(&feed->changed, &feed->lock);
        if (!feed->count)
            return NULL;
        enum zd_status status = feed->status;
        pthread_mutex_unlock(&feed->lock);
        ZD_THEN(status, issue(feed, &feed->ring[feed->first]));
        pthread_mutex_lock(&feed->lock);
        if (status != ZD_OK && feed->status == ZD_OK) {
            feed->status = status;
            feed->error = *zd_error_get();
        }
        feed->first = (feed->first + 1) % FEED_OPERATIONS;
        feed->count--;
        pthread_cond_broadcast(&feed->changed);
    }
}

enum zd_status offload_thread_start(
        pthread_t *thread, const char *name, void *(*fn)(void *), void *ctx)
{
    if (thread_start(thread, name, fn, ctx) != 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread for the offload engine (%s)",
                name);
    return ZD_OK;
}

enum zd_status feed_init(
        struct feed *feed, struct stream *stream, bool has_thread)
{
    memset(feed, 0, sizeof *feed);
    feed->stream = stream;
    feed->device = device_current();
    if (device_backend() == DEVICE_CUDA) {
        ZD_TRY(event_create(&feed->passed));
        ZD_TRY(stream_create("offload-told", STREAM_CUDA, &feed->teller));
    }
    if (!has_thread)
        return ZD_OK;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, NULL);
    enum zd_status status =
            offload_thread_start(&feed->thread, "offload-feed", work, feed);
    feed->has_thread = status == ZD_OK;
    return status;
}

static void end_thread(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->is_stopping = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
    pthread_join(feed->thread, NULL);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
    feed->has_thread = false;
}

void feed_fini(struct feed *feed)
{
    if (feed->has_thread)
        end_thread(feed);
    stream_destroy(feed->teller);
    event_destroy(feed->passed);
    feed->teller = NULL;
    feed->passed = NULL;
}

/* Under the lock: returns the thread's failure, with its record in the
 * caller. */
static enum zd_status failure(const struct feed *feed)
{
    if (feed->status != ZD_OK)
        zd_error_set(&feed->error);
    return feed->status;
}

/* Waits while the ring is full. */
static enum zd_status do_or_push(
        struct feed *feed, const struct feed_operation *op)
{
    if (!feed->has_thread)
        return issue(feed, op);
    ZD_LOCKED(&feed->lock);
    while (feed->count == FEED_OPERATIONS)
        pthread_cond_wait(&feed->changed, &feed->lock);
    feed->ring[(feed->first + feed->count++) % FEED_OPERATIONS] = *op;
    pthread_cond_broadcast(&feed->changed);
    return failure(feed);
}

enum zd_status feed_hold(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg)
{
    struct feed_operation op = {
            .kind = FEED_HOLD, .fn = fn, .ctx = ctx, .arg = arg};
    return do_or_push(feed, &op);
}

enum zd_status feed_work(struct feed *feed, feed_fn *fn, void *ctx, int64_t arg)
{
    struct feed_operation op = {
            .kind = FEED_WORK, .work = fn, .ctx = ctx, .arg = arg};
    assert(feed->has_thread);
    return do_or_push(feed, &op);
}

enum zd_status feed_call(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg)
{
    struct feed_operation op = {
            .kind = FEED_CALL, .fn = fn, .ctx = ctx, .arg = arg};
    return do_or_push(feed, &op);
}

enum zd_status feed_copy(
        struct feed *feed, void *to, const void *from, size_t bytes)
{
    struct feed_operation op = {
            .kind = FEED_COPY, .to = to, .from = from, .bytes = bytes};
    return do_or_push(feed, &op);
}

enum zd_status feed_wait(struct feed *feed, struct token token)
{
    struct feed_operation op = {.kind = FEED_WAIT, .token = token};
    return token.number ? do_or_push(feed, &op) : ZD_OK;
}

enum zd_status feed_record(
        struct feed *feed, struct timeline *timeline, struct token *token_out)
{
    struct feed_operation op = {
            .kind = FEED_RECORD, .token = timeline_next(timeline)};
    *token_out = op.token;
    return do_or_push(feed, &op);
}

/* After a failure no records are made, but the fed work still completes. */
enum zd_status feed_await(struct feed *feed, struct token token)
{
    if (!feed->has_thread || !token.number)
        return ZD_OK;
    ZD_LOCKED(&feed->lock);
    while (feed->count && event_records(token.of->event) < token.number)
        pthread_cond_wait(&feed->changed, &feed->lock);
    return failure(feed);
}

size_t feed_piece(const struct feed *feed)
{
    return feed->teller ? FEED_PIECE : 0;
}

enum zd_status feed_finish(struct feed *feed)
{
    enum zd_status status = ZD_OK;
    if (feed->has_thread) {
        ZD_LOCKED(&feed->lock);
        while (feed->count)
            pthread_cond_wait(&feed->changed, &feed->lock);
        status = failure(feed);
    }
    if (feed->teller) { /* one wait covers both streams */
        ZD_TRY(stream_record(feed->stream, feed->passed));
        ZD_TRY(stream_wait(feed->teller, feed->passed));
    }
    ZD_TRY(stream_finish(feed->teller ? feed->teller : feed->stream));
    return status;
}
