/* feed.h - a stream that may have to wait for the workers. Private to offload.
 *
 * On the CPU a stream's own thread calls host functions, and one of them may
 * block. On a GPU one driver thread calls those of all streams: a function that
 * waits for a worker could wait for a function queued after it. So if a stream
 * must wait for workers, a thread of the feed waits and then queues the work
 * that follows:
 *
 *     feed      hold: workers have filled it | copy | record | hold ..
 *     stream                                   copy   record
 *
 * On a GPU, functions that are called after copies also do not delay later
 * copies: they have their own stream (teller), which waits for an event. And
 * long copies are queued in pieces, so that the copy engine can serve other
 * streams in between.
 *
 *     stream    copy | event | copy | event | copy ..
 *     teller                 call           | call ..
 *
 * The calls mirror base/device/stream.h, and are executed in order. Wait for a
 * record made through a feed only after feed_await. One thread (the trainer)
 * feeds. Errors: every call after the thread's first failure returns that. */
#pragma once

#include "base/device/device.h"
#include "base/device/lease.h"

#include <pthread.h>

enum { FEED_OPERATIONS = 1024, FEED_PIECE = 16 << 20 }; /* bytes */

enum feed_kind {
    FEED_HOLD,
    FEED_WORK,
    FEED_COPY,
    FEED_CALL,
    FEED_WAIT,
    FEED_RECORD
};
/* Queues on the feed's stream, and may wait for workers meanwhile. */
typedef enum zd_status feed_fn(void *ctx, int64_t arg);

struct feed_operation {
    enum feed_kind kind;
    stream_fn *fn; /* hold, call */
    feed_fn *work;
    void *ctx;
    int64_t arg;
    void *to; /* copy */
    const void *from;
    size_t bytes;
    struct token token; /* wait, record */
};

struct feed {
    struct stream *stream; /* borrowed; NULL: copies are made at once */
    struct stream *teller; /* stream for host functions on a GPU; else NULL */
    struct event *passed;  /* event that the teller waits for */
    bool has_thread;       /* else the stream itself waits */
    pthread_t thread;
    struct device *device; /* of the creating thread */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t changed;
    bool is_stopping;
    enum zd_status status;
    struct zd_error error;
    int first, count; /* of the ring; the first is being executed */
    struct feed_operation ring[FEED_OPERATIONS];
};

/* A thread of the engine; ZD_ERR_MEMORY when the system refuses it. */
enum zd_status offload_thread_start(
        pthread_t *thread, const char *name, void *(*fn)(void *), void *ctx);
/* `has_thread`: waits for workers are made in a thread of the feed. */
enum zd_status feed_init(
        struct feed *feed, struct stream *stream, bool has_thread);
/* Completes the fed work first. Accepts all-zero. */
void feed_fini(struct feed *feed);

/* `fn` may wait for workers; work fed later waits for its return. */
enum zd_status feed_hold(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg);
/* Calls `fn` in the feed's thread, if it has one. */
enum zd_status feed_work(
        struct feed *feed, feed_fn *fn, void *ctx, int64_t arg);
/* `fn` only signals that the stream has reached this point. */
enum zd_status feed_call(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg);
enum zd_status feed_copy(
        struct feed *feed, void *to, const void *from, size_t bytes);
/* Later work of the feed waits for the token, whose record must be queued. {0}:
 * no wait. */
enum zd_status feed_wait(struct feed *feed, struct token token);
enum zd_status feed_record(
        struct feed *feed, struct timeline *timeline, struct token *token_out);
/* Waits until a record that was requested through this feed is queued on the
 * stream. */
enum zd_status feed_await(struct feed *feed, struct token token);
/* Join neighboring copies up to this many bytes, with one call after them. 0:
 * do not join. */
size_t feed_piece(const struct feed *feed);
/* Waits until all that was fed is done. */
enum zd_status feed_finish(struct feed *feed);
