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

/* rows of `bytes` each; pitches are the distances of rows. */
struct rectangle {
    size_t rows, bytes, to_pitch, from_pitch;
};

void copy_rows(void *to, const void *from, const struct rectangle &r)
{
    char *t = static_cast<char *>(host_of(to));
    const char *f = static_cast<const char *>(host_of(from));
    if (r.rows == 1 || (r.bytes == r.to_pitch && r.bytes == r.from_pitch)) {
        memmove(t, f, r.rows * r.bytes);
        return;
    }
    for (size_t i = 0; i < r.rows; i++)
        memmove(t + i * r.to_pitch, f + i * r.from_pitch, r.bytes);
}

size_t extent(size_t rows, size_t bytes, size_t pitch)
{
    return rows ? (rows - 1) * pitch + bytes : 0;
}

cudaError_t copy(
        void *to, const void *from, const struct rectangle &r,
        enum cudaMemcpyKind kind, cudaStream_t handle, bool is_async)
{
    struct stream *stream;
    cudaError_t error = begin_on(handle, &stream);
    if (error)
        return error;
    size_t from_bytes = extent(r.rows, r.bytes, r.from_pitch);
    struct end to_end, from_end;
    size_t to_bytes = extent(r.rows, r.bytes, r.to_pitch);
    if (!r.bytes || !r.rows)
        return cudaSuccess;
    error = check_copy(
            to, from, to_bytes < from_bytes ? from_bytes : to_bytes, kind,
            &to_end, &from_end);
    if (r.to_pitch != r.from_pitch && error)
        error = check_copy(to, from, r.bytes, kind, &to_end, &from_end);
    if (error)
        return error;
    counters().copies++;
    bool pageable = to_end.kind == PAGEABLE || from_end.kind == PAGEABLE;
    bool between_hosts = to_end.kind != DEVICE && from_end.kind != DEVICE;
    counters().pageable_copies += pageable;
    if (is_async && from_end.kind == PAGEABLE && !between_hosts) {
        /* staged: the caller's memory is read before the call returns */
        void *staged = malloc(from_bytes);
        if (!staged)
            return cudaErrorMemoryAllocation;
        memcpy(staged, from, from_bytes);
        enqueue(stream, "copy", [=] {
            delay_at_random();
            if (!sticky(stream_device(stream)))
                copy_rows(to, staged, r);
            free(staged);
        });
        return cudaSuccess;
    }
    enqueue(stream, "copy", [=] {
        delay_at_random();
        if (!sticky(stream_device(stream)))
            copy_rows(to, from, r);
    });
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
    cudaError_t error = begin_on(handle, &stream);
    if (error)
        return error;
    if (!bytes)
        return cudaSuccess;
    struct end end;
    if (!check_end(to, bytes, "a memset", &end))
        return cudaErrorInvalidValue;
    if (end.kind == PAGEABLE) {
        report("a memset of %p, which is memory of the host", to);
        return cudaErrorInvalidValue;
    }
    enqueue(stream, "memset", [=] {
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
    return keep(copy(to, from, {1, bytes, bytes, bytes}, kind, nullptr, false));
}

cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
        cudaStream_t stream)
{
    return keep(copy(to, from, {1, bytes, bytes, bytes}, kind, stream, true));
}

cudaError_t cudaMemcpy2DAsync(
        void *to, size_t to_pitch, const void *from, size_t from_pitch,
        size_t width, size_t height, enum cudaMemcpyKind kind,
        cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return keep(cudaErrorInvalidPitchValue);
    return keep(
            copy(to, from, {height, width, to_pitch, from_pitch}, kind, stream,
                 true));
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
