#include "daemon/sinks/tensorboard_record.h"

#include "base/must.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* --- bytes --- */

void record_bytes_fini(struct record_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct record_bytes){0};
}

static void put(struct record_bytes *out, const void *data, size_t count)
{
    out->data = zd_grow(out->data, &out->capacity, out->used + count, 1);
    if (count)
        memcpy(out->data + out->used, data, count);
    out->used += count;
}

/* --- protobuf --- */

static void put_varint(struct record_bytes *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (unsigned char)(value & 127);
        value >>= 7;
        if (value)
            bytes[count] |= 128;
        count++;
    } while (value);
    put(out, bytes, count);
}

static void put_key(struct record_bytes *out, int field, enum wire_type type)
{
    put_varint(out, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_integer(struct record_bytes *out, int field, int64_t value)
{
    put_key(out, field, WIRE_VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_double(struct record_bytes *out, int field, double value)
{
    put_key(out, field, WIRE_64);
    put(out, &value, sizeof value);
}

static void put_bytes(
        struct record_bytes *out, int field, const void *data, size_t count)
{
    put_key(out, field, WIRE_BYTES);
    put_varint(out, count);
    put(out, data, count);
}

static void put_string(struct record_bytes *out, int field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* A message within another; takes what `inner` holds. */
static void put_message(
        struct record_bytes *out, int field, struct record_bytes *inner)
{
    put_bytes(out, field, inner->data, inner->used);
    record_bytes_fini(inner);
}

/* --- summaries --- */

void record_add_scalar(
        struct record_bytes *summary, const char *tag, double value)
{
    struct record_bytes inner = {0};
    float simple = (float)value;
    put_string(&inner, 1, tag);
    put_key(&inner, 2, WIRE_32);
    put(&inner, &simple, sizeof simple);
    put_message(summary, 1, &inner);
}

void record_add_text(
        struct record_bytes *summary, const char *tag, const char *text)
{
    enum { DT_STRING = 7, DATA_CLASS_TENSOR = 2 };
    struct record_bytes value = {0}, dim = {0}, shape = {0}, tensor = {0},
                        plugin = {0}, metadata = {0};
    put_integer(&dim, 1, 1);
    put_message(&shape, 2, &dim);
    put_integer(&tensor, 1, DT_STRING);
    put_message(&tensor, 2, &shape);
    put_string(&tensor, 8, text);
    put_string(&plugin, 1, "text");
    put_message(&metadata, 1, &plugin);
    put_integer(&metadata, 4, DATA_CLASS_TENSOR);
    put_string(&value, 1, tag);
    put_message(&value, 8, &tensor);
    put_message(&value, 9, &metadata);
    put_message(summary, 1, &value);
}

/* --- records --- */

uint32_t record_crc(const void *data, size_t bytes)
{
    /* a record is far below INT_MAX bytes; the library does not write */
    uint32_t crc = ~crc32_iscsi((unsigned char *)data, (int)bytes, ~0u);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Takes what `event` holds. */
static void put_record(struct record_bytes *out, struct record_bytes *event)
{
    uint64_t count = event->used;
    uint32_t crc = record_crc(&count, sizeof count);
    put(out, &count, sizeof count);
    put(out, &crc, sizeof crc);
    put(out, event->data, event->used);
    crc = event->used ? record_crc(event->data, event->used) : 0;
    put(out, &crc, sizeof crc);
    record_bytes_fini(event);
}

void record_add_version(struct record_bytes *out, double wall_time)
{
    struct record_bytes event = {0};
    put_double(&event, 1, wall_time);
    put_string(&event, 3, "brain.Event:2");
    put_record(out, &event);
}

void record_add_restart(
        struct record_bytes *out, double wall_time, int64_t step)
{
    enum { SESSION_START = 1 };
    struct record_bytes event = {0}, session = {0};
    put_integer(&session, 1, SESSION_START);
    put_double(&event, 1, wall_time);
    put_integer(&event, 2, step);
    put_message(&event, 7, &session);
    put_record(out, &event);
}

void record_add_event(
        struct record_bytes *out, double wall_time, int64_t step,
        const struct record_bytes *summary)
{
    struct record_bytes event = {0};
    put_double(&event, 1, wall_time);
    put_integer(&event, 2, step);
    put_bytes(&event, 5, summary->data, summary->used);
    put_record(out, &event);
}
