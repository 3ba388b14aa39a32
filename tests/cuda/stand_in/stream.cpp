/* stream.cpp - streams as threads of the host.
 *
 * Under a thread sanitizer only what CUDA orders may look ordered, or a missing
 * wait is hidden by our own locks. So a queue is a list that its callers extend
 * and its thread follows without a lock, `done` is read and written without
 * order in the sanitizer's eyes, and order is told to it at the places where
 * CUDA gives it: from queueing to running, from a record to a wait for it, from
 * the work of a stream to a wait for the stream. */
#include "tests/cuda/stand_in/stream.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace standin
{
namespace
{
struct operation {
    std::atomic<struct operation *> next;
    std::function<void()> work;
};

/* A counter of 32 bits that others wait for. The waits have a limit, after
 * which they look again: a wake that is lost costs that much and no more. */
void futex_wait(std::atomic<uint32_t> *word, uint32_t seen)
{
    struct timespec limit = {0, 50 * 1000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
} // namespace

struct stream {
    std::atomic<uint32_t> alive;
    int device;
    bool is_default;
    struct stream *next; /* of all */
    pthread_t thread;

    std::mutex producers;
    struct operation *tail;
    uint64_t queued; /* by producers */
    std::atomic<uint32_t> queued_word, sleeps;

    struct operation *head; /* by the thread */
    std::atomic<uint64_t> done;
    std::atomic<uint32_t> done_word, waiters;
    char key; /* all that was done */
};

namespace
{
struct all {
    std::mutex mutex;
    struct stream *streams;
    std::vector<struct stream *> defaults; /* by device */
};

thread_local struct stream *working;
thread_local bool calls_host;
thread_local bool ends; /* this stream's thread */

void run_next(struct stream *s)
{
    struct operation *next;
    while (!(next = s->head->next.load(std::memory_order_acquire))) {
        uint32_t seen = s->queued_word.load(std::memory_order_relaxed);
        s->sleeps.store(1, std::memory_order_relaxed);
        __sync_synchronize();
        if (s->head->next.load(std::memory_order_relaxed))
            continue;
        futex_wait(&s->queued_word, seen);
    }
    s->sleeps.store(0, std::memory_order_relaxed);
    delete s->head;
    s->head = next;
    next->work();
    next->work = nullptr;
    tell_release(&s->key);
    s->done.store(s->done.load(std::memory_order_relaxed) + 1, RELEASE);
    s->done_word.fetch_add(1, RELEASE);
    __sync_synchronize();
    if (s->waiters.load(std::memory_order_relaxed))
        futex_wake(&s->done_word);
}

void *stream_main(void *arg)
{
    struct stream *s = static_cast<struct stream *>(arg);
    working = s;
    pthread_setname_np(pthread_self(), "gpu stream");
    while (!ends)
        run_next(s);
    return nullptr;
}

uint64_t queued(struct stream *s)
{
    std::lock_guard<std::mutex> lock(s->producers);
    return s->queued;
}

struct stream *make(int device)
{
    struct stream *s = new struct stream();
    s->device = device;
    s->head = s->tail = new struct operation();
    s->alive = ALIVE;
    {
        locked<struct all> all;
        s->next = all->streams;
        all->streams = s;
    }
    pthread_create(&s->thread, nullptr, stream_main, s);
    pthread_detach(s->thread);
    return s;
}

struct stream *default_stream(int device)
{
    {
        locked<struct all> all;
        all->defaults.resize((size_t)settings().gpus);
        if (all->defaults[(size_t)device])
            return all->defaults[(size_t)device];
    }
    struct stream *s = make(device);
    locked<struct all> all;
    s->is_default = true;
    return all->defaults[(size_t)device] = s;
}

std::vector<struct stream *> streams_of(int device)
{
    locked<struct all> all;
    std::vector<struct stream *> out;
    for (struct stream *s = all->streams; s; s = s->next)
        if (s->device == device && s->alive == ALIVE)
            out.push_back(s);
    return out;
}

} // namespace

bool is_done(struct stream *s, uint64_t at)
{
    return s->done.load(ACQUIRE) >= at;
}

void wait_until(struct stream *s, uint64_t at)
{
    s->waiters.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
        uint32_t seen = s->done_word.load(std::memory_order_relaxed);
        __sync_synchronize();
        if (is_done(s, at))
            break;
        futex_wait(&s->done_word, seen);
    }
    s->waiters.fetch_sub(1, std::memory_order_relaxed);
}

uint64_t enqueue(struct stream *s, std::function<void()> work)
{
    struct operation *op = new struct operation();
    op->work = std::move(work);
    uint64_t at;
    {
        std::lock_guard<std::mutex> lock(s->producers);
        at = ++s->queued;
        s->tail->next.store(op, std::memory_order_release);
        s->tail = op;
    }
    s->queued_word.fetch_add(1, std::memory_order_relaxed);
    __sync_synchronize();
    if (s->sleeps.load(std::memory_order_relaxed))
        futex_wake(&s->queued_word);
    return at;
}

int working_device(void)
{
    return working ? working->device : -1;
}

bool in_host_function(void)
{
    return calls_host;
}

struct stream *stream_of(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy)
        return default_stream(device());
    locked<struct all> all;
    struct stream *s = all->streams;
    while (s && (const void *)s != handle)
        s = s->next;
    return alive(s, handle, "stream");
}

cudaError_t begin_on(cudaStream_t handle, struct stream **stream_out)
{
    TRY(begin());
    *stream_out = stream_of(handle);
    return *stream_out ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

int stream_device(const struct stream *stream)
{
    return stream->device;
}

void finish(struct stream *s)
{
    wait_until(s, queued(s));
    tell_acquire(&s->key);
}

void finish_device(int device)
{
    for (struct stream *s : streams_of(device))
        finish(s);
}

} // namespace standin

using namespace standin;

/* --- streams ------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    TRY(begin());
    if (!out || flags != cudaStreamNonBlocking) {
        report("a stream that waits for the default stream");
        return keep(cudaErrorInvalidValue);
    }
    if (fails_now(FAIL_STREAM))
        return keep(cudaErrorMemoryAllocation);
    *out = (cudaStream_t)make(device());
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(
        cudaStream_t *out, unsigned flags, int priority)
{
    return cudaStreamCreateWithFlags(out, flags);
}

/* Graphs are not captured here. */
cudaError_t cudaStreamIsCapturing(
        cudaStream_t stream, cudaStreamCaptureStatus *status_out)
{
    if (!stream_of(stream))
        return keep(cudaErrorInvalidResourceHandle);
    *status_out = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
        cudaStream_t stream, cudaStreamCaptureStatus *status_out,
        unsigned long long *, cudaGraph_t *, const cudaGraphNode_t **,
        const cudaGraphEdgeData **, size_t *)
{
    return cudaStreamIsCapturing(stream, status_out);
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device_out)
{
    struct stream *s = stream_of(stream);
    if (!s)
        return keep(cudaErrorInvalidResourceHandle);
    *device_out = s->device;
    return cudaSuccess;
}

/* As in CUDA: returns at once, what is queued is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream)
        return keep(cudaErrorInvalidResourceHandle);
    struct stream *s = stream_of(stream);
    if (!s || s->is_default)
        return keep(cudaErrorInvalidResourceHandle);
    /* others may wait for all streams just now: the end is done too */
    s->alive = 0;
    enqueue(s, [] { ends = true; });
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct stream *s;
    TRY(begin_on(stream, &s));
    counters().host_waits++;
    finish(s);
    return keep(sticky(s->device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct stream *s;
    TRY(begin_on(stream, &s));
    if (!is_done(s, queued(s)))
        return cudaErrorNotReady;
    finish(s);
    return keep(sticky(s->device));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *ctx)
{
    TRY(begin());
    struct stream *s = stream_of(stream);
    if (!s || !fn)
        return keep(cudaErrorInvalidValue);
    counters().host_calls++;
    enqueue(s, [=] {
        if (sticky(s->device))
            return;
        delay_at_random();
        calls_host = true;
        fn(ctx);
        calls_host = false;
    });
    return cudaSuccess;
}

cudaError_t zd_standin_enqueue(
        cudaStream_t stream, zd_standin_fn *fn, void *ctx)
{
    struct stream *s;
    TRY(begin_on(stream, &s));
    enqueue(s, [=] {
        if (!sticky(s->device))
            fn(ctx);
    });
    return cudaSuccess;
}
