/* stream_cpu.c - streams of the CPU: a worker thread, or the caller itself. */
#include "base/device/device_table.h"
#include "base/must.h"
#include "base/spans.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_OPERATIONS = 256 };

enum operation_kind { COPY, CALL, RECORD, WAIT };

struct operation {
    enum operation_kind kind;
    union {
        struct {
            void *to;
            const void *from;
            size_t bytes;
        } copy;
        struct {
            stream_fn *fn;
            void *ctx;
            int64_t arg;
        } call;
        struct {
            struct cpu_event *event;
            uint64_t record;
        } event;
    };
};

/* Records are numbered; the event is done when the last one is. A wait keeps
 * the number that was the last when it was queued. */
struct cpu_event {
    struct event head;
    pthread_mutex_t lock; /* of all below; records come from several threads */
    pthread_cond_t changed;
    uint64_t recorded, done;
    int queued; /* records and waits that streams have not finished */
};

struct lane {
    struct spans *spans; /* NULL: not recorded */
    int number;
};

/* Operations first .. first + count - 1 of the ring (modulo its length) are
 * queued; the worker leaves the first one queued while it works on it. */
struct cpu_stream {
    struct stream head;
    enum stream_mode mode;
    pthread_t worker;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    bool stopping;
    int first, count;
    struct stream_counters counters;
    struct lane lane;
    struct operation ring[STREAM_OPERATIONS];
};

static void await_record(struct cpu_event *event, uint64_t record)
{
    ZD_LOCKED(&event->lock);
    while (event->done < record)
        pthread_cond_wait(&event->changed, &event->lock);
}

/* Records of one event complete in order, also on different streams: otherwise
 * a late earlier record would be reported as done. */
static void finish_record(struct cpu_event *event, uint64_t record)
{
    ZD_LOCKED(&event->lock);
    while (event->done + 1 < record)
        pthread_cond_wait(&event->changed, &event->lock);
    event->done = record;
    pthread_cond_broadcast(&event->changed);
}

/* An event outlives the operations that streams have queued with it. */
static void add_queued(struct cpu_event *event, int count)
{
    ZD_LOCKED(&event->lock);
    event->queued += count;
    pthread_cond_broadcast(&event->changed);
}

static struct lane lane_of(struct cpu_stream *stream)
{
    if (!stream)
        return (struct lane){0};
    ZD_LOCKED(&stream->lock);
    return stream->lane;
}

static void count(struct cpu_stream *stream, size_t bytes, double seconds)
{
    if (!stream)
        return;
    ZD_LOCKED(&stream->lock);
    stream->counters.bytes += bytes;
    stream->counters.seconds += seconds;
}

/* Runs without the lock, so that others can queue meanwhile, for instance the
 * offload engine's feed on an inline stream. NULL: the caller's stream. */
static void run(struct cpu_stream *stream, const struct operation *op)
{
    struct lane lane = lane_of(stream);
    double begin, end;
    switch (op->kind) {
    case COPY:
        begin = clock_seconds();
        memcpy(op->copy.to, op->copy.from, op->copy.bytes);
        end = clock_seconds();
        count(stream, op->copy.bytes, end - begin);
        spans_add(
                lane.spans, lane.number, "copy", (int64_t)op->copy.bytes, begin,
                end);
        break;
    case CALL:
        begin = spans_clock(lane.spans);
        op->call.fn(op->call.ctx, op->call.arg);
        spans_add(
                lane.spans, lane.number, "call", -1, begin,
                spans_clock(lane.spans));
        break;
    case RECORD:
        finish_record(op->event.event, op->event.record);
        add_queued(op->event.event, -1);
        break;
    case WAIT:
        await_record(op->event.event, op->event.record);
        add_queued(op->event.event, -1);
        break;
    }
}

static void *work(void *ctx)
{
    struct cpu_stream *stream = ctx;
    ZD_LOCKED(&stream->lock);
    for (;;) {
        while (stream->count == 0 && !stream->stopping)
            pthread_cond_wait(&stream->changed, &stream->lock);
        if (stream->count == 0)
            return NULL;
        const struct operation *op = &stream->ring[stream->first];
        pthread_mutex_unlock(&stream->lock);
        run(stream, op);
        pthread_mutex_lock(&stream->lock);
        stream->first = (stream->first + 1) % STREAM_OPERATIONS;
        stream->count--;
        pthread_cond_broadcast(&stream->changed);
    }
}

static void destroy(struct stream *base)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    if (stream->mode == STREAM_THREAD) {
        pthread_mutex_lock(&stream->lock);
        stream->stopping = true;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->worker, NULL);
    }
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static enum zd_status create(
        const char *name, enum stream_mode mode, struct stream **stream_out)
{
    struct cpu_stream *stream = zd_must(calloc(1, sizeof *stream));
    stream->head.table = &stream_table_cpu;
    stream->mode = mode;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (mode == STREAM_THREAD &&
        thread_start(&stream->worker, name, work, stream) != 0) {
        stream->mode = STREAM_INLINE;
        destroy(&stream->head);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread for the copies of `%s`", name);
    }
    *stream_out = &stream->head;
    return ZD_OK;
}

static enum zd_status create_event(struct event **event_out)
{
    struct cpu_event *event = zd_must(calloc(1, sizeof *event));
    event->head.table = &stream_table_cpu;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    *event_out = &event->head;
    return ZD_OK;
}

/* Waits while the queue is full. */
static void queue(struct cpu_stream *stream, const struct operation *op)
{
    ZD_LOCKED(&stream->lock);
    while (stream->count == STREAM_OPERATIONS)
        pthread_cond_wait(&stream->changed, &stream->lock);
    int place = (stream->first + stream->count) % STREAM_OPERATIONS;
    stream->ring[place] = *op;
    stream->count++;
    pthread_cond_broadcast(&stream->changed);
}

static enum zd_status queue_or_run(
        struct stream *base, const struct operation *op)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    if (stream && stream->mode == STREAM_THREAD)
        queue(stream, op);
    else
        run(stream, op);
    return ZD_OK;
}

static enum zd_status copy(
        struct stream *stream, void *to, const void *from, size_t bytes)
{
    struct operation op = {.kind = COPY, .copy = {to, from, bytes}};
    return queue_or_run(stream, &op);
}

static enum zd_status call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg)
{
    struct operation op = {.kind = CALL, .call = {fn, ctx, arg}};
    return queue_or_run(stream, &op);
}

static enum zd_status record(struct stream *stream, struct event *base)
{
    struct cpu_event *event = (struct cpu_event *)base;
    struct operation op = {.kind = RECORD, .event.event = event};
    pthread_mutex_lock(&event->lock);
    op.event.record = ++event->recorded;
    event->queued++;
    pthread_mutex_unlock(&event->lock);
    return queue_or_run(stream, &op);
}

static uint64_t count_records(struct event *base)
{
    struct cpu_event *event = (struct cpu_event *)base;
    ZD_LOCKED(&event->lock);
    return event->recorded;
}

static enum zd_status wait_record(
        struct stream *stream, struct event *base, uint64_t record)
{
    struct operation op = {
            .kind = WAIT,
            .event = {(struct cpu_event *)base, record},
    };
    add_queued(op.event.event, 1);
    return queue_or_run(stream, &op);
}

static enum zd_status wait_for(struct stream *stream, struct event *event)
{
    return wait_record(stream, event, count_records(event));
}

static enum zd_status finish(struct stream *base)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    if (!stream)
        return ZD_OK;
    ZD_LOCKED(&stream->lock);
    while (stream->count > 0)
        pthread_cond_wait(&stream->changed, &stream->lock);
    return ZD_OK;
}

static void set_spans(struct stream *base, struct spans *spans, int lane)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    ZD_LOCKED(&stream->lock);
    stream->lane = (struct lane){spans, lane};
}

static struct stream_counters get_counters(struct stream *base)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    if (!stream) /* the caller's own */
        return (struct stream_counters){0};
    ZD_LOCKED(&stream->lock);
    return stream->counters;
}

static enum zd_status wait_event(struct event *base)
{
    await_record((struct cpu_event *)base, count_records(base));
    return ZD_OK;
}

static void destroy_event(struct event *base)
{
    struct cpu_event *event = (struct cpu_event *)base;
    pthread_mutex_lock(&event->lock);
    while (event->queued > 0)
        pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static bool is_done(struct event *base)
{
    struct cpu_event *event = (struct cpu_event *)base;
    ZD_LOCKED(&event->lock);
    return event->done == event->recorded;
}

const struct stream_table stream_table_cpu = {
        .create = create,
        .destroy = destroy,
        .copy = copy,
        .call = call,
        .record = record,
        .wait = wait_for,
        .wait_counted = wait_for,
        .wait_record = wait_record,
        .event_records = count_records,
        .finish = finish,
        .set_spans = set_spans,
        .counters = get_counters,
        .event_create = create_event,
        .event_destroy = destroy_event,
        .event_wait = wait_event,
        .event_is_done = is_done,
};
