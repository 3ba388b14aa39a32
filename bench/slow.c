/* slow.c - zerod on CPU ranks with a simulated link and wire of given speed, to
 * measure how well a schedule overlaps copies and collectives with compute. The
 * program is linked with --wrap for the calls that begin and end them
 * (meson.build); each calls the real one and then sleeps until the simulated
 * time has passed.
 *
 *   ZEROD_SLOW_LINK   bytes per second of copies between host and device, in
 *                     each direction: streams of a process whose names end in
 *                     "up" share one, and so do the others
 *   ZEROD_SLOW_WIRE   bytes per second that a rank sends in gathers and
 *                     reductions, one after the other
 *
 * Unset: as fast as memory. `zerod bench calibrate` of this program measures
 * both, so that its plans use them. */
#include "base/clock.h"
#include "base/device/stream.h"
#include "base/must.h"
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { STREAMS = 64 };

/* Seconds per byte. */
static double per_byte(const char *name)
{
    const char *text = getenv(name);
    double speed = text ? strtod(text, NULL) : 0;
    return speed > 0 ? 1 / speed : 0;
}

static void sleep_until(double when)
{
    double left;
    prctl(PR_SET_TIMERSLACK, 1);
    while ((left = when - clock_seconds()) > 0) {
        struct timespec time = {
                .tv_sec = (time_t)left,
                .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&time, NULL);
    }
}

/* --- the link ------------------------------------------------------------- *
 *
 * What ends late because the machine does not wake its thread is no time of the
 * link: a copy begins when the one before should have ended, or when it was
 * queued, or when what the stream waited for before it came. */

static double free_at[2]; /* per direction: the simulated end of the last
                             copy */
struct link {
    struct stream *stream;
    bool goes_up;
    double ready; /* end of the last wait that blocked the stream */
};
static struct link links[STREAMS];
static int link_count;
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

/* An operation of a stream: one of three kinds. */
struct work {
    struct link *link;
    double queued, seconds; /* copy */
    void *to;
    const void *from;
    size_t bytes;
    struct event *event; /* wait */
    uint64_t record;
    stream_fn *fn; /* call */
    void *ctx;
    int64_t arg;
};

static struct link *link_of(struct stream *stream)
{
    int i = 0;
    pthread_mutex_lock(&links_lock);
    while (i < link_count && links[i].stream != stream)
        i++;
    assert(i < STREAMS);
    links[i].stream = stream;
    link_count += i == link_count;
    pthread_mutex_unlock(&links_lock);
    return &links[i];
}

enum zd_status __real_stream_create(
        const char *name, enum stream_mode mode, struct stream **stream_out);
enum zd_status __wrap_stream_create(
        const char *name, enum stream_mode mode, struct stream **stream_out);
enum zd_status __wrap_stream_create(
        const char *name, enum stream_mode mode, struct stream **stream_out)
{
    size_t length = strlen(name);
    ZD_TRY(__real_stream_create(name, mode, stream_out));
    link_of(*stream_out)->goes_up =
            length >= 2 && strcmp(name + length - 2, "up") == 0;
    return ZD_OK;
}

/* Reserves the link from when the copy may begin; returns when it ends. */
static double take_link(const struct work *work)
{
    pthread_mutex_lock(&links_lock);
    double *end = &free_at[work->link->goes_up];
    *end = fmax(fmax(*end, work->link->ready), work->queued) + work->seconds;
    double ends = *end;
    pthread_mutex_unlock(&links_lock);
    return ends;
}

enum zd_status __real_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
enum zd_status __wrap_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
enum zd_status __real_stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record);
enum zd_status __wrap_stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record);
enum zd_status __real_stream_wait(struct stream *stream, struct event *event);
enum zd_status __wrap_stream_wait(struct stream *stream, struct event *event);
enum zd_status __real_stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);
enum zd_status __wrap_stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);

/* Runs on the stream's thread; ignores waits and calls that block it for less
 * than `held`. */
static void run(void *ctx, int64_t unused)
{
    static const double held = 1e-3;
    struct work *work = ctx;
    struct link *link = work->link;
    double began = clock_seconds();
    if (work->bytes) {
        memcpy(work->to, work->from, work->bytes);
        sleep_until(take_link(work));
    } else if (work->event) {
        __real_stream_wait_record(NULL, work->event, work->record);
    } else {
        work->fn(work->ctx, work->arg);
    }
    double now = clock_seconds();
    if (!work->bytes && now - began > held)
        link->ready = now;
    free(work);
}

static enum zd_status queue(struct stream *stream, struct work what)
{
    struct work *work = zd_must(malloc(sizeof *work));
    *work = what;
    work->link = link_of(stream);
    work->queued = clock_seconds();
    return __real_stream_call(stream, run, work, 0);
}

static bool is_slow(const struct stream *stream)
{
    return stream && per_byte("ZEROD_SLOW_LINK") > 0;
}

enum zd_status __wrap_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes)
{
    double seconds = (double)bytes * per_byte("ZEROD_SLOW_LINK");
    if (is_slow(stream) && bytes)
        return queue(
                stream, (struct work){
                                .to = to,
                                .from = from,
                                .bytes = bytes,
                                .seconds = seconds});
    double began = clock_seconds(); /* the caller's own copy */
    enum zd_status status = __real_stream_copy(stream, to, from, bytes);
    sleep_until(began + seconds);
    return status;
}

enum zd_status __wrap_stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record)
{
    return is_slow(stream)
                   ? queue(stream,
                           (struct work){.event = event, .record = record})
                   : __real_stream_wait_record(stream, event, record);
}

enum zd_status __wrap_stream_wait(struct stream *stream, struct event *event)
{
    return is_slow(stream) && event
                   ? __wrap_stream_wait_record(
                             stream, event, event_records(event))
                   : __real_stream_wait(stream, event);
}

enum zd_status __wrap_stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg)
{
    return is_slow(stream)
                   ? queue(stream,
                           (struct work){.fn = fn, .ctx = ctx, .arg = arg})
                   : __real_stream_call(stream, fn, ctx, arg);
}

/* --- the wire ------------------------------------------------------------- */

/* Per rank, which is a thread: when its wire is free, and when each pending
 * operation ends. */
static _Thread_local struct {
    double free_at, waited;
    struct {
        const struct comm_op *op;
        double end;
    } under_way[COMM_OPS_MAX];
} wire;

/* Sends `count` elements for each of the other ranks. */
static void send(
        const struct comm *comm, size_t count, enum dtype type,
        const struct comm_op *op)
{
    double others = comm_size(comm) - 1, now = clock_seconds();
    double bytes = others * (double)(count * dtype_bytes(type));
    int i = 0;
    if (!op)
        return;
    while (i < COMM_OPS_MAX && wire.under_way[i].op)
        i++;
    assert(i < COMM_OPS_MAX);
    wire.free_at = (wire.free_at > now ? wire.free_at : now) +
                   bytes * per_byte("ZEROD_SLOW_WIRE");
    wire.under_way[i].op = op;
    wire.under_way[i].end = wire.free_at;
}

enum zd_status __real_comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out);
enum zd_status __wrap_comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out);
enum zd_status __wrap_comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out)
{
    ZD_TRY(__real_comm_begin(comm, request, op_out));
    send(comm, request->count, request->type, *op_out);
    return ZD_OK;
}

enum zd_status __real_comm_wait(struct comm *comm, struct comm_op *op);
enum zd_status __wrap_comm_wait(struct comm *comm, struct comm_op *op);
enum zd_status __wrap_comm_wait(struct comm *comm, struct comm_op *op)
{
    double end = 0;
    for (int i = 0; op && i < COMM_OPS_MAX; i++)
        if (wire.under_way[i].op == op) {
            end = wire.under_way[i].end;
            wire.under_way[i].op = NULL;
        }
    enum zd_status status = __real_comm_wait(comm, op);
    double began = clock_seconds();
    sleep_until(end);
    wire.waited += clock_seconds() - began;
    return status;
}

double __real_comm_waited(const struct comm *comm);
double __wrap_comm_waited(const struct comm *comm);
double __wrap_comm_waited(const struct comm *comm)
{
    return __real_comm_waited(comm) + wire.waited;
}
