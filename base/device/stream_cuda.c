/* stream_cuda.c - streams and events of a GPU.
 *
 * Pairs of events time copies and those waits that are counted or hold kernels.
 * The pairs stay in a ring; finished ones are added up when a later call comes
 * by, so that nothing waits for them. A wait that finds the ring full is not
 * counted. Host calls have a ring too, since CUDA passes only one pointer to
 * each. Both rings are as long as the queue. */
#include "base/device/gpu_cuda.h"
#include "base/must.h"
#include "base/spans.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_TIMES = 256, STREAM_CALLS = 256 };

struct timed {
    cudaEvent_t begin, end;
    enum { TIMED_COPY, TIMED_WAIT, TIMED_HELD } what;
    size_t bytes;
    struct spans *spans; /* NULL: not recorded */
    int lane;
};

struct host_call {
    struct cuda_stream *stream;
    stream_fn *fn;
    void *ctx;
    int64_t arg;
    struct spans *spans;
    int lane;
};

struct cuda_stream {
    struct stream head;
    struct gpu *gpu;
    cudaStream_t handle;
    bool is_compute;                 /* its copies are not timed */
    pthread_mutex_t lock;            /* of all below but `called` */
    struct stream_counters counters; /* of what is done */
    struct spans *spans;
    int lane;
    cudaEvent_t origin; /* both are of the same moment */
    double origin_seconds;
    int first, count; /* of the ring: pairs that are not counted yet */
    struct timed times[STREAM_TIMES];
    uint64_t calls_queued;
    struct host_call calls[STREAM_CALLS];
    _Atomic uint64_t called; /* by the driver's thread */
};

struct cuda_event {
    struct event head;
    struct gpu *gpu;
    cudaEvent_t handle;
    _Atomic uint64_t records;
};

static _Thread_local struct stream *own; /* stream_use */

static struct cuda_stream *cuda_stream(struct stream *stream)
{
    if (!stream)
        stream = own ? own : gpu_current()->compute;
    return (struct cuda_stream *)stream;
}

static void use(struct stream *stream)
{
    own = stream;
}

cudaStream_t device_cuda_stream(struct stream *stream)
{
    return cuda_stream(stream)->handle;
}

/* --- creation ------------------------------------------------------------- */

static void destroy(struct stream *base)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    gpu_enter(stream->gpu);
    if (stream->handle) {
        cudaStreamSynchronize(stream->handle);
        cudaStreamDestroy(stream->handle);
    }
    for (int i = 0; i < STREAM_TIMES; i++) {
        if (stream->times[i].begin)
            cudaEventDestroy(stream->times[i].begin);
        if (stream->times[i].end)
            cudaEventDestroy(stream->times[i].end);
    }
    if (stream->origin)
        cudaEventDestroy(stream->origin);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* Collectives have priority over kernels that could fill the GPU. */
static enum zd_status open_stream(struct cuda_stream *stream, const char *name)
{
    int least, greatest;
    ZD_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    ZD_CUDA(cudaStreamCreateWithPriority(
            &stream->handle, cudaStreamNonBlocking,
            strncmp(name, "comm", 4) == 0 ? greatest : least));
    ZD_CUDA(cudaEventCreate(&stream->origin));
    for (int i = 0; i < STREAM_TIMES; i++) {
        unsigned flags = cudaEventBlockingSync;
        ZD_CUDA(cudaEventCreateWithFlags(&stream->times[i].begin, flags));
        ZD_CUDA(cudaEventCreateWithFlags(&stream->times[i].end, flags));
    }
    return ZD_OK;
}

static enum zd_status create(
        const char *name, enum stream_mode mode, struct stream **stream_out)
{
    struct cuda_stream *stream = zd_must(calloc(1, sizeof *stream));
    stream->head.table = &stream_table_cuda;
    stream->gpu = gpu_current();
    stream->is_compute = strcmp(name, "compute") == 0;
    pthread_mutex_init(&stream->lock, NULL);
    enum zd_status status = open_stream(stream, name);
    if (status != ZD_OK) {
        destroy(&stream->head);
        return status;
    }
    *stream_out = &stream->head;
    return ZD_OK;
}

static enum zd_status create_event(struct event **event_out)
{
    struct cuda_event *event = zd_must(calloc(1, sizeof *event));
    event->head.table = &stream_table_cuda;
    event->gpu = gpu_current();
    enum zd_status status = device_cuda_check(
            cudaEventCreateWithFlags(
                    &event->handle,
                    cudaEventDisableTiming | cudaEventBlockingSync),
            "cudaEventCreateWithFlags");
    if (status != ZD_OK) {
        free(event);
        return status;
    }
    *event_out = &event->head;
    return ZD_OK;
}

/* --- copies, waits and their times ---------------------------------------- */

static double seconds_between(cudaEvent_t begin, cudaEvent_t end)
{
    float ms = 0;
    if (cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
        cudaGetLastError();
    return 1e-3 * (double)ms;
}

static void count_first(struct cuda_stream *stream)
{
    const struct timed *timed = &stream->times[stream->first];
    double seconds = seconds_between(timed->begin, timed->end);
    stream->counters.bytes += timed->bytes;
    *(timed->what == TIMED_COPY   ? &stream->counters.seconds
      : timed->what == TIMED_WAIT ? &stream->counters.waited
                                  : &stream->counters.held) += seconds;
    if (timed->spans) {
        double begin = stream->origin_seconds +
                       seconds_between(stream->origin, timed->begin);
        spans_add(
                timed->spans, timed->lane, "copy", (int64_t)timed->bytes, begin,
                begin + seconds);
    }
    stream->first = (stream->first + 1) % STREAM_TIMES;
    stream->count--;
}

/* The caller holds the lock. Counts the pairs that are done; `makes_room`:
 * waits until the ring has room for one more. */
static cudaError_t count_times(struct cuda_stream *stream, bool makes_room)
{
    while (stream->count > 0) {
        cudaEvent_t end = stream->times[stream->first].end;
        cudaError_t error = makes_room && stream->count == STREAM_TIMES
                                    ? cudaEventSynchronize(end)
                                    : cudaEventQuery(end);
        if (error == cudaErrorNotReady) {
            cudaGetLastError();
            return cudaSuccess;
        }
        if (error != cudaSuccess)
            return error;
        count_first(stream);
    }
    return cudaSuccess;
}

static struct timed *next_timed(struct cuda_stream *stream)
{
    return &stream->times[(stream->first + stream->count) % STREAM_TIMES];
}

static cudaError_t queue_timed_copy(
        struct cuda_stream *stream, void *to, const void *from, size_t bytes)
{
    cudaError_t error = count_times(stream, true);
    struct timed *copy = next_timed(stream);
    copy->what = TIMED_COPY;
    copy->bytes = bytes;
    copy->spans = stream->spans;
    copy->lane = stream->lane;
    if (error == cudaSuccess)
        error = cudaEventRecord(copy->begin, stream->handle);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(
                to, from, bytes, cudaMemcpyDefault, stream->handle);
    if (error == cudaSuccess)
        error = cudaEventRecord(copy->end, stream->handle);
    if (error == cudaSuccess)
        stream->count++;
    return error;
}

static cudaError_t queue_timed_wait(
        struct cuda_stream *stream, cudaEvent_t event, bool is_held)
{
    cudaError_t error = count_times(stream, false);
    struct timed *wait = next_timed(stream);
    if (error == cudaSuccess && stream->count == STREAM_TIMES)
        return cudaStreamWaitEvent(stream->handle, event, 0);
    wait->what = is_held ? TIMED_HELD : TIMED_WAIT;
    wait->bytes = 0;
    wait->spans = NULL;
    if (error == cudaSuccess)
        error = cudaEventRecord(wait->begin, stream->handle);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(stream->handle, event, 0);
    if (error == cudaSuccess)
        error = cudaEventRecord(wait->end, stream->handle);
    if (error == cudaSuccess)
        stream->count++;
    return error;
}

static enum zd_status wait_timed(
        struct cuda_stream *stream, struct event *event, bool is_held)
{
    gpu_enter(stream->gpu);
    ZD_LOCKED(&stream->lock);
    cudaError_t error = queue_timed_wait(
            stream, ((struct cuda_event *)event)->handle, is_held);
    return device_cuda_check(error, "cudaStreamWaitEvent");
}

static enum zd_status wait_counted(struct stream *base, struct event *event)
{
    return wait_timed(cuda_stream(base), event, false);
}

static enum zd_status copy(
        struct stream *base, void *to, const void *from, size_t bytes)
{
    struct cuda_stream *stream = cuda_stream(base);
    cudaError_t error;
    gpu_enter(stream->gpu);
    if (stream->is_compute) {
        error = cudaMemcpyAsync(
                to, from, bytes, cudaMemcpyDefault, stream->handle);
    } else {
        pthread_mutex_lock(&stream->lock);
        error = queue_timed_copy(stream, to, from, bytes);
        pthread_mutex_unlock(&stream->lock);
    }
    return device_cuda_check(error, "cudaMemcpyAsync");
}

static struct stream_counters get_counters(struct stream *base)
{
    struct cuda_stream *stream = cuda_stream(base);
    gpu_enter(stream->gpu);
    ZD_LOCKED(&stream->lock);
    if (count_times(stream, false) != cudaSuccess)
        cudaGetLastError(); /* the waiter reports the failure */
    return stream->counters;
}

/* Aligns the GPU's clock with the host's again, since they drift apart; this
 * drains the stream. */
static void set_spans(struct stream *base, struct spans *spans, int lane)
{
    struct cuda_stream *stream = (struct cuda_stream *)base;
    gpu_enter(stream->gpu);
    ZD_LOCKED(&stream->lock);
    if (spans && spans != stream->spans) {
        cudaEventRecord(stream->origin, stream->handle);
        cudaEventSynchronize(stream->origin);
        stream->origin_seconds = clock_seconds();
    }
    stream->spans = spans;
    stream->lane = lane;
}

/* --- calls of the host ---------------------------------------------------- */

static void CUDART_CB run_call(void *ctx)
{
    struct host_call *call = ctx;
    struct cuda_stream *stream = call->stream;
    double begin = spans_clock(call->spans);
    call->fn(call->ctx, call->arg);
    spans_add(
            call->spans, call->lane, "call", -1, begin,
            spans_clock(call->spans));
    atomic_fetch_add(&stream->called, 1);
}

static enum zd_status call(
        struct stream *base, stream_fn *fn, void *ctx, int64_t arg)
{
    struct cuda_stream *stream = cuda_stream(base);
    cudaError_t error = cudaSuccess;
    gpu_enter(stream->gpu);
    ZD_LOCKED(&stream->lock);
    if (stream->calls_queued - atomic_load(&stream->called) == STREAM_CALLS)
        error = cudaStreamSynchronize(stream->handle);
    struct host_call *call =
            &stream->calls[stream->calls_queued % STREAM_CALLS];
    *call = (struct host_call){
            .stream = stream,
            .fn = fn,
            .ctx = ctx,
            .arg = arg,
            .spans = stream->spans,
            .lane = stream->lane};
    if (error == cudaSuccess)
        error = cudaLaunchHostFunc(stream->handle, run_call, call);
    if (error == cudaSuccess)
        stream->calls_queued++;
    return device_cuda_check(error, "cudaLaunchHostFunc");
}

/* --- events --------------------------------------------------------------- */

static enum zd_status record(struct stream *base, struct event *event)
{
    struct cuda_stream *stream = cuda_stream(base);
    gpu_enter(stream->gpu);
    ZD_CUDA(cudaEventRecord(
            ((struct cuda_event *)event)->handle, stream->handle));
    atomic_fetch_add(&((struct cuda_event *)event)->records, 1);
    return ZD_OK;
}

static uint64_t count_records(struct event *event)
{
    return atomic_load(&((struct cuda_event *)event)->records);
}

static enum zd_status wait_for(struct stream *base, struct event *event)
{
    struct cuda_stream *stream = cuda_stream(base);
    if (stream->is_compute)
        return wait_timed(stream, event, true);
    gpu_enter(stream->gpu);
    ZD_CUDA(cudaStreamWaitEvent(
            stream->handle, ((struct cuda_event *)event)->handle, 0));
    return ZD_OK;
}

/* Waits for the last record, which is this one or a later one of its stream. */
static enum zd_status wait_record(
        struct stream *stream, struct event *event, uint64_t record)
{
    return wait_for(stream, event);
}

static enum zd_status wait_event(struct event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    gpu_enter(event->gpu);
    ZD_CUDA(cudaEventSynchronize(event->handle));
    return ZD_OK;
}

/* A failed event counts as done: otherwise a polling caller would never
 * stop. */
static bool is_done(struct event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    gpu_enter(event->gpu);
    cudaError_t error = cudaEventQuery(event->handle);
    if (error == cudaErrorNotReady)
        cudaGetLastError();
    return error != cudaErrorNotReady;
}

static void destroy_event(struct event *base)
{
    struct cuda_event *event = (struct cuda_event *)base;
    gpu_enter(event->gpu);
    cudaEventSynchronize(event->handle);
    cudaEventDestroy(event->handle);
    cudaGetLastError();
    free(event);
}

static enum zd_status finish(struct stream *base)
{
    struct cuda_stream *stream = cuda_stream(base);
    gpu_enter(stream->gpu);
    ZD_CUDA(cudaStreamSynchronize(stream->handle));
    ZD_LOCKED(&stream->lock);
    return device_cuda_check(count_times(stream, false), "cudaEventQuery");
}

const struct stream_table stream_table_cuda = {
        .create = create,
        .destroy = destroy,
        .use = use,
        .copy = copy,
        .call = call,
        .record = record,
        .wait = wait_for,
        .wait_counted = wait_counted,
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
