#include "daemon/http/connect.h"

#include "base/text_stream.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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

static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int bytes = !slash ? 1 : slash == path ? 1 : (int)(slash - path);
    snprintf(out, PATH_MAX, "%.*s", bytes, slash ? path : ".");
}

static bool is_trusted(int fd, const char *path, uid_t *found_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    char folder[PATH_MAX];
    *found_out = (uid_t)-1;
    folder_of(path, folder);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 &&
           is_path_trusted(folder, found_out) &&
           is_path_trusted(path, found_out) &&
           is_trusted_user(cred.uid, found_out);
}

int http_connect(const char *path, uid_t *stranger_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int error = ENAMETOOLONG, fd = -1;
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = errno;
    }
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address))
        error = errno;
    else if (fd >= 0 && is_trusted(fd, path, stranger_out))
        return fd;
    else if (fd >= 0)
        error = EKEYREJECTED;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

char *http_question_text(
        const struct http_question *question, size_t *bytes_out)
{
    const char *id = question->last_event_id;
    bool has_id = id && strlen(id) < 256 && !strpbrk(id, "\r\n");
    char *text;
    FILE *out = text_stream_open(&text, bytes_out);
    fprintf(out, "%s %s HTTP/1.0\r\nHost: zerod\r\n", question->method,
            question->target);
    if (has_id)
        fprintf(out, "Last-Event-ID: %s\r\n", id);
    fprintf(out,
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
            question->body_bytes);
    fwrite(question->body, 1, question->body_bytes, out);
    fclose(out);
    return text;
}
