/* socket.c - the socket in the file system: its path, its folder, and its end.
 * It is 0600.
 *
 * The folder is locked (flock) from the look at what is there until the socket
 * listens, which settles two starts at one moment. Only a dead socket is ever
 * removed. */
#include "daemon/http/ask.h"
#include "daemon/http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOCK_TRIES = 1000 }; /* of 10 ms */

#define HINT "set control.socket to another path, or to \"none\""

static enum zd_status fail_system(const char *what, const char *path)
{
    ZD_FAIL(ZD_ERR_CREATE, "E1044", "cannot %s %s: %s", what, path,
            strerror(errno));
    return zd_fail_help("%s", HINT);
}

/* --- names ---------------------------------------------------------------- */

/* Some logins leave the variable of another user, or of a folder that was never
 * made: then it is as if it were not set. */
static bool is_runtime_folder(const char *path)
{
    struct stat info;
    return path && path[0] == '/' && !stat(path, &info) &&
           S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static enum zd_status check_length(const char *path, size_t bytes)
{
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (bytes <= most)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E1041",
            "the path of the control socket has %zu bytes, at most %zu fit: "
            "%.200s",
            bytes, most, path);
    return zd_fail_help(
            "set control.socket to a shorter path; it may be relative to the "
            "folder the job is started in");
}

/* $XDG_RUNTIME_DIR/zerod where that is a folder of ours, else /tmp/zerod-UID.
 * Who looks for a running job looks in both: a login may have the variable and
 * a batch system not. */
enum zd_status http_socket_path(
        const char *job_name, char *out, size_t out_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int bytes;
    if (!job_name[0] || job_name[0] == '.' || strchr(job_name, '/')) {
        ZD_FAIL(ZD_ERR_CREATE, "E1041",
                "\"%.80s\" cannot be the name of a socket", job_name);
        return zd_fail_help(
                "choose a job.name without / that does not begin with a dot");
    }
    if (is_runtime_folder(runtime))
        bytes = snprintf(out, out_bytes, "%s/zerod/%s.sock", runtime, job_name);
    else
        bytes = snprintf(
                out, out_bytes, "/tmp/zerod-%u/%s.sock", (unsigned)geteuid(),
                job_name);
    return check_length(out, (size_t)bytes);
}

/* --- the folder ----------------------------------------------------------- */

static enum zd_status not_ours(const char *path, const char *why)
{
    ZD_FAIL(ZD_ERR_CREATE, "E1042", "the folder of the control socket %s: %s",
            why, path);
    return zd_fail_help("%s", HINT);
}

static enum zd_status settle_folder(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info))
        return fail_system("read the mode of", path);
    if (info.st_uid != geteuid())
        return not_ours(path, "belongs to another user");
    if ((info.st_mode & 07777) != 0700 && fchmod(fd, 0700))
        return fail_system("set the mode of", path);
    return ZD_OK;
}

enum zd_status http_socket_make_folder(const char *socket)
{
    char path[4096];
    ZD_PRINT(path, "%.*s", (int)(strrchr(socket, '/') - socket), socket);
    if (mkdir(path, 0700) && errno != EEXIST)
        return fail_system("make", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return not_ours(path, "is a link, or not a folder");
    if (fd < 0 && errno == EACCES)
        return not_ours(path, "belongs to another user");
    if (fd < 0)
        return fail_system("open", path);
    enum zd_status status = settle_folder(fd, path);
    close(fd);
    return status;
}

/* --- who is there --------------------------------------------------------- */

/* Who listens there: its pid; 0: no one; -1: someone, or it is not known. */
static pid_t probe(const char *path)
{
    struct ucred cred = {.pid = -1};
    socklen_t bytes = sizeof cred;
    int fd = http_dial(path);
    if (fd < 0)
        return errno == ECONNREFUSED || errno == ENOENT ? 0 : -1;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes);
    close(fd);
    return cred.pid ? cred.pid : -1;
}

static enum zd_status is_live(const char *path, pid_t pid)
{
    char who[40] = "it holds";
    if (pid > 0)
        ZD_PRINT(who, "pid %d answers at", (int)pid);
    ZD_FAIL(ZD_ERR_CREATE, "E1040", "a job of this name is running: %s %s", who,
            path);
    return zd_fail_help(
            "choose another job.name, or wait for that job; zerodctl stop "
            "ends it");
}

/* The folder, open and locked for the moment of a start; -1. */
static int lock_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    ZD_PRINT(
            folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
            slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            close(fd);
            return -1;
        }
        poll(NULL, 0, 10);
    }
    return fd;
}

/* --- the socket ----------------------------------------------------------- */

static enum zd_status remove_stale(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return errno == ENOENT ? ZD_OK : fail_system("read the mode of", path);
    if (!S_ISSOCK(info.st_mode)) {
        ZD_FAIL(ZD_ERR_CREATE, "E1043",
                "%s is in the place of the control socket: %s",
                S_ISLNK(info.st_mode) ? "a link" : "another file", path);
        return zd_fail_help("remove it, or: " HINT);
    }
    pid_t pid = probe(path);
    if (pid)
        return is_live(path, pid);
    return unlink(path) && errno != ENOENT ? fail_system("remove", path)
                                           : ZD_OK;
}

/* On Linux a socket's file gets the mode of the socket it is bound from: no
 * moment in which others could connect, and no umask, which is the whole
 * process's. */
static enum zd_status bind_socket(struct http_socket *socket_out, int *fd_out)
{
    const char *path = socket_out->path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail_system("make", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    fchmod(fd, 0600);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) ||
        listen(fd, HTTP_BACKLOG) || lstat(path, &info)) {
        close(fd);
        return fail_system("make", path);
    }
    socket_out->device = info.st_dev;
    socket_out->inode = info.st_ino;
    *fd_out = fd;
    return ZD_OK;
}

enum zd_status http_socket_open(
        const char *path, struct http_socket *socket_out, int *fd_out)
{
    ZD_TRY(check_length(path, strlen(path)));
    memcpy(socket_out->path, path, strlen(path) + 1);
    int folder = lock_folder(path);
    if (folder < 0)
        return fail_system("lock the folder of", path);
    enum zd_status status = remove_stale(path);
    ZD_THEN(status, bind_socket(socket_out, fd_out));
    close(folder);
    return status;
}

void http_socket_remove(const struct http_socket *socket)
{
    struct stat info;
    if (socket->inode && !lstat(socket->path, &info) &&
        info.st_dev == socket->device && info.st_ino == socket->inode)
        unlink(socket->path);
}
