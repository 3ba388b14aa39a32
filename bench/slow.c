/* slow.c - zerod with a link and a wire of a stated speed, on CPU ranks: what a
 * schedule hides shows as on a machine whose copies and collectives take their
 * time beside the computing. The program is linked with --wrap of the calls
 * that begin and end them (meson.build); each calls the real one and then
 * sleeps until the time has passed.
 *
 *   ZEROD_SLOW_LINK   bytes a second of a copy between host and device, each
 *                     way by itself
 *   ZEROD_SLOW_WIRE   bytes a second that a rank sends in gathers and
 *                     reductions, which follow each other
 *
 * Not set: as fast as memory. `zerod bench calibrate` of this program measures
 * both, so that its plans are for them. */
#include "base/clock.h"
#include "base/device/stream.h"
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum { STREAMS = 64 };

/* Seconds that a byte takes. */
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

/* --- the link ------------------------------------------------------------- */

struct link {
    struct stream *stream;
    pthread_mutex_t lock; /* a copy's three operations follow each other */
    double began;         /* the copy that is under way */
    double free_at;       /* the one before it should have ended */
};
/* Seconds by which the end of a sleep may come late: the copy after it has
 * begun meanwhile. */
static const double late = 5e-3;
static struct link links[STREAMS];
static int link_count;
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

static struct link *link_of(struct stream *stream)
{
    int i = 0;
    pthread_mutex_lock(&links_lock);
    while (i < link_count && links[i].stream != stream)
        i++;
    assert(i < STREAMS);
    if (i == link_count) {
        links[i].stream = stream;
        pthread_mutex_init(&links[i].lock, NULL);
        link_count++;
    }
    pthread_mutex_unlock(&links_lock);
    return &links[i];
}

static void begin_copy(void *ctx, int64_t arg)
{
    struct link *link = ctx;
    link->began = fmax(link->free_at, clock_seconds() - late);
}

static void end_copy(void *ctx, int64_t nanoseconds)
{
    struct link *link = ctx;
    link->free_at = link->began + 1e-9 * (double)nanoseconds;
    sleep_until(link->free_at);
}

enum zd_status __real_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
enum zd_status __wrap_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
enum zd_status __wrap_stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes)
{
    double seconds = (double)bytes * per_byte("ZEROD_SLOW_LINK");
    if (seconds == 0)
        return __real_stream_copy(stream, to, from, bytes);
    if (!stream) { /* the caller's own copy */
        double began = clock_seconds();
        enum zd_status status = __real_stream_copy(stream, to, from, bytes);
        sleep_until(began + seconds);
        return status;
    }
    struct link *link = link_of(stream);
    pthread_mutex_lock(&link->lock);
    enum zd_status status = stream_call(stream, begin_copy, link, 0);
    if (status == ZD_OK)
        status = __real_stream_copy(stream, to, from, bytes);
    if (status == ZD_OK)
        status = stream_call(stream, end_copy, link, (int64_t)(1e9 * seconds));
    pthread_mutex_unlock(&link->lock);
    return status;
}

/* --- the wire ------------------------------------------------------------- */

/* Of a rank, which is a thread: when its wire is free, and when each operation
 * that it has begun is over. */
static _Thread_local struct {
    double free_at, waited;
    struct {
        const struct comm_op *op;
        double end;
    } under_way[COMM_OPS_MAX];
} wire;

/* `count` elements of each of the other ranks pass. */
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

enum zd_status __real_comm_all_gather_begin(
        struct comm *comm, const void *shard, void *full, size_t count,
        enum dtype type, struct comm_op **op_out);
enum zd_status __wrap_comm_all_gather_begin(
        struct comm *comm, const void *shard, void *full, size_t count,
        enum dtype type, struct comm_op **op_out);
enum zd_status __wrap_comm_all_gather_begin(
        struct comm *comm, const void *shard, void *full, size_t count,
        enum dtype type, struct comm_op **op_out)
{
    ZD_TRY(__real_comm_all_gather_begin(
            comm, shard, full, count, type, op_out));
    send(comm, count, type, *op_out);
    return ZD_OK;
}

enum zd_status __real_comm_reduce_scatter_begin(
        struct comm *comm, const void *full, void *shard, size_t count,
        enum dtype type, bool accumulate, struct comm_op **op_out);
enum zd_status __wrap_comm_reduce_scatter_begin(
        struct comm *comm, const void *full, void *shard, size_t count,
        enum dtype type, bool accumulate, struct comm_op **op_out);
enum zd_status __wrap_comm_reduce_scatter_begin(
        struct comm *comm, const void *full, void *shard, size_t count,
        enum dtype type, bool accumulate, struct comm_op **op_out)
{
    ZD_TRY(__real_comm_reduce_scatter_begin(
            comm, full, shard, count, type, accumulate, op_out));
    send(comm, count, type, *op_out);
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
