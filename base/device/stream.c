/* stream.c - dispatches by the kind of a stream or event. */
#include "base/device/device_table.h"

#include <assert.h>

static const struct stream_table *table_of(const struct stream *stream)
{
    return stream ? stream->table : device_table()->streams;
}

enum zd_status stream_create(
        const char *name, enum stream_mode mode, struct stream **stream_out)
{
    const struct stream_table *table = &stream_table_cpu;
    if (mode == STREAM_CUDA) {
        table = device_table()->streams;
        assert(table != &stream_table_cpu && "a CPU has no such stream");
    }
    return table->create(name, mode, stream_out);
}

void stream_destroy(struct stream *stream)
{
    if (stream)
        stream->table->destroy(stream);
}

void stream_use(struct stream *stream)
{
    if (device_table()->streams->use)
        device_table()->streams->use(stream);
}

enum zd_status stream_copy(
        struct stream *stream, void *to, const void *from, size_t bytes)
{
    return bytes ? table_of(stream)->copy(stream, to, from, bytes) : ZD_OK;
}

enum zd_status stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg)
{
    return table_of(stream)->call(stream, fn, ctx, arg);
}

enum zd_status stream_record(struct stream *stream, struct event *event)
{
    assert(event->table == table_of(stream));
    return table_of(stream)->record(stream, event);
}

enum zd_status stream_wait(struct stream *stream, struct event *event)
{
    if (!event)
        return ZD_OK;
    assert(event->table == table_of(stream));
    return table_of(stream)->wait(stream, event);
}

enum zd_status stream_wait_counted(struct stream *stream, struct event *event)
{
    assert(event->table == table_of(stream));
    return table_of(stream)->wait_counted(stream, event);
}

enum zd_status stream_wait_record(
        struct stream *stream, struct event *event, uint64_t record)
{
    assert(event->table == table_of(stream));
    return table_of(stream)->wait_record(stream, event, record);
}

uint64_t event_records(struct event *event)
{
    return event->table->event_records(event);
}

enum zd_status stream_finish(struct stream *stream)
{
    return table_of(stream)->finish(stream);
}

void stream_set_spans(struct stream *stream, struct spans *spans, int lane)
{
    if (stream)
        stream->table->set_spans(stream, spans, lane);
}

struct stream_counters stream_counters(struct stream *stream)
{
    return table_of(stream)->counters(stream);
}

enum zd_status event_create(struct event **event_out)
{
    return device_table()->streams->event_create(event_out);
}

void event_destroy(struct event *event)
{
    if (event)
        event->table->event_destroy(event);
}

enum zd_status event_wait(struct event *event)
{
    return event ? event->table->event_wait(event) : ZD_OK;
}

bool event_is_done(struct event *event)
{
    return event ? event->table->event_is_done(event) : true;
}
