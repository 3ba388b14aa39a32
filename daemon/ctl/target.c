#include "daemon/ctl/target.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/client.h"
#include "daemon/state/log_lines.h"
#include "daemon/state/past.h"
#include "daemon/state/series.h"

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
enum {
    ENDING_PAUSE_MS = 100,
    PING_SECONDS = 1,
    STATUS_MAX = 16 << 20,
    FILE_MAX = 1 << 30,
    STARTS_MAX = 1 << 20,
    LOOK_BACK = 256 << 20, /* of lines that are printed */
    LINE_MAX_BYTES = 64 << 10,
    FOLLOW_MS = 500
};

/* --- whole files of an output folder, in the form of the API --- */

static enum zd_status fail_missing(const char *dir, const char *what)
{
    ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "the files in %s do not contain %s", dir,
            what);
    return zd_fail_help(
            "while the job runs, zerodctl on its host asks its socket; after "
            "its end, see report.html in %s",
            dir);
}

/* Each answers `what` from the files of target->dir. */
#define GET(name)                                                              \
    static enum zd_status name(                                                \
            const struct target *target, const char *what, json_t **json_out)

GET(get_plan)
{
    return json_parse_file(
            fs_in(target->dir, "plan.json").text, FILE_MAX, json_out);
}

GET(get_status)
{
    *json_out = json_incref(target->file);
    return ZD_OK;
}

GET(get_ranks)
{
    json_t *ranks = json_object_get(target->file, "ranks");
    if (!json_is_array(ranks))
        return fail_missing(target->dir, "ranks");
    *json_out = json_pack(
            "{s:O?, s:O}", "step", json_object_get(target->file, "step"),
            "ranks", ranks);
    return ZD_OK;
}

GET(get_memory)
{
    json_t *ranks = json_object_get(target->file, "memory"), *plan = NULL;
    if (!json_is_array(ranks))
        return fail_missing(target->dir, "memory");
    if (get_plan(target, what, &plan) != ZD_OK)
        zd_error_clear();
    *json_out = json_pack("{s:O, s:o?}", "ranks", ranks, "plan", plan);
    return ZD_OK;
}

/* --- files of lines, by the readers that a resumed run has --- */

/* The run trusts its own files; those of another user's folder may be one line
 * that fills the memory. */
static enum zd_status check_size(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || about.st_size <= FILE_MAX)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_DATA, "E0704", "%s has %lld bytes, more than the %d allowed",
            path, (long long)about.st_size, FILE_MAX);
}

/* A number of the query. */
static int64_t param(const char *what, const char *name, int64_t otherwise)
{
    const char *at = strstr(what, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : otherwise;
}

GET(get_history)
{
    const struct fs_path path = fs_in(target->dir, "metrics.jsonl");
    const char *list = strstr(what, "name=");
    char names[1024] = "";
    ZD_TRY(check_size(path.text));
    if (!fs_exists(path.text))
        return fail_missing(target->dir, "metrics");
    struct history *series = series_read(path.text, INT64_MAX);
    if (list)
        ZD_PRINT(
                names, "%.*s", (int)strcspn(list + strlen("name="), "&"),
                list + strlen("name="));
    *json_out = series_json(
            series, names, param(what, "since=", -1),
            (int)param(what, "max=", 1000));
    series_free(series);
    return ZD_OK;
}

/* NULL and a record: the file is too large. */
static struct past *past_of(const char *dir)
{
    const struct fs_path path = fs_in(dir, "events.jsonl");
    return check_size(path.text) == ZD_OK ? past_read(path.text) : NULL;
}

/* Newest first. */
GET(get_samples)
{
    struct past *past = past_of(target->dir);
    if (!past)
        return zd_error_get()->status;
    json_t *samples = json_array();
    for (int i = past->count; i-- > 0;)
        if (strcmp(past->events[i].kind, "sample") == 0 &&
            json_array_size(samples) < (size_t)param(what, "max=", 20))
            json_array_append_new(
                    samples, json_loads(past->events[i].text, 0, NULL));
    past_free(past);
    *json_out = json_pack("{s:o}", "samples", samples);
    return ZD_OK;
}

/* The event of a hang, if it is the last of the run: it ended the run. NULL: it
 * is not. New reference. */
static json_t *dir_hang(const char *dir)
{
    json_t *hang = NULL;
    struct past *past = past_of(dir);
    if (!past)
        zd_error_clear();
    const struct kept_event *last =
            past && past->count ? &past->events[past->count - 1] : NULL;
    if (last && strcmp(last->kind, "hang") == 0)
        hang = json_loads(last->text, 0, NULL);
    past_free(past);
    return hang;
}

/* How the run that began at `started` failed, as train/trainer/crash_guard.h
 * has it for the next start: {"how", "step", "code", "what"}. NULL: it is not
 * known. New reference. Each rank
 * has a line; the one that knows the cause has a code. */
static json_t *dir_cause(const char *dir, double started)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    json_t *cause = NULL;
    if (fs_read_file(
                fs_in(dir, ".zerod.starts").text, STARTS_MAX, &text, &bytes) !=
        ZD_OK)
        zd_error_clear();
    for (char *line, *rest = text; (line = strsep(&rest, "\n"));) {
        json_auto_t *one = json_of_line(line, strlen(line));
        bool is_ours = strtod(json_text_of(one, "start", "0"), NULL) >= started;
        if (one && is_ours && (!cause || json_object_get(one, "code"))) {
            json_decref(cause);
            cause = json_incref(one);
        }
    }
    return cause;
}

static enum zd_status dir_get(
        const struct target *target, const char *what, json_t **json_out)
{
    static const struct {
        const char *path;
        enum zd_status (*get)(
                const struct target *target, const char *what,
                json_t **json_out);
    } files[] = {
            {"/v1/status", get_status},           {"/v1/ranks", get_ranks},
            {"/v1/memory", get_memory},           {"/v1/plan", get_plan},
            {"/v1/metrics/history", get_history}, {"/v1/samples", get_samples}};
    size_t bytes = strcspn(what, "?");
    *json_out = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strlen(files[i].path) == bytes &&
            strncmp(files[i].path, what, bytes) == 0)
            return files[i].get(target, what, json_out);
    return fail_missing(target->dir, strrchr(what, '/') + 1);
}
#undef GET

/* --- lines --- */

static bool pass_lines(const struct target_stream *stream, char *text)
{
    bool goes_on = true;
    while (goes_on && text && *text)
        goes_on = stream->line(stream->ctx, strsep(&text, "\n"));
    return goes_on;
}

static enum zd_status dir_stream(
        const char *dir, const struct target_stream *stream)
{
    char path[PATH_MAX], name[64], part[LINE_MAX_BYTES + 1];
    size_t bytes;
    int64_t at;
    int fd;
    if (stream->with_steps) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1097",
                "the events in %s do not include steps", dir);
        return zd_fail_help("zerodctl --dir %s metrics --csv has them", dir);
    }
    ZD_PRINT(name, "logs/rank-%05d.log", stream->rank);
    fs_join(path, sizeof path, dir, stream->is_events ? "events.jsonl" : name);
    ZD_TRY(fs_open_read(path, &fd, NULL));
    ZD_FREED char *text =
            log_lines_last(fd, LOOK_BACK, stream->tail, &at, &bytes);
    bool goes_on = pass_lines(stream, text);
    while (goes_on && stream->follow) {
        bytes = log_lines_next(fd, &at, part, LINE_MAX_BYTES);
        part[bytes] = '\0';
        goes_on = pass_lines(stream, part);
        if (bytes)
            continue;
        fflush(stdout);
        poll(NULL, 0, FOLLOW_MS);
    }
    close(fd);
    return ZD_OK;
}

/* --- which job --- */

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
    json_auto_t *greeting = NULL;
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
    return is_same;
}

/* Has this process the name of ours? Others get the numbers of the dead. */
static bool is_zerod(json_int_t pid)
{
    char path[64], name[6] = "";
    ZD_PRINT(path, "/proc/%lld/comm", (long long)pid);
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
    char here[64] = "";
    const char *host = json_string_at(file, "host");
    gethostname(here, sizeof here - 1);
    if (!host || strcmp(host, here) != 0 ||
        is_zerod(json_integer_at(file, "pid")))
        return false;
    int fd =
            open(fs_in(dir, ".zerod.lock").text,
                 O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
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
        return dir_get(target, what, json_out);
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
        if (clock_seconds() >= end)
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
        ZD_PRINT(tail, "&tail=%lld", (long long)stream->tail);
    if (stream->is_events)
        ZD_PRINT(
                query, "/v1/events?since=0%s",
                stream->follow ? "" : "&follow=0");
    else
        ZD_PRINT(
                query, "/v1/logs?rank=%d%s%s", stream->rank, tail,
                stream->follow ? "&follow=1" : "");
    struct client_request request = {
            .socket = target->socket,
            .question = {.method = "GET", .target = query},
            .timeout = !stream->follow     ? ANSWER_SECONDS
                       : stream->is_events ? 4 * COMMENT_SECONDS
                                           : 0,
            .data = take_bytes,
            .idle = flush_idle,
            .ctx = &lines};
    enum zd_status status = client_ask(&request, &answer);
    free(answer.body);
    if ((status == ZD_ERR_UNFIT || status == ZD_ERR_NO_INPUT) &&
        stream->follow && lines.has_come) { /* the job has ended */
        zd_error_clear();
        status = ZD_OK;
    }
    free(lines.text);
    return status;
}
