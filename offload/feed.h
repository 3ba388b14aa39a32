/* feed.h - a stream that may have to wait for the workers. Private to offload.
 *
 * On the CPU a stream's own thread calls functions of the host and may be held
 * by one. On a GPU a thread of the driver calls those of all streams: one that
 * waits for a worker there could wait for a function after it. So where a
 * stream waits for workers, a thread of the feed does, and queues on the stream
 * what comes after:
 *
 *     feed      hold: workers have filled it | copy | record | hold ..
 *     stream                                   copy   record
 *
 * There copies are also not held by the functions that are called after them:
 * those have a stream of their own, which waits for an event. And long copies
 * are queued as pieces, between which the copy engine takes what other streams
 * have.
 *
 *     stream    copy | event | copy | event | copy ..
 *     teller                 call           | call ..
 *
 * Calls are those of base/device/stream.h, in one order for all. A record that
 * is asked for through a feed is waited for after feed_await. One thread (the
 * trainer) feeds.
 * Errors: the first of the thread's is told by every call after it. */
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
    struct stream *teller; /* on a GPU: where functions are called; else NULL */
    struct event *passed;  /* what the teller waits for */
    bool has_thread;       /* else the stream itself is held */
    pthread_t thread;
    struct device *device; /* of who made it */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t changed;
    bool is_stopping;
    enum zd_status status;
    struct zd_error error;
    int first, count; /* of the ring; the first is being worked on */
    struct feed_operation ring[FEED_OPERATIONS];
};

/* A thread of the engine; ZD_ERR_MEMORY when the system refuses it. */
enum zd_status offload_thread_start(
        pthread_t *thread, const char *name, void *(*fn)(void *), void *ctx);
/* `has_thread`: functions that wait do so in a thread of the feed. */
enum zd_status feed_init(
        struct feed *feed, struct stream *stream, bool has_thread);
/* Completes the fed work first. Accepts all-zero. */
void feed_fini(struct feed *feed);

/* `fn` may wait for workers: what is fed later waits for its return. */
enum zd_status feed_hold(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg);
/* In the thread of a feed that has one. */
enum zd_status feed_work(
        struct feed *feed, feed_fn *fn, void *ctx, int64_t arg);
/* `fn` only tells someone that the stream has come here. */
enum zd_status feed_call(
        struct feed *feed, stream_fn *fn, void *ctx, int64_t arg);
enum zd_status feed_copy(
        struct feed *feed, void *to, const void *from, size_t bytes);
/* The token's record is on its stream. {0}: at once. */
enum zd_status feed_wait(struct feed *feed, struct token token);
enum zd_status feed_record(
        struct feed *feed, struct timeline *timeline, struct token *token_out);
/* Until the record, which was asked for through this feed, is on the stream. */
enum zd_status feed_await(struct feed *feed, struct token token);
/* Bytes that may leave in one copy: neighbors up to this are worth one, with
 * one call after them. 0: each by itself. */
size_t feed_piece(const struct feed *feed);
/* Until all that was fed is done. */
enum zd_status feed_finish(struct feed *feed);
