#include "daemon/http/reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void break_off(struct http_reader *reader)
{
    reader->state = HTTP_BROKEN;
}

/* --- the head --- */

/* The value of header `name` in a head of lines that end with \r\n or \n;
 * copied without blanks around it. False: it is not there. */
static bool find_header(
        const char *head, const char *name, char *out, size_t out_bytes)
{
    size_t length = strlen(name);
    const char *line = strchr(head, '\n');
    for (; line; line = strchr(line, '\n')) {
        line++;
        if (strncasecmp(line, name, length) != 0 || line[length] != ':')
            continue;
        line += length + 1;
        line += strspn(line, " \t");
        size_t bytes = strcspn(line, "\r\n");
        while (bytes && (line[bytes - 1] == ' ' || line[bytes - 1] == '\t'))
            bytes--;
        snprintf(out, out_bytes, "%.*s", (int)bytes, line);
        return true;
    }
    return false;
}

static void choose_body(struct http_reader *reader)
{
    char value[64];
    if (reader->status == 204 || reader->status == 304) {
        reader->state = HTTP_DONE;
    } else if (find_header(
                       reader->head, "Transfer-Encoding", value,
                       sizeof value)) {
        reader->state = strcasecmp(value, "chunked") == 0 ? HTTP_CHUNK_SIZE
                                                          : HTTP_BROKEN;
    } else if (find_header(
                       reader->head, "Content-Length", value, sizeof value)) {
        char *end;
        errno = 0;
        reader->left = strtoull(value, &end, 10);
        if (!isdigit((unsigned char)value[0]) || *end || errno)
            break_off(reader);
        else
            reader->state = reader->left ? HTTP_BODY_LENGTH : HTTP_DONE;
    } else {
        reader->state = HTTP_BODY_CLOSE;
    }
}

static void read_head(struct http_reader *reader)
{
    int minor, status;
    if (sscanf(reader->head, "HTTP/1.%1d %3d", &minor, &status) != 2 ||
        status < 100) {
        break_off(reader);
        return;
    }
    if (status < 200) { /* an interim answer: the real one follows */
        reader->head_bytes = 0;
        return;
    }
    reader->status = status;
    reader->type[0] = '\0';
    find_header(
            reader->head, "Content-Type", reader->type, sizeof reader->type);
    choose_body(reader);
}

/* Takes bytes up to the empty line; returns how many. */
static size_t take_head(
        struct http_reader *reader, const char *data, size_t bytes)
{
    size_t used = 0;
    while (used < bytes && reader->state == HTTP_HEAD) {
        char c = data[used++];
        if (c == '\0' || reader->head_bytes + 1 == sizeof reader->head) {
            break_off(reader);
            break;
        }
        reader->head[reader->head_bytes++] = c;
        reader->head[reader->head_bytes] = '\0';
        const char *end = reader->head + reader->head_bytes;
        bool is_last =
                c == '\n' && reader->head_bytes > 2 &&
                (end[-2] == '\n' || (end[-2] == '\r' && end[-3] == '\n'));
        if (is_last)
            read_head(reader);
    }
    return used;
}

/* --- the body --- */

/* A line of the framing is complete. */
static void read_line(struct http_reader *reader)
{
    char *end;
    if (reader->state == HTTP_CHUNK_END) {
        reader->state = reader->line[0] ? HTTP_BROKEN : HTTP_CHUNK_SIZE;
    } else if (reader->state == HTTP_TRAILER) {
        if (!reader->line[0])
            reader->state = HTTP_DONE;
    } else {
        errno = 0;
        reader->left = strtoull(reader->line, &end, 16);
        if (!isxdigit((unsigned char)reader->line[0]) || errno ||
            (*end && *end != ';' && *end != ' '))
            break_off(reader);
        else
            reader->state = reader->left ? HTTP_CHUNK_DATA : HTTP_TRAILER;
    }
}

static size_t take_line(
        struct http_reader *reader, const char *data, size_t bytes)
{
    enum http_reader_state state = reader->state;
    size_t used = 0;
    while (used < bytes && reader->state == state) {
        char c = data[used++];
        if (c == '\n') {
            size_t length = reader->line_bytes;
            if (length && reader->line[length - 1] == '\r')
                length--;
            reader->line[length] = '\0';
            reader->line_bytes = 0;
            read_line(reader);
            break;
        }
        if (reader->line_bytes + 1 < sizeof reader->line)
            reader->line[reader->line_bytes++] = c;
        else if (state != HTTP_TRAILER) /* of a trailer the start is enough */
            break_off(reader);
    }
    return used;
}

static size_t take_data(
        struct http_reader *reader, const char *data, size_t bytes,
        bool *wants_more)
{
    bool is_endless = reader->state == HTTP_BODY_CLOSE;
    size_t count =
            !is_endless && bytes > reader->left ? (size_t)reader->left : bytes;
    *wants_more = reader->sink(reader->ctx, data, count);
    if (!is_endless) {
        reader->left -= count;
        if (reader->left == 0)
            reader->state = reader->state == HTTP_CHUNK_DATA ? HTTP_CHUNK_END
                                                             : HTTP_DONE;
    }
    return count;
}

bool http_reader_take(
        struct http_reader *reader, const char *data, size_t bytes)
{
    bool wants_more = true;
    while (bytes > 0 && wants_more && reader->state < HTTP_DONE) {
        size_t used;
        if (reader->state == HTTP_HEAD)
            used = take_head(reader, data, bytes);
        else if (
                reader->state == HTTP_BODY_LENGTH ||
                reader->state == HTTP_CHUNK_DATA ||
                reader->state == HTTP_BODY_CLOSE)
            used = take_data(reader, data, bytes, &wants_more);
        else
            used = take_line(reader, data, bytes);
        data += used;
        bytes -= used;
    }
    return wants_more && reader->state < HTTP_DONE;
}

bool http_reader_end(struct http_reader *reader)
{
    if (reader->state == HTTP_BODY_CLOSE)
        reader->state = HTTP_DONE;
    return reader->state == HTTP_DONE;
}
