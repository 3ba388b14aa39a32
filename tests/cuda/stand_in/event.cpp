/* event.cpp - events: what was queued on a stream when they were recorded. */
#include "tests/cuda/stand_in/stream.h"

#include <ctime>
#include <unordered_set>

namespace standin
{
namespace
{
struct event {
    std::atomic<uint32_t> alive;
    int device;
    bool timed;
    std::mutex mutex;
    struct stream *stream; /* of the last record */
    uint64_t at;
    unsigned records;
    std::atomic<double> when;
    char keys[8]; /* of the last records */
};

struct all {
    std::mutex mutex;
    std::unordered_set<struct event *> events;
};

std::atomic<uint64_t> passed_ms; /* beside the clock */

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6 +
           (double)passed_ms.load(std::memory_order_relaxed);
}

struct event *event_of(cudaEvent_t handle)
{
    locked<struct all> all;
    auto at = all->events.find((struct event *)handle);
    return alive(at == all->events.end() ? nullptr : *at, handle, "event");
}

/* What a call with an event and a stream begins with. */
cudaError_t find(
        cudaEvent_t event, cudaStream_t stream, struct event **event_out,
        struct stream **stream_out)
{
    TRY(begin());
    *event_out = event_of(event);
    *stream_out = stream_of(stream);
    return *event_out && *stream_out ? cudaSuccess
                                     : cudaErrorInvalidResourceHandle;
}

/* The last record of an event. */
struct record {
    struct stream *stream;
    uint64_t at;
    char *key;
};

struct record last_record(struct event *e)
{
    std::lock_guard<std::mutex> lock(e->mutex);
    return {e->stream, e->at, &e->keys[e->records % sizeof e->keys]};
}

cudaError_t query_event(cudaEvent_t handle, bool waits)
{
    TRY(begin());
    struct event *e = event_of(handle);
    if (!e)
        return cudaErrorInvalidResourceHandle;
    struct record r = last_record(e);
    if (!r.stream)
        return cudaSuccess;
    if (waits) {
        counters().host_waits++;
        wait_until(r.stream, r.at);
    } else if (!is_done(r.stream, r.at)) {
        return sticky(e->device) ? sticky(e->device) : cudaErrorNotReady;
    }
    tell_acquire(r.key);
    return sticky(e->device);
}
} // namespace
} // namespace standin

using namespace standin;

void zd_standin_pass_ms(unsigned ms)
{
    passed_ms.fetch_add(ms, std::memory_order_relaxed);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    TRY(begin());
    struct event *e = new struct event();
    e->device = device();
    e->timed = !(flags & cudaEventDisableTiming);
    e->alive = ALIVE;
    locked<struct all> all;
    all->events.insert(e);
    *out = (cudaEvent_t)e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct event *e = event_of(event);
    if (!e)
        return keep(cudaErrorInvalidResourceHandle);
    e->alive = 0;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream)
{
    struct event *e;
    struct stream *s;
    TRY(find(handle, stream, &e, &s));
    if (e->device != stream_device(s)) {
        report("an event of device %d is recorded on a stream of device %d",
               e->device, stream_device(s));
        return keep(cudaErrorInvalidResourceHandle);
    }
    std::lock_guard<std::mutex> lock(e->mutex);
    char *key = &e->keys[++e->records % sizeof e->keys];
    e->stream = s;
    e->at = enqueue(s, [=] {
        e->when.store(now_ms(), std::memory_order_relaxed);
        tell_release(key);
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return keep(query_event(event, true));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = query_event(event, false);
    return error == cudaErrorNotReady ? error : keep(error);
}

cudaError_t cudaEventElapsedTime(
        float *ms_out, cudaEvent_t from, cudaEvent_t to)
{
    struct event *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->timed || !b->timed)
        return keep(cudaErrorInvalidResourceHandle);
    struct record ra = last_record(a), rb = last_record(b);
    if (!ra.stream || !rb.stream)
        return keep(cudaErrorInvalidResourceHandle);
    if (!is_done(ra.stream, ra.at) || !is_done(rb.stream, rb.at))
        return cudaErrorNotReady;
    *ms_out = (float)(b->when - a->when);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(
        cudaStream_t stream, cudaEvent_t handle, unsigned flags)
{
    struct event *e;
    struct stream *s;
    TRY(find(handle, stream, &e, &s));
    struct record r = last_record(e);
    if (!r.stream || r.stream == s)
        return cudaSuccess;
    enqueue(s, [=] {
        wait_until(r.stream, r.at);
        tell_acquire(r.key);
    });
    return cudaSuccess;
}
