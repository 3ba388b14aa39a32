/* sink_writer.c - writes of one file, one after the other, in a worker.
 *
 *     loop thread                       worker
 *     waiting -> text, is_busy    ->    write_text
 *     on_written                  <-    error, text kept by an appender
 *
 * text, bytes and error belong to the worker while is_busy. The worker is a
 * thread of one write: libuv's pool ends the process where it cannot be made.
 */
#include "base/file/fs.h"
#include "base/log.h"
#include "daemon/sinks/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPEND_WAITING_MAX = 1 << 20 };

struct sink_writer {
    uv_thread_t worker; /* while is_busy */
    uv_async_t written; /* sent by the worker, once for each write */
    char *path;
    bool appends, is_begun; /* the appender's file was made */
    bool is_busy, was_told;
    char *waiting;
    size_t waiting_bytes;
    char *text;
    size_t bytes;
    int error; /* errno of the last write; 0: it went well */
};

/* --- a worker's part --- */

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Readable by all that may enter the folder, as the umask allows: the reader of
 * a text file for Prometheus is another user. */
static int replace(const char *path, const char *text, size_t bytes)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.tmp", path) >= (int)sizeof beside)
        return ENAMETOOLONG;
    int fd = fs_create(beside, 0644);
    if (fd < 0)
        return errno;
    int error = write_all(fd, text, bytes);
    if (close(fd) != 0 && !error)
        error = errno;
    if (!error && rename(beside, path) != 0)
        error = errno;
    if (error)
        unlink(beside);
    return error;
}

/* The file is opened anew each time: one that vanished is an error, not a
 * stream of bytes that nobody can see. A torn write is cut off. */
static int append(struct sink_writer *writer)
{
    int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    int fd =
            open(writer->path,
                 writer->is_begun ? flags : flags | O_CREAT | O_EXCL, 0644);
    struct stat before;
    if (fd < 0)
        return errno;
    writer->is_begun = true;
    int error = fstat(fd, &before) == 0 ? 0 : errno;
    if (!error)
        error = write_all(fd, writer->text, writer->bytes);
    if (error && ftruncate(fd, before.st_size) != 0)
        zd_log_debug("cannot cut %s", writer->path);
    if (close(fd) != 0 && !error)
        error = errno;
    return error;
}

static void write_text(struct sink_writer *writer)
{
    writer->error = writer->appends ? append(writer)
                                    : replace(writer->path, writer->text,
                                              writer->bytes);
    if (writer->error && writer->appends)
        return;
    free(writer->text);
    writer->text = NULL;
    writer->bytes = 0;
}

static void on_work(void *argument)
{
    struct sink_writer *writer = argument;
    write_text(writer);
    uv_async_send(&writer->written);
}

/* --- the loop's part --- */

/* waiting = what could not be appended, and what came since. */
static void keep_unwritten(struct sink_writer *writer)
{
    char *both =
            realloc(writer->text, writer->bytes + writer->waiting_bytes + 1);
    if (!both)
        return;
    if (writer->waiting_bytes)
        memcpy(both + writer->bytes, writer->waiting, writer->waiting_bytes);
    free(writer->waiting);
    writer->waiting = both;
    writer->waiting_bytes += writer->bytes;
    writer->text = NULL;
    writer->bytes = 0;
}

static void look_at_error(struct sink_writer *writer)
{
    if (writer->error && !writer->was_told) {
        zd_log_warning(
                "cannot write %s: %s; training goes on", writer->path,
                strerror(writer->error));
        writer->was_told = true;
    }
    if (writer->text)
        keep_unwritten(writer);
}

static void free_writer(struct sink_writer *writer)
{
    free(writer->waiting);
    free(writer->text);
    free(writer->path);
    free(writer);
}

static void take_waiting(struct sink_writer *writer)
{
    writer->text = writer->waiting;
    writer->bytes = writer->waiting_bytes;
    writer->waiting = NULL;
    writer->waiting_bytes = 0;
}

/* Without a thread it is the loop that writes. */
static void begin_write(struct sink_writer *writer)
{
    take_waiting(writer);
    writer->is_busy = uv_thread_create(&writer->worker, on_work, writer) == 0;
    if (writer->is_busy) {
        uv_ref((uv_handle_t *)&writer->written);
        return;
    }
    write_text(writer);
    look_at_error(writer);
}

static void end_write(struct sink_writer *writer)
{
    uv_thread_join(&writer->worker);
    uv_unref((uv_handle_t *)&writer->written);
    writer->is_busy = false;
    look_at_error(writer);
}

static void on_written(uv_async_t *written)
{
    struct sink_writer *writer = written->data;
    if (!writer->is_busy)
        return;
    end_write(writer);
    if (writer->waiting && !writer->error)
        begin_write(writer);
}

static void add_waiting(struct sink_writer *writer, char *text, size_t bytes)
{
    size_t all = writer->waiting_bytes + bytes;
    char *both = all <= APPEND_WAITING_MAX ? realloc(writer->waiting, all + 1)
                                           : NULL;
    if (both) {
        memcpy(both + writer->waiting_bytes, text, bytes);
        writer->waiting = both;
        writer->waiting_bytes = all;
    }
    free(text);
}

void sink_write_file(struct sink_writer *writer, char *text, size_t bytes)
{
    if (!text)
        return;
    if (writer->appends && writer->waiting) {
        add_waiting(writer, text, bytes);
    } else {
        free(writer->waiting);
        writer->waiting = text;
        writer->waiting_bytes = bytes;
    }
    if (!writer->is_busy && writer->waiting)
        begin_write(writer);
}

static enum zd_status create(
        uv_loop_t *loop, const char *path, bool appends,
        struct sink_writer **writer_out)
{
    struct sink_writer *writer = calloc(1, sizeof *writer);
    if (writer)
        writer->path = strdup(path);
    if (!writer || !writer->path ||
        uv_async_init(loop, &writer->written, on_written) != 0) {
        if (writer)
            free(writer->path);
        free(writer);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    }
    writer->written.data = writer;
    uv_unref((uv_handle_t *)&writer->written);
    writer->appends = appends;
    *writer_out = writer;
    return ZD_OK;
}

enum zd_status sink_writer_create(
        uv_loop_t *loop, const char *path, struct sink_writer **writer_out)
{
    return create(loop, path, false, writer_out);
}

enum zd_status sink_appender_create(
        uv_loop_t *loop, const char *path, struct sink_writer **writer_out)
{
    return create(loop, path, true, writer_out);
}

static void on_closed(uv_handle_t *written)
{
    free_writer(written->data);
}

void sink_writer_destroy(struct sink_writer *writer)
{
    if (!writer)
        return;
    if (writer->is_busy)
        end_write(writer);
    if (writer->waiting) {
        take_waiting(writer);
        write_text(writer);
        look_at_error(writer);
    }
    uv_close((uv_handle_t *)&writer->written, on_closed);
}
