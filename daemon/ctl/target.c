#include "daemon/ctl/target.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/client.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SECONDS  10
#define COMMENT_SECONDS 15 /* between two signs of life of a stream */
enum { STATUS_MAX = 16 << 20, ENDING_PAUSE_MS = 100, PING_SECONDS = 1 };

void target_fini(struct target *target)
{
    free(target->socket);
    free(target->dir);
    json_decref(target->file);
    *target = (struct target){0};
}

void target_of_socket(const char *socket, struct target *target_out)
{
    *target_out = (struct target){.socket = zd_must(strdup(socket))};
}

/* Does the process that wrote `file` into `folder` answer on its socket?
 * Another host may have a job of this name; and whoever owns the folder may
 * have named the socket of another user's job. */
static bool answers(
        const json_t *file, const char *socket, const struct stat *folder)
{
    json_t *greeting;
    struct stat info;
    bool is_same = false;
    if (access(socket, F_OK) != 0)
        return false;
    if (client_get(socket, "/v1", 2, &greeting) == ZD_OK) {
        const char *own = json_string_at(greeting, "output_dir");
        is_same = json_integer_at(greeting, "pid") ==
                  json_integer_at(file, "pid");
        if (is_same &&
            (!own || stat(own, &info) != 0 || info.st_dev != folder->st_dev ||
             info.st_ino != folder->st_ino)) {
            is_same = false;
            zd_log_warning(
                    "its status.json names the socket of another folder's job, "
                    "which is not queried: %.200s",
                    own ? own : "?");
        }
    } else if (zd_error_get()->status == ZD_ERR_DENIED)
        zd_log_warning("%s", zd_error_get()->what);
    zd_error_clear();
    json_decref(greeting);
    return is_same;
}

/* Has this process the name of ours? Others get the numbers of the dead. */
static bool is_zerod(json_int_t pid)
{
    char path[64], name[6] = "";
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    FILE *file = fs_open_lines(path);
    bool is_ours =
            file && fgets(name, sizeof name, file) && !strcmp(name, "zerod");
    if (file)
        fclose(file);
    return is_ours;
}

/* Is the run that wrote `file` gone from this host? It holds the lock of its
 * folder until it ends, whatever its socket does; then it gives it back and
 * writes how it ended. To look at a lock is to take it for a moment, in which
 * another run tries again (train/trainer/output_dir.c). */
static bool is_gone(const char *dir, const json_t *file)
{
    char path[PATH_MAX], here[64] = "";
    const char *host = json_string_at(file, "host");
    gethostname(here, sizeof here - 1);
    if (!host || strcmp(host, here) != 0 ||
        is_zerod(json_integer_at(file, "pid")))
        return false;
    fs_join(path, sizeof path, dir, ".zerod.lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_free = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* What a run wrote before it went is read again once it is gone. A hang ends
 * the run from outside: status.json keeps the state from before, and the last
 * event names the hang. */
static enum zd_status look_for_death(
        struct target *target, const char *dir, const char *path)
{
    json_t *again, *hang = NULL;
    if (!target_file_has_ended(target) && (hang = dir_hang(dir))) {
        json_object_set_new(target->file, "hang", hang);
        json_object_set_new(target->file, "state", json_string("failed"));
    } else if (!target_file_has_ended(target) && is_gone(dir, target->file)) {
        ZD_TRY(json_parse_file(path, STATUS_MAX, &again));
        json_decref(target->file);
        target->file = again;
        if (!target_file_has_ended(target) && is_gone(dir, again))
            json_object_set_new(again, "state", json_string("died"));
    }
    if (target_file_has_failed(target) && !hang)
        json_object_set_new(
                target->file, "cause",
                dir_cause(dir, fill_number(target->file, "started")));
    return ZD_OK;
}

enum zd_status target_of_dir(const char *dir, struct target *target_out)
{
    char path[PATH_MAX];
    struct stat about, folder;
    json_t *file;
    bool is_there;
    fs_join(path, sizeof path, dir, "status.json");
    *target_out = (struct target){0};
    ZD_TRY(fs_look(path, &is_there));
    if (stat(path, &about) != 0 || stat(dir, &folder) != 0) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "%s holds no status.json", dir);
        return zd_fail_help("--dir takes the output_dir of a job");
    }
    ZD_TRY(json_parse_file(path, STATUS_MAX, &file));
    const char *socket = json_string_at(file, "socket");
    if (socket && answers(file, socket, &folder)) {
        target_of_socket(socket, target_out);
        json_decref(file);
        return ZD_OK;
    }
    target_out->dir = strdup(dir);
    target_out->file = file;
    target_out->age = difftime(time(NULL), about.st_mtime);
    enum zd_status status = look_for_death(target_out, dir, path);
    if (status != ZD_OK)
        target_fini(target_out);
    return status;
}

enum zd_status target_renew(struct target *target)
{
    struct target newer;
    if (target->socket)
        return ZD_OK;
    ZD_TRY(target_of_dir(target->dir, &newer));
    target_fini(target);
    *target = newer;
    return ZD_OK;
}

enum zd_status target_get(
        const struct target *target, const char *what, json_t **json_out)
{
    if (!target->socket)
        return dir_get(target->dir, target->file, what, json_out);
    return client_get(target->socket, what, ANSWER_SECONDS, json_out);
}

bool status_is_one_of(const json_t *status, const char *states)
{
    const char *state = json_string_at(status, "state");
    return state && state[0] && strstr(states, state);
}

bool target_file_has_ended(const struct target *target)
{
    return status_is_one_of(target->file, STATES_ENDED);
}

bool target_file_has_failed(const struct target *target)
{
    return status_is_one_of(target->file, "failed died");
}

bool target_has_ended(const struct target *target, double seconds)
{
    const struct zd_error first = *zd_error_get();
    double end = clock_seconds() + seconds;
    json_t *answer;
    while (target->socket) {
        bool is_gone = client_failed_with("E1090");
        zd_error_clear();
        if (is_gone)
            return true;
        if (clock_seconds() >= end || client_interrupted())
            break;
        poll(NULL, 0, ENDING_PAUSE_MS);
        client_get(target->socket, "/healthz", PING_SECONDS, &answer);
        json_decref(answer);
    }
    zd_error_clear();
    zd_error_set(&first);
    return false;
}

/* --- streams --- */

struct lines { /* from whatever pieces the body arrives in */
    const struct target_stream *stream;
    char *text;
    size_t bytes, capacity;
    bool has_come; /* something was read */
};

/* Of server-sent events: data, which is one line; all else is passed over. */
static bool take_line(struct lines *lines)
{
    const struct target_stream *stream = lines->stream;
    char *line = lines->text;
    size_t length = lines->bytes;
    if (length && line[length - 1] == '\r')
        length--;
    line[length] = '\0';
    lines->bytes = 0;
    if (stream->is_events && strncmp(line, "data:", 5) != 0)
        return true;
    if (stream->is_events)
        line += 5 + (line[5] == ' ');
    return stream->line(stream->ctx, line);
}

static bool take_bytes(void *ctx, const char *data, size_t bytes)
{
    struct lines *lines = ctx;
    lines->has_come = true;
    for (size_t i = 0; i < bytes; i++) {
        ZD_GROW(lines->text, lines->capacity, lines->bytes + 2);
        if (data[i] != '\n')
            lines->text[lines->bytes++] = data[i] ? data[i] : '?';
        else if (!take_line(lines))
            return false;
    }
    return true;
}

static bool flush_idle(void *ctx, double waited_seconds)
{
    fflush(stdout);
    return true;
}

enum zd_status target_stream(
        const struct target *target, const struct target_stream *stream)
{
    struct lines lines = {.stream = stream};
    struct client_answer answer;
    char query[256], tail[40] = "";
    if (!target->socket)
        return dir_stream(target->dir, stream);
    if (stream->tail >= 0)
        snprintf(tail, sizeof tail, "&tail=%lld", (long long)stream->tail);
    if (stream->is_events)
        snprintf(
                query, sizeof query, "/v1/events?since=0%s",
                stream->follow ? "" : "&follow=0");
    else
        snprintf(
                query, sizeof query, "/v1/logs?rank=%d%s%s", stream->rank, tail,
                stream->follow ? "&follow=1" : "");
    struct client_request request = {
            .socket = target->socket,
            .method = "GET",
            .target = query,
            .timeout = !stream->follow     ? ANSWER_SECONDS
                       : stream->is_events ? 4 * COMMENT_SECONDS
                                           : 0,
            .data = take_bytes,
            .idle = flush_idle,
            .ctx = &lines};
    enum zd_status status = client_ask(&request, &answer);
    if (status == ZD_OK && !answer.is_cut)
        status = client_check(&answer);
    free(answer.body);
    if ((status == ZD_ERR_UNFIT || status == ZD_ERR_NO_INPUT) &&
        stream->follow && lines.has_come) { /* the job has ended */
        zd_error_clear();
        status = ZD_OK;
    }
    free(lines.text);
    return status;
}
