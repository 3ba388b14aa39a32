#include "daemon/ctl/target.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/client.h"
#include "daemon/state/log_lines.h"
#include "daemon/state/past.h"
#include "daemon/state/series.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_MAX = 1 << 30,
    STARTS_MAX = 1 << 20,
    LOOK_BACK = 256 << 20, /* of lines that are printed */
    LINE_MAX_BYTES = 64 << 10,
    FOLLOW_MS = 500
};

static enum zd_status fail_missing(const char *dir, const char *what)
{
    ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "the files in %s do not contain %s", dir,
            what);
    return zd_fail_help(
            "while the job runs, zerodctl on its host asks its socket; after "
            "its end, see report.html in %s",
            dir);
}

/* --- whole files, in the form of the API --- */

/* The folder, its status.json, and what is asked. */
struct question {
    const char *dir;
    const json_t *file;
    const char *what;
};

static enum zd_status get_plan(const struct question *of, json_t **json_out)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, of->dir, "plan.json");
    return json_parse_file(path, FILE_MAX, json_out);
}

static enum zd_status get_status(const struct question *of, json_t **json_out)
{
    *json_out = json_incref((json_t *)of->file);
    return ZD_OK;
}

static enum zd_status get_ranks(const struct question *of, json_t **json_out)
{
    json_t *ranks = json_object_get(of->file, "ranks");
    if (!json_is_array(ranks))
        return fail_missing(of->dir, "ranks");
    *json_out = json_pack(
            "{s:O?, s:O}", "step", json_object_get(of->file, "step"), "ranks",
            ranks);
    return ZD_OK;
}

static enum zd_status get_memory(const struct question *of, json_t **json_out)
{
    json_t *ranks = json_object_get(of->file, "memory"), *plan = NULL;
    if (!json_is_array(ranks))
        return fail_missing(of->dir, "memory");
    if (get_plan(of, &plan) != ZD_OK)
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

static enum zd_status get_history(const struct question *of, json_t **json_out)
{
    char path[PATH_MAX], names[1024] = "";
    const char *list = strstr(of->what, "name=");
    fs_join(path, sizeof path, of->dir, "metrics.jsonl");
    ZD_TRY(check_size(path));
    if (!fs_exists(path))
        return fail_missing(of->dir, "metrics");
    struct history *series = series_read(path, INT64_MAX);
    if (list)
        snprintf(
                names, sizeof names, "%.*s",
                (int)strcspn(list + strlen("name="), "&"),
                list + strlen("name="));
    *json_out = series_json(
            series, names, param(of->what, "since=", -1),
            (int)param(of->what, "max=", 1000));
    series_free(series);
    return ZD_OK;
}

/* NULL and a record: the file is too large. */
static struct past *past_of(const char *dir)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, dir, "events.jsonl");
    return check_size(path) == ZD_OK ? past_read(path) : NULL;
}

/* Newest first. */
static enum zd_status get_samples(const struct question *of, json_t **json_out)
{
    struct past *past = past_of(of->dir);
    if (!past)
        return zd_error_get()->status;
    json_t *samples = json_array();
    for (int i = past->count; i-- > 0;)
        if (strcmp(past->events[i].kind, "sample") == 0 &&
            json_array_size(samples) < (size_t)param(of->what, "max=", 20))
            json_array_append_new(
                    samples, json_loads(past->events[i].text, 0, NULL));
    past_free(past);
    *json_out = json_pack("{s:o}", "samples", samples);
    return ZD_OK;
}

json_t *dir_hang(const char *dir)
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
        enum zd_status (*get)(const struct question *of, json_t **json_out);
    } files[] = {
            {"/v1/status", get_status},           {"/v1/ranks", get_ranks},
            {"/v1/memory", get_memory},           {"/v1/plan", get_plan},
            {"/v1/metrics/history", get_history}, {"/v1/samples", get_samples}};
    const struct question of = {dir, file, what};
    size_t bytes = strcspn(what, "?");
    *json_out = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strlen(files[i].path) == bytes &&
            strncmp(files[i].path, what, bytes) == 0)
            return files[i].get(&of, json_out);
    return fail_missing(dir, strrchr(what, '/') + 1);
}

/* --- lines --- */

static bool pass_lines(const struct target_stream *stream, char *text)
{
    bool goes_on = true;
    while (goes_on && text && *text)
        goes_on = stream->line(stream->ctx, strsep(&text, "\n"));
    return goes_on;
}

enum zd_status dir_stream(const char *dir, const struct target_stream *stream)
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
    snprintf(name, sizeof name, "logs/rank-%05d.log", stream->rank);
    fs_join(path, sizeof path, dir, stream->is_events ? "events.jsonl" : name);
    ZD_TRY(fs_open_read(path, &fd, NULL));
    char *text = log_lines_last(fd, LOOK_BACK, stream->tail, &at, &bytes);
    bool goes_on = pass_lines(stream, text);
    free(text);
    while (goes_on && stream->follow && !client_interrupted()) {
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
