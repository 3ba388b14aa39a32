/* stream.h - work that is done in order beside the caller, and events that tell
 * when. The CPU's twin of CUDA's streams and events, with the same rules, so
 * that a wait that is missing shows under a thread sanitizer.
 *
 *     stream_copy(down, host, device, bytes);  queued, returns at once
 *     stream_record(down, event);              the event is what lies before it
 *     stream_wait(up, event);                  later work of `up` waits for it
 *     event_wait(event);                       so does the calling thread
 *
 * Modes: STREAM_THREAD has a worker thread; STREAM_INLINE does its work at once
 * in the caller; STREAM_CUDA is a stream of the thread's GPU. A stream of NULL
 * is the compute stream (base/device/device.h). On the CPU that is the caller's
 * own: inline, and a wait on it is the caller's; kernels on the CPU finish when
 * they return, and an event recorded inline is done at once. On a GPU a wait on
 * NULL holds later kernels, not the caller, and event_wait holds the caller.
 *
 * Events belong to the device that was current when they were created. A stream
 * and its events may be queued on and recorded by any thread that has the same
 * device, one at a time.
 *
 * Rules: one thread (the trainer) queues on a stream. An event may be recorded
 * again, also on another stream; a wait means the last record before it, and
 * records are done in their order. An event never recorded is done, and so is
 * an event of NULL. The queue has a fixed length: queueing waits when it is
 * full, and allocates nothing. Errors: ZD_ERR_MEMORY on creation; the others
 * return what a device reports, on the CPU always ZD_OK. */
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
/* From now on the calling thread's NULL is this stream of its GPU, beside the
 * one of the others; NULL: as before. On the CPU NULL is the caller anyway. */
void stream_use(struct stream *stream);
enum zd_status event_create(struct event **event_out);
/* Waits until it is done, and for the streams that are to wait for it. */
void event_destroy(struct event *event);

/* to and from do not overlap; both stay valid until the copy is done. */
enum zd_status stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes);
/* A function of the host, in the stream's order. It must not queue work, nor
 * call the GPU, nor wait for what comes later on any stream: one thread of the
 * driver may do the calls of all streams. After a failure of the GPU it is not
 * called any more. */
typedef void stream_fn(void *ctx, int64_t arg);
enum zd_status stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);
enum zd_status stream_record(struct stream *stream, struct event *event);
enum zd_status stream_wait(struct stream *stream, struct event *event);
/* As stream_wait; on a GPU the time for which the stream stands still in it is
 * counted. */
enum zd_status stream_wait_counted(struct stream *stream, struct event *event);
/* Records of an event are numbered from 1 in the order in which they were
 * queued: the last one's, 0 before any. From any thread. */
uint64_t event_records(struct event *event);
/* As stream_wait, for that record, which may be queued later. An event of a GPU
 * knows its last record alone: there the record must be queued, and a wait that
 * comes after the next one is for that. */
enum zd_status stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record);
/* Both may be called from any thread. */
enum zd_status event_wait(struct event *event);
bool event_is_done(struct event *event);
/* Until all that is queued is done. */
enum zd_status stream_finish(struct stream *stream);

/* From the next operation on, copies and calls are spans of this lane; NULL: no
 * more of them. `spans` stays valid until stream_finish after that. */
struct spans;
void stream_set_spans(struct stream *stream, struct spans *spans, int lane);

/* Since creation: bytes copied, seconds spent on it. Call after
 * stream_finish, or accept a moment's delay. */
struct stream_counters {
    uint64_t bytes;
    double seconds;
    double waited; /* in waits that were counted and are over */
    double held;   /* a GPU's compute stream: in all its other waits */
};
struct stream_counters stream_counters(struct stream *stream);
