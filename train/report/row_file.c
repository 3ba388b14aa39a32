#include "train/report/row_file.h"

#include "base/log.h"
#include "base/must.h"
#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct row_file {
    int fd;
    char *path;
    off_t end;     /* of the last whole row in the file */
    char *pending; /* rows not written yet */
    size_t pending_bytes;
    bool is_behind; /* said so */
};

/* O_NONBLOCK: to open a FIFO would wait for whoever reads it. O_NOFOLLOW: in a
 * folder of a group a link would lead to a file of another's choice. */
static enum zd_status open_rows(const char *path, size_t kept, int *fd_out)
{
    struct stat info;
    int fd =
            open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW,
                 0644);
    int error = fd < 0 ? errno : 0;
    *fd_out = fd;
    if (error == ENXIO ||
        (!error && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)))
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0731",
                "cannot open %s: it is a FIFO, socket or device, not a file",
                path);
    if (error == ELOOP)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0731", "cannot open %s: it is a link", path);
    if (!error && ftruncate(fd, (off_t)kept) != 0)
        error = errno;
    if (error)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0731", "cannot open %s: %s", path,
                strerror(error));
    return ZD_OK;
}

enum zd_status row_file_open(
        const char *path, size_t kept, struct row_file **out)
{
    struct row_file *file = calloc(1, sizeof *file);
    if (!file)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    file->path = zd_must(strdup(path));
    enum zd_status status = open_rows(path, kept, &file->fd);
    if (status != ZD_OK) {
        row_file_close(file);
        return status;
    }
    file->end = (off_t)kept;
    *out = file;
    return ZD_OK;
}

void row_file_close(struct row_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->pending);
    free(file->path);
    free(file);
}

/* Write what is pending; a torn write is taken back. */
enum zd_status row_file_flush(struct row_file *file)
{
    size_t done = 0;
    while (done < file->pending_bytes) {
        ssize_t n =
                pwrite(file->fd, file->pending + done,
                       file->pending_bytes - done, file->end + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            if (ftruncate(file->fd, file->end) != 0)
                zd_log_debug("cannot cut %s", file->path);
            return ZD_FAIL(
                    ZD_ERR_IO, "E0732", "cannot write %s: %s", file->path,
                    strerror(error));
        }
        done += (size_t)n;
    }
    file->end += (off_t)done;
    file->pending_bytes = 0;
    file->is_behind = false;
    return ZD_OK;
}

static enum zd_status append(
        struct row_file *file, const char *text, size_t bytes)
{
    char *more = realloc(file->pending, file->pending_bytes + bytes + 1);
    if (!more)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    memcpy(more + file->pending_bytes, text, bytes);
    more[file->pending_bytes + bytes] = '\n';
    file->pending = more;
    file->pending_bytes += bytes + 1;
    return ZD_OK;
}

enum zd_status row_file_add(
        struct row_file *file, const char *text, size_t bytes,
        struct zd_error *told_out)
{
    told_out->status = ZD_OK;
    ZD_TRY(append(file, text, bytes));
    struct zd_error before = *zd_error_get();
    zd_error_clear();
    if (row_file_flush(file) != ZD_OK) {
        if (!file->is_behind)
            *told_out = *zd_error_get();
        file->is_behind = true;
    }
    zd_error_set(&before); /* of whoever adds a row about a failure */
    return ZD_OK;
}

enum zd_status row_file_harden(const struct row_file *file)
{
    if (fdatasync(file->fd) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0732", "cannot flush %s: %s", file->path,
                strerror(errno));
    progress_completed();
    return ZD_OK;
}

enum zd_status row_file_sync(struct row_file *file)
{
    ZD_TRY(row_file_flush(file));
    return row_file_harden(file);
}

size_t row_file_line(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) : 0;
}
