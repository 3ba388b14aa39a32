#include "tests/daemon/sinks/event_file.h"

#include <criterion/criterion.h>
#include <string.h>

uint32_t event_crc(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

struct cursor {
    const unsigned char *at, *end;
};

static uint64_t little(struct cursor *in, int bytes)
{
    uint64_t value = 0;
    cr_assert(in->end - in->at >= bytes, "cut short");
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in->at[i] << 8 * i;
    in->at += bytes;
    return value;
}

static uint64_t varint(struct cursor *in)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = little(in, 1);
        value |= (byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    cr_assert(false, "a number without an end");
    return 0;
}

struct field {
    int number;
    uint64_t value;        /* of numbers, as bits */
    struct cursor content; /* of strings and messages */
};

static bool next_field(struct cursor *in, struct field *field)
{
    if (in->at == in->end)
        return false;
    uint64_t key = varint(in);
    field->number = (int)(key >> 3);
    switch (key & 7) {
    case 0:
        field->value = varint(in);
        break;
    case 1:
        field->value = little(in, 8);
        break;
    case 5:
        field->value = little(in, 4);
        break;
    case 2: {
        uint64_t bytes = varint(in);
        cr_assert(bytes <= (uint64_t)(in->end - in->at), "cut short");
        field->content = (struct cursor){in->at, in->at + bytes};
        in->at += bytes;
        break;
    }
    default:
        cr_assert(false, "no such type of field");
    }
    return true;
}

static void copy_text(char *out, size_t room, struct cursor text)
{
    size_t bytes = (size_t)(text.end - text.at);
    cr_assert(bytes < room);
    memcpy(out, text.at, bytes);
    out[bytes] = '\0';
}

static void read_tensor(struct cursor in, struct event_value *value)
{
    struct field field, dim, size;
    while (next_field(&in, &field)) {
        if (field.number == 1)
            cr_expect_eq(field.value, 7, "no tensor of strings");
        if (field.number == 2) {
            cr_assert(next_field(&field.content, &dim) && dim.number == 2);
            cr_assert(next_field(&dim.content, &size) && size.number == 1);
            cr_expect_eq(size.value, 1);
        }
        if (field.number == 8)
            copy_text(value->text, sizeof value->text, field.content);
    }
}

static void read_value(struct cursor in, struct event_value *value)
{
    struct field field, part, name;
    while (next_field(&in, &field)) {
        uint32_t bits = (uint32_t)field.value;
        if (field.number == 1)
            copy_text(value->tag, sizeof value->tag, field.content);
        if (field.number == 2)
            memcpy(&value->number, &bits, sizeof bits);
        if (field.number == 8)
            read_tensor(field.content, value);
        if (field.number == 9)
            while (next_field(&field.content, &part))
                if (part.number == 1 && next_field(&part.content, &name))
                    copy_text(
                            value->plugin, sizeof value->plugin, name.content);
    }
}

static void read_event(struct cursor in, struct event *event)
{
    struct field field, part;
    while (next_field(&in, &field)) {
        if (field.number == 1)
            memcpy(&event->wall_time, &field.value, sizeof field.value);
        if (field.number == 2)
            event->step = (int64_t)field.value;
        if (field.number == 3)
            copy_text(event->version, sizeof event->version, field.content);
        if (field.number == 7 && next_field(&field.content, &part))
            event->session = (int)part.value;
        if (field.number == 5)
            while (next_field(&field.content, &part)) {
                cr_assert_eq(part.number, 1);
                cr_assert(event->value_count < EVENT_VALUES_MAX);
                read_value(part.content, &event->values[event->value_count++]);
            }
    }
}

static void check_crc(struct cursor *in, const void *data, size_t bytes)
{
    uint32_t crc = event_crc(data, bytes);
    uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8u;
    cr_assert_eq(little(in, 4), masked, "wrong checksum");
}

bool event_read(
        const char *data, size_t bytes, size_t *at, struct event *event_out)
{
    const unsigned char *begin = (const unsigned char *)data;
    struct cursor in = {begin + *at, begin + bytes};
    if (*at == bytes)
        return false;
    memset(event_out, 0, sizeof *event_out);
    uint64_t length = little(&in, 8);
    check_crc(&in, begin + *at, 8);
    cr_assert(length <= (uint64_t)(in.end - in.at), "cut short");
    struct cursor content = {in.at, in.at + length};
    in.at += length;
    check_crc(&in, content.at, length);
    read_event(content, event_out);
    *at = (size_t)(in.at - begin);
    return true;
}

const struct event_value *event_find(const struct event *event, const char *tag)
{
    for (int i = 0; i < event->value_count; i++)
        if (strcmp(event->values[i].tag, tag) == 0)
            return &event->values[i];
    return NULL;
}
