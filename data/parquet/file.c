#include "data/parquet/internal.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "data/parquet/parquet.h"

#include <stdlib.h>

enum zd_status parquet_reserve(
        struct parquet_file *file, struct parquet_buffer *buffer,
        uint64_t bytes)
{
    if (bytes <= buffer->capacity)
        return ZD_OK;
    parquet_release(file, buffer);
    if (bytes > PARQUET_HELD_MAX - file->held)
        return parquet_damaged(
                file, NULL, "its pages take more than %llu MiB of memory",
                (unsigned long long)(PARQUET_HELD_MAX >> 20));
    buffer->bytes = zd_must(malloc((size_t)bytes));
    buffer->capacity = (size_t)bytes;
    file->held += bytes;
    return ZD_OK;
}

void parquet_release(struct parquet_file *file, struct parquet_buffer *buffer)
{
    file->held -= buffer->capacity;
    free(buffer->bytes);
    *buffer = (struct parquet_buffer){0};
}

enum zd_status parquet_fail(
        const struct parquet_file *file, const char *column, bool is_damaged,
        const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(what, format);
    if (is_damaged)
        ZD_BAD("E0452", "%s is damaged: %s%.120s%s%.239s", file->path,
               column ? "column " : "", column ? column : "",
               column ? ": " : "", what);
    else
        ZD_BAD("E0453",
               "column %.120s of %s has %.239s, which zerod does not read",
               column, file->path, what);
    if (!is_damaged)
        zd_fail_help("remove the column, or write the file again with "
                     "pyarrow's defaults");
    if (file->row > 0)
        zd_fail_where("%s:row %lld", file->path, (long long)file->row);
    return ZD_ERR_DATA;
}

/* --- Thrift --------------------------------------------------------------- */

enum { NESTING_MAX = 32 };

static int fail(struct thrift *thrift)
{
    thrift->is_bad = true;
    thrift->at = thrift->end;
    return 0;
}

static int read_byte(struct thrift *thrift)
{
    if (thrift->at < thrift->end)
        return *thrift->at++;
    thrift->is_short = true;
    return fail(thrift);
}

uint64_t thrift_varint(struct thrift *thrift)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        int byte = read_byte(thrift);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    return (uint64_t)fail(thrift);
}

static int64_t read_zigzag(struct thrift *thrift)
{
    uint64_t value = thrift_varint(thrift);
    return (int64_t)(value >> 1 ^ -(value & 1));
}

bool thrift_next(struct thrift *thrift, struct thrift_field *field)
{
    int byte = read_byte(thrift);
    field->type = byte & 15;
    if (thrift->is_bad || field->type == THRIFT_STOP)
        return false;
    if (byte >> 4)
        field->id += byte >> 4;
    else
        field->id = (int16_t)read_zigzag(thrift);
    return !thrift->is_bad;
}

int64_t thrift_integer(struct thrift *thrift, const struct thrift_field *field)
{
    switch (field->type) {
    case THRIFT_TRUE:
        return 1;
    case THRIFT_FALSE:
        return 0;
    case THRIFT_BYTE:
        return (signed char)read_byte(thrift);
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        return read_zigzag(thrift);
    default:
        return fail(thrift);
    }
}

const char *thrift_string(
        struct thrift *thrift, const struct thrift_field *field,
        size_t *bytes_out)
{
    bool is_string = field->type == THRIFT_BINARY;
    uint64_t bytes = is_string ? thrift_varint(thrift) : 0;
    const char *text = (const char *)thrift->at;
    *bytes_out = 0;
    if (!is_string || bytes > (uint64_t)(thrift->end - thrift->at)) {
        thrift->is_short |= is_string;
        fail(thrift);
        return "";
    }
    thrift->at += bytes;
    *bytes_out = (size_t)bytes;
    return text;
}

static size_t read_list(struct thrift *thrift, int *type_out)
{
    int byte = read_byte(thrift);
    uint64_t count = (uint64_t)(byte >> 4);
    *type_out = byte & 15;
    if (count == 15)
        count = thrift_varint(thrift);
    if (count > (uint64_t)(thrift->end - thrift->at)) {
        thrift->is_short = true;
        return (size_t)fail(thrift);
    }
    return (size_t)count;
}

size_t thrift_structs(struct thrift *thrift, const struct thrift_field *field)
{
    int type;
    if (field->type != THRIFT_LIST)
        return (size_t)fail(thrift);
    size_t count = read_list(thrift, &type);
    return count > 0 && type != THRIFT_STRUCT ? (size_t)fail(thrift) : count;
}

static void skip_elements(struct thrift *thrift)
{
    int element;
    size_t count = read_list(thrift, &element);
    for (size_t i = 0; i < count && !thrift->is_bad; i++) {
        if (element == THRIFT_TRUE || element == THRIFT_FALSE)
            read_byte(thrift);
        else
            thrift_skip(thrift, element);
    }
}

void thrift_skip(struct thrift *thrift, int type)
{
    struct thrift_field field = {.type = type};
    size_t bytes;
    if (++thrift->depth > NESTING_MAX)
        fail(thrift);
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        break;
    case THRIFT_BYTE:
        read_byte(thrift);
        break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        thrift_varint(thrift);
        break;
    case THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++)
            read_byte(thrift);
        break;
    case THRIFT_BINARY:
        thrift_string(thrift, &field, &bytes);
        break;
    case THRIFT_LIST:
        skip_elements(thrift);
        break;
    case THRIFT_STRUCT:
        while (thrift_next(thrift, &field))
            thrift_skip(thrift, field.type);
        break;
    default:
        fail(thrift);
    }
    thrift->depth--;
}

void thrift_integers(struct thrift *thrift, int64_t *values, int count)
{
    struct thrift_field field = {0};
    while (thrift_next(thrift, &field)) {
        if (field.id >= 0 && field.id < count && field.type <= THRIFT_I64)
            values[field.id] = thrift_integer(thrift, &field);
        else
            thrift_skip(thrift, field.type);
    }
}
