#include "train/report/file_writer.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_writer {
    int fd; /* -1: FILE_WHOLE */
    char *path;
    enum file_mode mode;
    const char *what;
    pthread_t writer;
    bool has_writer;
    off_t end; /* end of the last whole text in the file; only the writer uses
                  it */
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t work, done;
    char *pending, *hand; /* waiting texts; `hand`: texts that the writer reads
                             without the mutex */
    size_t pending_bytes, pending_room, hand_bytes, hand_room;
    uint64_t asked, tried; /* numbers of requested and finished tries to
                              write */
    bool has_warned;       /* since the last successful write */
    bool is_closing;
    struct zd_error error; /* of the last try; ZD_OK: everything was written */
};

/* O_NONBLOCK: opening a FIFO would wait for its reader. O_NOFOLLOW: in a shared
 * folder another member could link to any file. */
static enum zd_status open_file(struct file_writer *file)
{
    struct stat info;
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    int fd = open(
            file->path, file->mode == FILE_NEW ? flags | O_EXCL : flags, 0644);
    int error = fd < 0 ? errno : 0;
    const char *why = NULL;
    file->fd = fd;
    if (error == ENXIO ||
        (!error && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)))
        why = "it is a FIFO, socket or device, not a file";
    else if (error == ELOOP)
        why = "it is a link";
    else if (error || ftruncate(fd, file->end) != 0)
        why = strerror(errno);
    return why ? ZD_FAIL(ZD_ERR_CREATE, "E0731", "cannot open %s: %s",
                         file->path, why)
               : ZD_OK;
}

/* --- the writer ----------------------------------------------------------- */

static enum zd_status fail_write(const char *path, int error)
{
    return ZD_FAIL(
            ZD_ERR_IO, "E0732", "cannot write %s: %s", path, strerror(error));
}

/* Returns errno; 0: everything was written. */
static int write_all(int fd, const char *text, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, text + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        done += (size_t)n;
    }
    return 0;
}

/* Truncates a partial write. */
static enum zd_status write_rows(
        struct file_writer *file, const char *rows, size_t bytes)
{
    struct stat info;
    bool is_gone = file->mode == FILE_NEW && fstat(file->fd, &info) == 0 &&
                   info.st_nlink == 0;
    int error = is_gone ? ENOENT : write_all(file->fd, rows, bytes, file->end);
    if (!error) {
        file->end += (off_t)bytes;
        return ZD_OK;
    }
    if (ftruncate(file->fd, file->end) != 0)
        zd_log_debug("cannot cut %s", file->path);
    return fail_write(file->path, error);
}

/* Readable by all as the umask allows: Prometheus' text file is read by another
 * user. */
static enum zd_status replace(const char *path, const char *text, size_t bytes)
{
    char beside[PATH_MAX];
    if (ZD_PRINT(beside, "%s.tmp", path) >= (int)sizeof beside)
        return fail_write(path, ENAMETOOLONG);
    int fd = fs_create(beside, 0644);
    if (fd < 0)
        return fail_write(path, errno);
    int error = write_all(fd, text, bytes, 0);
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(beside, path) != 0)
        error = errno;
    if (!error)
        return ZD_OK;
    unlink(beside);
    return fail_write(path, error);
}

/* Tries once to write earlier unwritten texts, then waiting ones. Call with the
 * mutex held; it is released during writes. False: a write failed and there was
 * no warning yet. */
static bool try_rows(struct file_writer *file)
{
    uint64_t asked = file->asked;
    bool is_whole = file->mode == FILE_WHOLE;
    size_t bytes = file->hand_bytes + file->pending_bytes;
    file->hand = zd_grow(file->hand, &file->hand_room, bytes + 1, 1);
    if (file->pending)
        memcpy(file->hand + file->hand_bytes, file->pending,
               file->pending_bytes);
    file->hand_bytes = bytes;
    file->pending_bytes = 0;
    pthread_mutex_unlock(&file->mutex);
    enum zd_status status = !is_whole ? write_rows(file, file->hand, bytes)
                            : bytes   ? replace(file->path, file->hand, bytes)
                                      : ZD_OK; /* a sync with nothing waiting */
    pthread_mutex_lock(&file->mutex);
    bool is_told = status == ZD_OK || file->has_warned;
    file->tried = asked;
    file->error = *zd_error_get();
    if (bytes || !is_whole)
        file->has_warned = status != ZD_OK;
    zd_error_clear();
    if (status == ZD_OK || is_whole)
        file->hand_bytes = 0;
    pthread_cond_broadcast(&file->done);
    return is_told;
}

static void *run_writer(void *ctx)
{
    struct file_writer *file = ctx;
    ZD_LOCKED(&file->mutex);
    for (;;) {
        while (file->tried == file->asked && !file->is_closing)
            pthread_cond_wait(&file->work, &file->mutex);
        if (file->tried == file->asked)
            return NULL;
        if (try_rows(file))
            continue;
        /* warn without the mutex: a warning is an event, which may be a row
         * here */
        struct zd_error error = file->error;
        pthread_mutex_unlock(&file->mutex);
        zd_log_warning(
                "%s; training goes on%s%s%s", error.what,
                file->what ? " and the " : "", file->what ? file->what : "",
                file->what ? " are kept" : "");
        pthread_mutex_lock(&file->mutex);
    }
}

/* --- life ----------------------------------------------------------------- */

struct file_writer *file_writer_create(
        const char *path, enum file_mode mode, const char *what)
{
    struct file_writer *file = zd_array(1, sizeof *file);
    file->path = zd_must(strdup(path));
    file->mode = mode;
    file->what = what;
    file->fd = -1;
    pthread_mutex_init(&file->mutex, NULL);
    pthread_cond_init(&file->work, NULL);
    pthread_cond_init(&file->done, NULL);
    return file;
}

enum zd_status file_writer_begin(struct file_writer *file, size_t kept)
{
    file->end = (off_t)kept;
    if (file->mode != FILE_WHOLE)
        ZD_TRY(open_file(file));
    pthread_mutex_lock(&file->mutex);
    file->has_writer =
            thread_start(&file->writer, "zerod-rows", run_writer, file) == 0;
    pthread_mutex_unlock(&file->mutex);
    return file->has_writer ? ZD_OK
                            : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                      "the system refused a thread to write %s",
                                      file->path);
}

enum zd_status file_writer_open(
        const char *path, enum file_mode mode, size_t kept, const char *what,
        struct file_writer **out)
{
    struct file_writer *file = file_writer_create(path, mode, what);
    enum zd_status status = file_writer_begin(file, kept);
    if (status == ZD_OK)
        *out = file;
    else
        file_writer_close(file);
    return status;
}

/* Lets the writer try once more and end. */
static void end_writer(struct file_writer *file)
{
    pthread_mutex_lock(&file->mutex);
    if (file->pending_bytes + file->hand_bytes)
        file->asked++;
    file->is_closing = true;
    pthread_cond_signal(&file->work);
    pthread_mutex_unlock(&file->mutex);
    pthread_join(file->writer, NULL);
    if (file->hand_bytes && file->what)
        zd_log_warning(
                "%zu bytes of %s are lost: %s", file->hand_bytes, file->what,
                file->error.what);
}

void file_writer_close(struct file_writer *file)
{
    if (!file)
        return;
    if (file->has_writer)
        end_writer(file);
    if (file->fd >= 0)
        close(file->fd);
    pthread_mutex_destroy(&file->mutex);
    pthread_cond_destroy(&file->work);
    pthread_cond_destroy(&file->done);
    free(file->pending);
    free(file->hand);
    free(file->path);
    free(file);
}

/* --- rows ----------------------------------------------------------------- */

/* Call with the mutex held. */
static enum zd_status append(
        struct file_writer *file, const char *text, size_t bytes)
{
    bool is_row = file->mode == FILE_ROWS;
    if (file->mode == FILE_WHOLE)
        file->pending_bytes = 0; /* drop the waiting texts */
    else if (file->pending_bytes + file->hand_bytes + bytes >= FILE_WRITER_ROOM)
        return ZD_FAIL(
                ZD_ERR_IO, "E0732",
                "cannot write %s: the disk has not taken the last %d MiB",
                file->path, FILE_WRITER_ROOM >> 20);
    ZD_GROW(file->pending, file->pending_room, file->pending_bytes + bytes + 1);
    memcpy(file->pending + file->pending_bytes, text, bytes);
    file->pending[file->pending_bytes + bytes] = '\n';
    file->pending_bytes += bytes + is_row;
    return ZD_OK;
}

enum zd_status file_writer_add(
        struct file_writer *file, const char *text, size_t bytes)
{
    ZD_LOCKED(&file->mutex);
    enum zd_status status = append(file, text, bytes);
    file->asked += status == ZD_OK;
    pthread_cond_signal(&file->work);
    return status;
}

/* Waits for a try to write what was added. */
static enum zd_status await_rows(struct file_writer *file)
{
    ZD_LOCKED(&file->mutex);
    uint64_t try = ++file->asked;
    pthread_cond_signal(&file->work);
    while (file->has_writer && file->tried < try)
        pthread_cond_wait(&file->done, &file->mutex);
    if (file->error.status != ZD_OK)
        zd_error_set(&file->error);
    return file->error.status;
}

enum zd_status file_writer_sync(struct file_writer *file)
{
    ZD_TRY(await_rows(file));
    progress_completed();
    if (file->fd >= 0 && fdatasync(file->fd) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0732", "cannot flush %s: %s", file->path,
                strerror(errno));
    progress_completed();
    return ZD_OK;
}

enum zd_status file_rows(
        const char *path, file_row_fn *take, void *ctx, size_t *kept_out)
{
    bool is_there, is_kept = true;
    ZD_FREED char *text = NULL;
    char *end;
    size_t bytes, at = 0;
    *kept_out = 0;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_OK;
    ZD_TRY(fs_read_file(path, SIZE_MAX, &text, &bytes));
    while (is_kept && (end = memchr(text + at, '\n', bytes - at))) {
        json_auto_t *row = json_of_line(text + at, (size_t)(end - text) - at);
        *end = '\0';
        is_kept = take(ctx, text + at, row);
        if (is_kept)
            at = (size_t)(end - text) + 1;
    }
    *kept_out = at;
    return ZD_OK;
}
