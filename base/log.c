#include "base/log.h"

#include "base/printable.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    struct zd_log_options options;
    int file; /* -1: none */
    void (*hide)(void *);
    void (*show)(void *);
    void *bar;
} sink = {
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .options = {.level = ZD_LOG_INFO, .rank = -1},
        .file = -1,
};

/* Its lock is held while the hook runs; it is not the sink's, so that the hook
 * may log. */
static struct {
    pthread_mutex_t mutex;
    void (*call)(void *, enum zd_log_level, const char *);
    void *ctx;
} hook = {.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

void zd_log_configure(const struct zd_log_options *options)
{
    ZD_LOCKED(&sink.mutex);
    sink.options = *options;
}

enum zd_status zd_log_open(const char *path)
{
    struct stat info;
    int fd = -1;
    if (path) {
        fd =
                open(path,
                     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK |
                             O_NOFOLLOW,
                     0640);
        const char *why = fd >= 0          ? NULL
                          : errno == ELOOP ? "it is a link"
                                           : strerror(errno);
        if (!why && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
            close(fd);
            why = "it is not a file";
        }
        if (why)
            return ZD_FAIL(
                    ZD_ERR_CREATE, "E0701", "cannot open log %s: %s", path,
                    why);
    }
    ZD_LOCKED(&sink.mutex);
    if (sink.file >= 0)
        close(sink.file);
    sink.file = fd;
    return ZD_OK;
}

void zd_log_set_bar(void (*hide)(void *), void (*show)(void *), void *ctx)
{
    ZD_LOCKED(&sink.mutex);
    sink.hide = hide;
    sink.show = show;
    sink.bar = ctx;
}

void zd_log_set_hook(
        void (*call)(void *ctx, enum zd_log_level level, const char *message),
        void *ctx)
{
    ZD_LOCKED(&hook.mutex);
    hook.call = call;
    hook.ctx = ctx;
}

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* a failing log does not stop the program */
        data += n;
        bytes -= (size_t)n;
    }
}

/* One '?' for each character that is not printable: no line gets longer. */
static void hide_controls(char *text)
{
    size_t bytes = strlen(text), used = 0;
    for (size_t at = 0; at < bytes;) {
        char one[PRINTABLE_MAX];
        size_t length = printable_one(text + at, bytes - at, one);
        if (text[at] == '\t' || printable_is(text + at, bytes - at)) {
            memmove(text + used, text + at, length);
            used += length;
        } else {
            text[used++] = '?';
        }
        at += length;
    }
    text[used] = '\0';
}

/* One finished line into out; returns its length. */
static size_t format_line(
        char *out, size_t out_bytes, enum zd_log_level level,
        const char *message, bool stamped)
{
    int rank = sink.options.rank;
    char when[40];
    struct timespec now;
    struct tm tm;
    int n;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (sink.options.json) {
        json_t *line = json_pack(
                "{s:s, s:s, s:i, s:s}", "time", when, "level",
                level_names[level], "rank", rank < 0 ? 0 : rank, "message",
                message);
        char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
        n = snprintf(out, out_bytes, "%s\n", text ? text : "{}");
        free(text);
        json_decref(line);
    } else {
        char prefix[64] = "";
        if (stamped)
            ZD_PRINT(prefix, "%s ", when);
        if (rank > 0)
            snprintf(
                    prefix + strlen(prefix), sizeof prefix - strlen(prefix),
                    "[rank %d] ", rank);
        n = snprintf(
                out, out_bytes, "%s%s%s\n", prefix,
                level == ZD_LOG_WARNING ? "warning: " : "", message);
    }
    if (n < 0)
        return 0;
    if ((size_t)n >= out_bytes) { /* cut, but still one line */
        out[out_bytes - 2] = '\n';
        return out_bytes - 1;
    }
    return (size_t)n;
}

enum { MESSAGE_MAX = 4096, LINE_MAX_BYTES = MESSAGE_MAX + 304 };

static void format_message(
        char message[MESSAGE_MAX], const char *format, va_list args)
{
    int length = vsnprintf(message, MESSAGE_MAX, format, args);
    if (length >= MESSAGE_MAX) /* cut, but not within a character */
        message[MESSAGE_MAX - 1 - printable_tail(message, MESSAGE_MAX - 1)] =
                '\0';
    hide_controls(message);
}

/* The caller holds the mutex. */
static void write_to_file(enum zd_log_level level, const char *message)
{
    char line[LINE_MAX_BYTES];
    if (sink.file >= 0)
        write_all(
                sink.file, line,
                format_line(line, sizeof line, level, message, true));
}

void zd_log_file(enum zd_log_level level, const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    format_message(message, format, args);
    va_end(args);
    ZD_LOCKED(&sink.mutex);
    write_to_file(level, message);
}

void zd_log(enum zd_log_level level, const char *format, ...)
{
    char message[MESSAGE_MAX], line[LINE_MAX_BYTES];
    va_list args;
    size_t bytes;

    if (level < sink.options.level)
        return;
    va_start(args, format);
    format_message(message, format, args);
    va_end(args);
    pthread_mutex_lock(&sink.mutex);
    if (sink.options.rank <= 0 || sink.options.all_ranks ||
        level >= ZD_LOG_WARNING) {
        bytes = format_line(line, sizeof line, level, message, false);
        if (sink.hide)
            sink.hide(sink.bar);
        write_all(STDERR_FILENO, line, bytes);
        if (sink.show)
            sink.show(sink.bar);
    }
    write_to_file(level, message);
    pthread_mutex_unlock(&sink.mutex);
    ZD_LOCKED(&hook.mutex);
    if (hook.call)
        hook.call(hook.ctx, level, message);
}
