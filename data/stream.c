#include "data/stream_source.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARRAY_BYTES = 256 << 10 };

static enum zd_status plain_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    uint64_t left = stream->file->bytes - stream->at;
    if (bytes > left)
        bytes = (size_t)left;
    *bytes_out = bytes;
    ZD_TRY(fs_pread(stream->fd, stream->file->path, text, bytes, stream->at));
    stream->at += bytes;
    return ZD_OK;
}

static const struct container plain_container = {.read = plain_read};

static const struct container *container_of(enum data_container container)
{
    return container == CONTAINER_PLAIN     ? &plain_container
           : container == CONTAINER_PARQUET ? &parquet_container
                                            : &packed_container;
}

enum zd_status data_stream_open(
        const struct data_file *file, size_t row_most, struct data_stream **out)
{
    struct data_stream *stream = zd_array(1, sizeof *stream);
    uint64_t bytes = 0;
    stream->file = file;
    stream->row_most = row_most;
    stream->fd = -1;
    stream->container = &plain_container;
    enum zd_status status = fs_open_read(file->path, &stream->fd, &bytes);
    if (status == ZD_OK && bytes != file->bytes)
        status =
                ZD_FAIL(ZD_ERR_DATA, "E0441", "%s changed while it was read",
                        file->path);
    if (status == ZD_OK) {
        stream->container = container_of(file->container);
        if (stream->container->open)
            status = stream->container->open(stream);
    }
    if (status != ZD_OK) {
        data_stream_close(stream);
        return status;
    }
    *out = stream;
    return ZD_OK;
}

/* --- an array of records ---------------------------------------------------
 *
 * Elements are told apart by depth and strings alone; each one is parsed, and
 * refused if it is not JSON, where lines are. */

static enum zd_status fail_array(
        const struct data_stream *stream, const char *what)
{
    long long row = (long long)stream->elements;
    ZD_FAIL(ZD_ERR_DATA, "E0436", "row %lld of the array in %s: %s", row,
            stream->file->path, what);
    zd_fail_where("%s:row %lld", stream->file->path, row);
    return ZD_ERR_DATA;
}

/* A byte of an element; *out: what stands for it in the element's line. Line
 * feeds between its parts become blanks. One inside a string is not JSON, and
 * a carriage return, which is not either, keeps it so. */
static void take_value(struct data_stream *stream, char c, char *out)
{
    *out = c;
    if (stream->in_string) {
        if (c == '\n')
            *out = '\r';
        if (stream->is_escaped)
            stream->is_escaped = false;
        else if (c == '\\')
            stream->is_escaped = true;
        else if (c == '"')
            stream->in_string = false;
    } else if (c == '"') {
        stream->in_string = true;
    } else if (c == '{' || c == '[') {
        stream->depth++;
    } else if ((c == '}' || c == ']') && stream->depth > 0) {
        stream->depth--;
    } else if (c == '\n') {
        *out = ' ';
    } else if (stream->depth == 0 && (c == ',' || c == ']')) {
        stream->phase = c == ',' ? ARRAY_ELEMENT : ARRAY_AFTER;
        *out = '\n';
    }
}

/* *has_out: it gives a byte of text. */
static enum zd_status take_byte(
        struct data_stream *stream, char c, char *out, bool *has_out)
{
    *has_out = false;
    if (stream->phase == ARRAY_VALUE) {
        take_value(stream, c, out);
        *has_out = true;
        return ZD_OK;
    }
    if (is_json_space(c))
        return ZD_OK;
    if (stream->phase == ARRAY_BEFORE) { /* '[', perhaps after a mark */
        stream->phase = c == '[' ? ARRAY_ELEMENT : ARRAY_BEFORE;
        return ZD_OK;
    }
    if (stream->phase == ARRAY_AFTER)
        return fail_array(stream, "text follows the array");
    if (c == ']' && stream->elements == 0) {
        stream->phase = ARRAY_AFTER;
        return ZD_OK;
    }
    stream->elements++;
    if (c == ']' || c == ',')
        return fail_array(
                stream, "there is no value before this comma or "
                        "bracket");
    stream->phase = ARRAY_VALUE;
    take_value(stream, c, out);
    *has_out = true;
    return ZD_OK;
}

static enum zd_status array_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    size_t used = 0;
    while (used == 0) {
        size_t count = 0, want = bytes < ARRAY_BYTES ? bytes : ARRAY_BYTES;
        bool has;
        /* a byte gives at most one, so it is taken apart where it lies */
        ZD_TRY(stream->container->read(stream, text, want, &count));
        if (count == 0 && stream->phase != ARRAY_AFTER)
            return fail_array(stream, "the file ends inside the array");
        for (size_t i = 0; i < count; i++) {
            ZD_TRY(take_byte(stream, text[i], text + used, &has));
            used += has;
        }
        if (count == 0)
            break;
    }
    *bytes_out = used;
    return ZD_OK;
}

/* -------------------------------------------------------------------------- */

enum zd_status data_stream_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    size_t done = 0, part = 1;
    while (done < bytes && part > 0) {
        ZD_TRY(stream->file->is_array
                       ? array_read(stream, text + done, bytes - done, &part)
                       : stream->container->read(
                                 stream, text + done, bytes - done, &part));
        done += part;
    }
    *bytes_out = done;
    return ZD_OK;
}

uint64_t data_stream_consumed(const struct data_stream *stream)
{
    return stream->at;
}

void data_stream_close(struct data_stream *stream)
{
    if (!stream)
        return;
    if (stream->container->close)
        stream->container->close(stream);
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream);
}
