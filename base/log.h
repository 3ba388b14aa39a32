/* log.h - lines for people, on stderr (results go to stdout).
 *
 * One line per call. Rank 0 writes plainly; other ranks prefix "[rank N] " and
 * are silent below `warning` on stderr. With a log file open (zd_log_open) each
 * rank also writes everything at its level there. What is not printable
 * (base/printable.h) becomes '?', so data cannot send escape codes to a
 * terminal.
 *
 * Threads: may be called from any; a line is written with one write(2). */
#pragma once

#include "base/status.h"

enum zd_log_level { ZD_LOG_DEBUG, ZD_LOG_INFO, ZD_LOG_WARNING, ZD_LOG_ERROR };

struct zd_log_options {
    enum zd_log_level level;
    bool json;      /* one JSON object per line: time, level, rank, message */
    bool all_ranks; /* log.rank_logs = "stdout": every rank on stderr too */
    int rank;       /* -1 before ranks are known */
};

void zd_log_configure(const struct zd_log_options *options);
/* Also write to `path` (appended, created 0640), which must not be a link. NULL
 * closes. */
enum zd_status zd_log_open(const char *path);
void zd_log(enum zd_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* To the log file only: for lines that stderr shows in another form
 * (zd_error_print). */
void zd_log_file(enum zd_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* A hook run before a line is written to stderr and after it: the progress bar
 * clears and redraws itself there. NULL removes it. */
void zd_log_set_bar(void (*hide)(void *), void (*show)(void *), void *ctx);

/* Every line that passes the level also goes to `hook`, after it was written,
 * in the thread that logs; the hook may log. When this returns, the previous
 * hook is no longer running in any thread. NULL removes it. */
void zd_log_set_hook(
        void (*hook)(void *ctx, enum zd_log_level level, const char *message),
        void *ctx);

#define zd_log_debug(...)   zd_log(ZD_LOG_DEBUG, __VA_ARGS__)
#define zd_log_info(...)    zd_log(ZD_LOG_INFO, __VA_ARGS__)
#define zd_log_warning(...) zd_log(ZD_LOG_WARNING, __VA_ARGS__)
