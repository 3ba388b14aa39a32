#include "daemon/ctl/target.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/client.h"
#include "daemon/state/past.h"
#include "daemon/state/series.h"

#include <ctype.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FILE_MAX = 1 << 30, STARTS_MAX = 1 << 20, FOLLOW_MS = 500 };

static enum zd_status fail_missing(const char *dir, const char *what)
{
    ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "the files in %s do not contain %s", dir,
            what);
    zd_fail_help(
            "while the job runs, zerodctl on its host asks its socket; after "
            "its end, see report.html in %s",
            dir);
    return ZD_ERR_NO_INPUT;
}

/* --- whole files, in the form of the API --- */

static enum zd_status get_plan(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, dir, "plan.json");
    return json_parse_file(path, FILE_MAX, json_out);
}

static enum zd_status get_status(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    *json_out = json_incref((json_t *)file);
    return ZD_OK;
}

static enum zd_status get_ranks(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    json_t *ranks = json_object_get(file, "ranks");
    if (!json_is_array(ranks))
        return fail_missing(dir, "ranks");
    *json_out = json_pack(
            "{s:O?, s:O}", "step", json_object_get(file, "step"), "ranks",
            ranks);
    return ZD_OK;
}

static enum zd_status get_memory(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    json_t *ranks = json_object_get(file, "memory"), *plan = NULL;
    if (!json_is_array(ranks))
        return fail_missing(dir, "memory");
    if (get_plan(dir, file, what, &plan) != ZD_OK)
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

/* The value of `name` in the query of `what`; false: not there. */
static bool param(
        const char *what, const char *name, char *out, size_t out_bytes)
{
    size_t length = strlen(name);
    const char *at = strchr(what, '?');
    for (; at; at = strchr(at, '&')) {
        at++;
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(
                    out, out_bytes, "%.*s", (int)strcspn(at + length + 1, "&"),
                    at + length + 1);
            return true;
        }
    }
    return false;
}

static bool is_named(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ',') &&
            (!at[length] || at[length] == ','))
            return true;
    return !names[0];
}

static enum zd_status get_history(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    char path[PATH_MAX], names[1024] = "", since[32] = "-1", max[32] = "1000";
    fs_join(path, sizeof path, dir, "metrics.jsonl");
    ZD_TRY(check_size(path));
    struct resumed_rows *rows = resumed_rows_read(path, INT64_MAX);
    if (!rows)
        return fail_missing(dir, "metrics");
    param(what, "name", names, sizeof names);
    param(what, "since", since, sizeof since);
    param(what, "max", max, sizeof max);
    json_t *series = json_object(), *list = json_array();
    for (int i = 0; run_series_name(i); i++) {
        const char *name = run_series_name(i);
        json_array_append_new(list, json_string(name));
        if (is_named(names, name))
            json_object_set_new(
                    series, name,
                    history_json(
                            &rows->series[i], strtoll(since, NULL, 10),
                            atoi(max)));
    }
    resumed_rows_free(rows);
    *json_out = json_pack("{s:o, s:o}", "series", series, "names", list);
    return ZD_OK;
}

/* Newest first. */
static enum zd_status get_samples(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    char path[PATH_MAX], max[16] = "20";
    fs_join(path, sizeof path, dir, "events.jsonl");
    ZD_TRY(check_size(path));
    json_t *samples = json_array();
    param(what, "max", max, sizeof max);
    struct past *past = past_read(path);
    for (int i = past ? past->count : 0; i-- > 0;)
        if (strcmp(past->events[i].kind, "sample") == 0 &&
            json_array_size(samples) < strtoul(max, NULL, 10))
            json_array_append_new(
                    samples, json_loads(past->events[i].text, 0, NULL));
    past_free(past);
    *json_out = json_pack("{s:o}", "samples", samples);
    return ZD_OK;
}

json_t *dir_hang(const char *dir)
{
    char path[PATH_MAX];
    json_t *hang = NULL;
    fs_join(path, sizeof path, dir, "events.jsonl");
    if (check_size(path) != ZD_OK) {
        zd_error_clear();
        return NULL;
    }
    struct past *past = past_read(path);
    const struct kept_event *last =
            past && past->count ? &past->events[past->count - 1] : NULL;
    if (last && strcmp(last->kind, "hang") == 0)
        hang = json_loads(last->text, 0, NULL);
    past_free(past);
    return hang;
}

/* Each rank has a line; the one that knows the cause has a code. */
json_t *dir_cause(const char *dir, double started)
{
    char path[PATH_MAX], *text, *rest;
    size_t bytes;
    json_t *cause = NULL;
    fs_join(path, sizeof path, dir, ".zerod.starts");
    if (fs_read_file(path, STARTS_MAX, &text, &bytes) != ZD_OK) {
        zd_error_clear();
        return NULL;
    }
    rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        json_t *one = json_of_line(line, strlen(line));
        bool is_ours = strtod(json_text_of(one, "start", "0"), NULL) >= started;
        if (one && is_ours && (!cause || json_object_get(one, "code"))) {
            json_decref(cause);
            cause = json_incref(one);
        }
        json_decref(one);
    }
    free(text);
    return cause;
}

enum zd_status dir_get(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    static const struct {
        const char *path;
        enum zd_status (*get)(
                const char *dir, const json_t *file, const char *what,
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
            return files[i].get(dir, file, what, json_out);
    return fail_missing(dir, strrchr(what, '/') + 1);
}

/* --- following --- */

double dir_line_time(const char *line)
{
    struct tm tm = {0};
    if (line[0] == '{') {
        json_t *object = json_of_line(line, strlen(line));
        json_t *time = json_object_get(object, "time");
        double value = json_is_string(time)
                               ? dir_line_time(json_string_value(time))
                               : json_number_value(time);
        json_decref(object);
        return value;
    }
    if (!isdigit((unsigned char)line[0]) ||
        !strptime(line, "%Y-%m-%dT%H:%M:%S", &tm))
        return 0;
    return (double)timegm(&tm);
}

/* Where the last `tail` lines of the file begin. */
static long tail_offset(FILE *file, int64_t tail)
{
    char data[8192];
    fseek(file, 0, SEEK_END);
    long at = ftell(file);
    int64_t lines = -1; /* the end of the last line counts for none */
    while (at > 0 && tail >= 0) {
        long bytes = at < (long)sizeof data ? at : (long)sizeof data;
        fseek(file, at - bytes, SEEK_SET);
        if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
            break;
        for (long i = bytes - 1; i >= 0; i--)
            if (data[i] == '\n' && ++lines == tail)
                return at - bytes + i + 1;
        at -= bytes;
    }
    return 0;
}

static bool pass_line(const struct target_stream *stream, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    double time = stream->since > 0 ? dir_line_time(line) : 0;
    if (time > 0 && time < stream->since)
        return true;
    return stream->line(stream->ctx, line);
}

enum zd_status dir_stream(const char *dir, const struct target_stream *stream)
{
    char path[PATH_MAX], name[64], *line = NULL;
    size_t capacity = 0;
    int fd;
    if (stream->with_steps) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1097",
                "the events in %s do not include steps", dir);
        zd_fail_help("zerodctl --dir %s metrics --csv has them", dir);
        return ZD_ERR_NO_INPUT;
    }
    snprintf(name, sizeof name, "logs/rank-%05d.log", stream->rank);
    fs_join(path, sizeof path, dir, stream->is_events ? "events.jsonl" : name);
    ZD_TRY(fs_open_read(path, &fd, NULL));
    FILE *file = zd_must(fdopen(fd, "r"));
    long at = tail_offset(file, stream->tail);
    bool goes_on = fseek(file, at, SEEK_SET) == 0;
    while (goes_on && !client_interrupted()) {
        ssize_t bytes = getline(&line, &capacity, file);
        if (bytes > 0 && (line[bytes - 1] == '\n' || !stream->follow)) {
            goes_on = pass_line(stream, line);
            at = ftell(file);
        } else if (!stream->follow) {
            goes_on = false;
        } else { /* a torn line is read again when it is whole */
            fflush(stdout);
            poll(NULL, 0, FOLLOW_MS);
            clearerr(file);
            fseek(file, at, SEEK_SET);
        }
    }
    free(line);
    fclose(file);
    return ZD_OK;
}
