#include "daemon/state/log_lines.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first byte of the last `tail` lines. */
static size_t first_wanted(const char *text, size_t bytes, int64_t tail)
{
    size_t at = tail < 0 ? 0 : bytes;
    for (int64_t lines = 0; at > 0 && lines < tail; lines++) {
        const char *before = at > 1 ? memrchr(text, '\n', at - 1) : NULL;
        at = before ? (size_t)(before + 1 - text) : 0;
    }
    return at;
}

char *log_lines_last(
        int fd, int64_t most, int64_t tail, int64_t *end_out, size_t *bytes_out)
{
    struct stat info = {0};
    fstat(fd, &info);
    int64_t from = info.st_size > most ? info.st_size - most : 0;
    size_t room = (size_t)(info.st_size - from), bytes = 0, first = 0;
    char *text = zd_must(malloc(room + 1));
    ssize_t n = 1;
    for (; bytes < room && n > 0; bytes += n > 0 ? (size_t)n : 0)
        n = pread(fd, text + bytes, room - bytes, from + (int64_t)bytes);
    while (bytes > 0 && text[bytes - 1] != '\n')
        bytes--; /* a line that is being written */
    *end_out = from + (int64_t)bytes;
    if (from > 0 && bytes) /* it begins in the middle of one */
        first = (size_t)((char *)memchr(text, '\n', bytes) + 1 - text);
    first += first_wanted(text + first, bytes - first, tail);
    *bytes_out = bytes - first;
    memmove(text, text + first, *bytes_out);
    text[*bytes_out] = '\0';
    return text;
}

size_t log_lines_next(int fd, int64_t *at, char *out, size_t room)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return 0;
    if (info.st_size < *at)
        *at = 0; /* it was emptied */
    ssize_t n = pread(fd, out, room, *at);
    const char *last = n > 0 ? memrchr(out, '\n', (size_t)n) : NULL;
    size_t bytes = last                 ? (size_t)(last + 1 - out)
                   : n == (ssize_t)room ? room
                                        : 0;
    *at += (int64_t)bytes;
    return bytes;
}
