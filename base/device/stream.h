/* stream.h - work that is done in order, asynchronously to the caller, and
 * events that say when it is done. The CPU has the same streams and events as
 * CUDA, with the same rules, so that a thread sanitizer finds a missing wait.
 *
 *     stream_copy(down, host, device, bytes);  queued, returns at once
 *     stream_record(down, event);              the event is what lies before it
 *     stream_wait(up, event);                  later work of `up` waits for it
 *     event_wait(event);                       so does the calling thread
 *
 * Modes: STREAM_THREAD has a worker thread; STREAM_INLINE works at once in the
 * caller; STREAM_CUDA is a stream of the thread's GPU. A NULL stream is the
 * compute stream (base/device/device.h). On the CPU it is inline: a wait on it
 * blocks the caller, kernels have finished when they return, and an event
 * recorded on it is done at once. On a GPU a wait on NULL delays later kernels,
 * not the caller; event_wait blocks the caller.
 *
 * Events belong to the device that was current when they were created. A stream
 * and its events may be queued on and recorded by any thread that has the same
 * device, one at a time.
 *
 * Rules: one thread (the trainer) queues on a stream. An event may be recorded
 * again, also on another stream; a wait is for the last record before it, and
 * records complete in their order. An event that was never recorded is done,
 * and so is NULL. The queue has a fixed length: queuing waits when it is full,
 * and allocates nothing. Errors: ZD_ERR_MEMORY on creation; the other calls
 * return what the device reports, on the CPU always ZD_OK. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;
struct event;

enum stream_mode { STREAM_INLINE, STREAM_THREAD, STREAM_CUDA };

enum zd_status stream_create(
        const char *name, enum stream_mode mode, struct stream **stream_out);
/* Finishes what is queued first. NULL is accepted. */
void stream_destroy(struct stream *stream);
/* From now on a NULL stream means this one in the calling thread; NULL restores
 * the GPU's compute stream. No effect on the CPU, where a NULL stream is the
 * caller. */
void stream_use(struct stream *stream);
enum zd_status event_create(struct event **event_out);
/* First waits until the event is done and queued waits for it are over. */
void event_destroy(struct event *event);

/* to and from do not overlap; both stay valid until the copy is done. */
enum zd_status stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
/* A host function, called in the stream's order. It must not queue work, call
 * the GPU, or wait for later work of any stream: one thread of the driver may
 * make the calls of all streams. It is not called after the GPU has failed. */
typedef void stream_fn(void *ctx, int64_t arg);
enum zd_status stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);
enum zd_status stream_record(struct stream *stream, struct event *event);
enum zd_status stream_wait(struct stream *stream, struct event *event);
/* As stream_wait; on a GPU the time that the stream is held is counted. */
enum zd_status stream_wait_counted(struct stream *stream, struct event *event);
/* The number of the event's last record; 0: none. Records are numbered from 1
 * as they are queued. From any thread. */
uint64_t event_records(struct event *event);
/* As stream_wait, for this record, which may be queued later. A GPU's event
 * knows only its last record: there the record must be queued already, and a
 * wait that comes after a later record waits for that one. */
enum zd_status stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record);
/* Both may be called from any thread. */
enum zd_status event_wait(struct event *event);
bool event_is_done(struct event *event);
/* Waits until all that is queued is done. */
enum zd_status stream_finish(struct stream *stream);

/* From the next operation on, copies and calls are recorded as spans of this
 * lane; NULL ends that. `spans` must stay valid until the stream_finish that
 * follows. */
struct spans;
void stream_set_spans(struct stream *stream, struct spans *spans, int lane);

/* Since creation: bytes copied, seconds spent on it. Call after
 * stream_finish, or accept a moment's delay. */
struct stream_counters {
    uint64_t bytes;
    double seconds;
    double waited; /* in finished waits of stream_wait_counted */
    double held;   /* a GPU's compute stream: in all its other waits */
};
struct stream_counters stream_counters(struct stream *stream);
