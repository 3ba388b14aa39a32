#include "daemon/http/ask.h"

#include "base/must.h"
#include "base/status.h"
#include "base/text_stream.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* --- whom to trust --- */

static bool is_trusted_user(uid_t found, uid_t *found_out)
{
    *found_out = found;
    return found == geteuid() || found == 0;
}

/* Of a link: its own owner and that of what it leads to. */
static bool is_path_trusted(const char *path, uid_t *found_out)
{
    struct stat itself, target;
    return lstat(path, &itself) == 0 && stat(path, &target) == 0 &&
           is_trusted_user(itself.st_uid, found_out) &&
           is_trusted_user(target.st_uid, found_out);
}

static bool is_trusted(int fd, const char *path, uid_t *found_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) /* "/" of "/name" */
        ZD_PRINT(folder, "%.*s", (int)(slash - path) + 1, path);
    *found_out = (uid_t)-1;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 &&
           is_path_trusted(folder, found_out) &&
           is_path_trusted(path, found_out) &&
           is_trusted_user(cred.uid, found_out);
}

/* --- a question --- */

int http_dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !connect(fd, (struct sockaddr *)&address, sizeof address))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int http_connect(const char *path, uid_t *stranger_out)
{
    int fd = http_dial(path);
    if (fd < 0 || is_trusted(fd, path, stranger_out))
        return fd;
    close(fd);
    errno = EKEYREJECTED;
    return -1;
}

static char *text_of(const struct http_question *question, size_t *bytes_out)
{
    const char *id = question->last_event_id;
    const char *body = question->body ? question->body : "";
    char *text;
    FILE *out = text_stream_open(&text, bytes_out);
    fprintf(out, "%s %s HTTP/1.0\r\nHost: zerod\r\n", question->method,
            question->target);
    if (id && strlen(id) < 256 && !strpbrk(id, "\r\n"))
        fprintf(out, "Last-Event-ID: %s\r\n", id);
    fprintf(out,
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            strlen(body), body);
    fclose(out);
    return text;
}

int http_ask(
        const char *path, const struct http_question *question,
        uid_t *stranger_out)
{
    size_t bytes;
    int fd = http_connect(path, stranger_out);
    if (fd < 0)
        return -1;
    ZD_FREED char *text = text_of(question, &bytes);
    ssize_t sent = send(fd, text, bytes, MSG_NOSIGNAL);
    int error = sent < 0 ? errno : (size_t)sent < bytes ? EMSGSIZE : 0;
    if (!error || error == EPIPE) /* it may have answered and closed */
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* --- its answer --- */

/* The value of a header ("\nName:"); false: it is not there. */
static bool find_header(
        const char *head, const char *name, char *out, size_t out_bytes)
{
    const char *at = strcasestr(head, name);
    if (!at)
        return false;
    at += strlen(name);
    at += strspn(at, " \t");
    snprintf(out, out_bytes, "%.*s", (int)strcspn(at, "\r\n"), at);
    return true;
}

static void read_head(struct http_reader *reader)
{
    char length[32], *end;
    int minor;
    reader->state = HTTP_BROKEN;
    if (sscanf(reader->head, "HTTP/1.%1d %3d", &minor, &reader->status) != 2 ||
        reader->status < 200)
        return;
    find_header(
            reader->head, "\nContent-Type:", reader->type, sizeof reader->type);
    reader->has_length = find_header(
            reader->head, "\nContent-Length:", length, sizeof length);
    reader->state = HTTP_BODY;
    if (!reader->has_length)
        return;
    errno = 0;
    reader->left = strtoul(length, &end, 10);
    if (!isdigit((unsigned char)length[0]) || *end || errno)
        reader->state = HTTP_BROKEN;
    else if (!reader->left)
        reader->state = HTTP_DONE;
}

/* Takes bytes up to the empty line; returns how many. */
static size_t take_head(
        struct http_reader *reader, const char *data, size_t bytes)
{
    size_t used = 0;
    while (used < bytes && reader->state == HTTP_HEAD) {
        char *next = reader->head + reader->head_bytes++;
        *next = data[used++];
        if (*next == '\0' || reader->head_bytes == sizeof reader->head)
            reader->state = HTTP_BROKEN;
        else if (
                reader->head_bytes >= 4 && memcmp(next - 3, "\r\n\r\n", 4) == 0)
            read_head(reader);
    }
    return used;
}

bool http_reader_take(
        struct http_reader *reader, const char *data, size_t bytes)
{
    size_t used = take_head(reader, data, bytes);
    if (reader->state != HTTP_BODY)
        return reader->state == HTTP_HEAD;
    bytes -= used;
    if (reader->has_length) {
        bytes = bytes < reader->left ? bytes : reader->left;
        reader->left -= bytes;
        reader->state = reader->left ? HTTP_BODY : HTTP_DONE;
    }
    return (!bytes || reader->sink(reader->ctx, data + used, bytes)) &&
           reader->state == HTTP_BODY;
}

bool http_reader_end(struct http_reader *reader)
{
    if (reader->state == HTTP_BODY && !reader->has_length)
        reader->state = HTTP_DONE;
    return reader->state == HTTP_DONE;
}
