/* copy.cpp - copies and fills, checked against the allocations that they
 * touch. */
#include "tests/cuda/stand_in/internal.h"

#include <cstdlib>
#include <cstring>

namespace standin
{
namespace
{
struct end {
    enum kind kind;
    int device;
};

bool check_end(
        const void *address, size_t bytes, const char *what, struct end *end)
{
    const char *why;
    if (find(address, bytes, &end->kind, &end->device, &why))
        return true;
    report("%s: %zu bytes at %p %s", what, bytes, address, why);
    return false;
}

cudaError_t check_copy(
        const void *to, const void *from, size_t bytes,
        enum cudaMemcpyKind kind, struct end *to_end, struct end *from_end)
{
    if (!check_end(to, bytes, "destination of a copy", to_end) ||
        !check_end(from, bytes, "source of a copy", from_end))
        return cudaErrorInvalidValue;
    bool to_device = to_end->kind == DEVICE;
    bool from_device = from_end->kind == DEVICE;
    bool fits = kind == cudaMemcpyDefault ||
                (to_device == (kind == cudaMemcpyHostToDevice ||
                               kind == cudaMemcpyDeviceToDevice) &&
                 from_device == (kind == cudaMemcpyDeviceToHost ||
                                 kind == cudaMemcpyDeviceToDevice));
    if (fits)
        return cudaSuccess;
    report("a copy of kind %d from %p to %p: that is not what these are",
           (int)kind, from, to);
    return cudaErrorInvalidMemcpyDirection;
}

cudaError_t copy(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
        cudaStream_t handle, bool is_async)
{
    struct stream *stream;
    TRY(begin_on(handle, &stream));
    struct end to_end, from_end;
    if (!bytes)
        return cudaSuccess;
    TRY(check_copy(to, from, bytes, kind, &to_end, &from_end));
    counters().copies++;
    bool pageable = to_end.kind == PAGEABLE || from_end.kind == PAGEABLE;
    bool between_hosts = to_end.kind != DEVICE && from_end.kind != DEVICE;
    counters().pageable_copies += pageable;
    bool is_staged = is_async && from_end.kind == PAGEABLE && !between_hosts;
    void *staged = nullptr;
    if (is_staged) { /* the caller's memory is read before the call returns */
        staged = malloc(bytes);
        if (!staged)
            return cudaErrorMemoryAllocation;
        from = memcpy(staged, from, bytes);
    }
    enqueue(stream, [=] {
        delay_at_random();
        if (!sticky(stream_device(stream)))
            memmove(host_of(to), host_of(from), bytes);
        free(staged);
    });
    if (is_staged)
        return cudaSuccess;
    bool on_device = to_end.kind == DEVICE && from_end.kind == DEVICE;
    if ((is_async && (pageable || between_hosts)) ||
        (!is_async && !on_device)) {
        counters().host_waits++;
        finish(stream);
        return sticky(device());
    }
    return cudaSuccess;
}

cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t handle)
{
    struct stream *stream;
    TRY(begin_on(handle, &stream));
    if (!bytes)
        return cudaSuccess;
    struct end end;
    if (!check_end(to, bytes, "a memset", &end))
        return cudaErrorInvalidValue;
    if (end.kind == PAGEABLE) {
        report("a memset of %p, which is memory of the host", to);
        return cudaErrorInvalidValue;
    }
    enqueue(stream, [=] {
        if (!sticky(stream_device(stream)))
            memset(host_of(to), value, bytes);
    });
    return cudaSuccess;
}
} // namespace
} // namespace standin

using namespace standin;

cudaError_t cudaMemcpy(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return keep(copy(to, from, bytes, kind, nullptr, false));
}

cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
        cudaStream_t stream)
{
    return keep(copy(to, from, bytes, kind, stream, true));
}

cudaError_t cudaMemcpy2DAsync(
        void *to, size_t to_pitch, const void *from, size_t from_pitch,
        size_t width, size_t height, enum cudaMemcpyKind kind,
        cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (to_pitch < width || from_pitch < width)
        return keep(cudaErrorInvalidPitchValue);
    for (size_t i = 0; i < height && error == cudaSuccess; i++)
        error = copy(
                (char *)to + i * to_pitch, (const char *)from + i * from_pitch,
                width, kind, stream, true);
    return keep(error);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return keep(fill(to, value, bytes, nullptr));
}

cudaError_t cudaMemsetAsync(
        void *to, int value, size_t bytes, cudaStream_t stream)
{
    return keep(fill(to, value, bytes, stream));
}
