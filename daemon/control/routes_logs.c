/* routes_logs.c - GET /v1/logs: lines of output_dir/logs/rank-NNNNN.log.
 *
 * The name is made of the rank's number alone. At most LOOK_BACK bytes before
 * the file's end are read, and PART bytes at a time of one that is followed. */
#include "daemon/control/routes_internal.h"
#include "daemon/state/log_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_BACK = 4 << 20, PART = 64 << 10, TAIL_MAX = 100000 };

/* -1: the reply says why there is none. */
static int open_log(const struct ask *ask, int rank)
{
    char path[PATH_MAX];
    struct stat info;
    const struct run_state *state = ask->state;
    const struct train_job *job = state->job;
    if (state->has_banner && rank >= state->facts.world) {
        http_error(
                ask->reply, 404, "E_NOT_FOUND", "GET /v1/ranks lists them",
                "there is no rank %d: the ranks are 0 to %d", rank,
                state->facts.world - 1);
        return -1;
    }
    snprintf(
            path, sizeof path, "%.3900s/logs/rank-%05d.log",
            job->job.output_dir, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        return fd;
    int error = fd >= 0 ? EINVAL : errno;
    if (fd >= 0)
        close(fd);
    http_error(
            ask->reply, 404, "E_NOT_FOUND",
            job->log.rank_logs == RANK_LOGS_FILES
                    ? "try again when it has written a line"
                    : "rank_logs = \"files\" in [log] of the job file",
            "there is no log of rank %d: %s", rank, strerror(error));
    return -1;
}

/* --- following --- */

/* New whole lines. */
static bool feed(struct follower *follower)
{
    static char part[PART]; /* the loop's thread alone comes here */
    follower->has_more = false;
    if (http_queued(follower->stream) >= STREAM_PART)
        return true;
    size_t bytes =
            log_lines_next(follower->fd, &follower->at, part, sizeof part);
    follower->has_more = bytes > 0;
    return !bytes || http_send(follower->stream, part, bytes);
}

void route_logs(const struct ask *ask)
{
    int64_t rank = 0, tail = 1000, end;
    bool follows = false;
    size_t bytes;
    if (!param_integer(ask, "rank", 0, 99999, &rank) ||
        !param_integer(ask, "tail", 0, TAIL_MAX, &tail) ||
        !param_flag(ask, "follow", &follows))
        return;
    int fd = open_log(ask, (int)rank);
    if (fd < 0)
        return;
    char *text = log_lines_last(fd, LOOK_BACK, tail, &end, &bytes);
    ask->reply->content_type = HTTP_TEXT;
    if (follows && !ask->routes->is_over) {
        /* what is queued for one client is bounded: the end of it */
        size_t cut = bytes > 2 * STREAM_PART ? bytes - 2 * STREAM_PART : 0;
        struct follower *follower = follower_create(ask, feed, fd);
        follower->follows = true;
        follower->at = end;
        http_send(follower->stream, text + cut, bytes - cut);
        free(text);
        return;
    }
    close(fd);
    ask->reply->body = text;
    ask->reply->body_bytes = bytes;
}
