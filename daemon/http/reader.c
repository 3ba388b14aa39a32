#include "daemon/http/reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static enum http_reader_state choose_body(struct http_reader *reader)
{
    char value[64], *end;
    if (reader->status == 204 || reader->status == 304)
        return HTTP_DONE;
    if (!find_header(reader->head, "Content-Length", value, sizeof value))
        return HTTP_BODY_CLOSE;
    errno = 0;
    reader->left = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end || errno)
        return HTTP_BROKEN;
    return reader->left ? HTTP_BODY_LENGTH : HTTP_DONE;
}

static void read_head(struct http_reader *reader)
{
    int minor;
    reader->state = HTTP_BROKEN;
    if (sscanf(reader->head, "HTTP/1.%1d %3d", &minor, &reader->status) != 2 ||
        reader->status < 200)
        return;
    find_header(
            reader->head, "Content-Type", reader->type, sizeof reader->type);
    reader->state = choose_body(reader);
}

/* Takes bytes up to the empty line; returns how many. */
static size_t take_head(
        struct http_reader *reader, const char *data, size_t bytes)
{
    size_t used = 0;
    while (used < bytes && reader->state == HTTP_HEAD) {
        char c = data[used++], *end = reader->head + reader->head_bytes++;
        if (c == '\0' || reader->head_bytes == sizeof reader->head)
            reader->state = HTTP_BROKEN;
        else if (
                c == '\n' && end > reader->head + 1 &&
                (end[-1] == '\n' || (end[-1] == '\r' && end[-2] == '\n')))
            read_head(reader);
        else
            *end = c;
    }
    return used;
}

bool http_reader_take(
        struct http_reader *reader, const char *data, size_t bytes)
{
    size_t used = take_head(reader, data, bytes);
    data += used;
    bytes -= used;
    if (reader->state == HTTP_HEAD || reader->state >= HTTP_DONE)
        return reader->state == HTTP_HEAD;
    if (reader->state == HTTP_BODY_LENGTH && bytes >= reader->left) {
        bytes = (size_t)reader->left;
        reader->state = HTTP_DONE;
    }
    reader->left -= reader->state == HTTP_BODY_LENGTH ? bytes : 0;
    return (!bytes || reader->sink(reader->ctx, data, bytes)) &&
           reader->state < HTTP_DONE;
}

bool http_reader_end(struct http_reader *reader)
{
    if (reader->state == HTTP_BODY_CLOSE)
        reader->state = HTTP_DONE;
    return reader->state == HTTP_DONE;
}
